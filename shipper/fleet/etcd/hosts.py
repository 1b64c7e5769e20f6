"""The hosts of an etcd: their URLs, and connections to them, with TLS files that are read anew for each connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

import trio

from shipper.fleet.etcd.http import Connection, keep_alive
from shipper.fleet.store import StoreRefused
from shipper.sdk.connection import open_stream
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import BadOption
from shipper.sdk.tls import ClientTls, Material, client_context, load_identity

SILENT_SECONDS = 20
"""After which the kernel ends a connection to a host that answers nothing any more."""

_readers = trio.CapacityLimiter(16)


@dataclass(frozen=True, slots=True)
class Host:
    """A host of etcd."""

    endpoint: Endpoint
    secure: bool

    @classmethod
    def parse(cls, url: str) -> Host:
        """Returns a host; raises BadOption for anything but `http://host:port` and `https://host:port`."""
        try:
            parts = urlsplit(url)
            port = parts.port or 2379
        except ValueError:
            raise BadOption(_FORM) from None
        if parts.scheme not in ("http", "https") or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise BadOption(_FORM)
        if not parts.hostname or parts.username is not None or parts.password is not None:
            raise BadOption(_FORM)
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(Endpoint.parse(f"{name}:{port}"), parts.scheme == "https")

    def __str__(self) -> str:
        return self.endpoint.address


_FORM = "an address of etcd is https://host:2379 or http://host:2379, without a user or a path"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; without `ca`, the authorities of the system are trusted."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def read(self) -> ssl.SSLContext:
        """Returns the context of what the files hold now; blocks for a while. Raises ValueError in words."""
        return _context(*(None if path is None else _read(path) for path in (self.ca, self.certificate, self.key)))


def _read(path: str) -> Material:
    try:
        return Material.read(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@lru_cache(maxsize=8)
def _context(ca: Material | None, certificate: Material | None, key: Material | None) -> ssl.SSLContext:
    """The same for all members of a process."""
    context = client_context(ClientTls(ca=ca))
    if certificate is not None and key is not None:
        load_identity(context, certificate.pem, key.pem)
    return context


class Dialer:
    """Makes connections; for a while, files that do not fit leave it with those that it read before."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self._last: ssl.SSLContext | None = None

    async def dial(self, host: Host, seconds: float) -> Connection:
        """Raises Unreachable, or StoreRefused for bad TLS files."""
        context = await self._context() if host.secure else None
        stream = await open_stream(host.endpoint, context, seconds=seconds)
        with suppress(OSError):  # it is gone already; the request will say so
            keep_alive(stream, SILENT_SECONDS)
        return Connection(stream, str(host))

    async def _context(self) -> ssl.SSLContext:
        read: Callable[[], ssl.SSLContext] = self._tls.read
        try:
            self._last = await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=_readers)
        except ValueError as error:
            if self._last is None:  # certificate and key are seldom replaced in one instant
                raise StoreRefused(f"TLS to etcd: {error}") from None
        return self._last
