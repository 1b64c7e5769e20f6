"""Trust in one certificate authority that is known by its fingerprint, without its certificate: `ca_fingerprint`.

An Elasticsearch prints the fingerprint when it makes its own authority, and shows the certificate of that authority
with its own. So the certificate is taken from a host's chain, once, by a handshake that ends before anything is sent;
nobody can make another certificate with the same SHA-256. From then on hosts are checked as with `tls.ca`.

    find(host) ── a connection of the client that only looks ──> its chain ── has it ──> the context trusts it

If the chain does not have it, the host gets nothing.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import trio

from shipper.plugin import Code, Later, OutputContext
from shipper.sdk.http_answer import Unreachable, address
from shipper.sdk.proxies import Choice
from shipper.sdk.tallies import Requests

if TYPE_CHECKING:
    from shipper.sdk.http import Client

SECONDS = 10.0
"""To look at a host."""
_DER = 2
"""X509_FILETYPE_ASN1 of OpenSSL."""


class Looking:
    """A context of TLS whose handshakes never succeed; it keeps the certificate that it looks for."""

    def __init__(self, fingerprint: str) -> None:
        """`fingerprint` is the SHA-256 of a certificate in hex, with colons or without."""
        self._digest = bytes.fromhex(fingerprint.replace(":", ""))
        self.found: bytes | None = None
        """The certificate, as DER."""
        self.has_seen = False
        """Whether a host has shown a chain."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.context.sslobject_class = self._object_class()

    def _object_class(self) -> type[ssl.SSLObject]:
        look = self._look

        class Object(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    if not look(chain(self)):
                        raise
                look(chain(self))
                raise ssl.SSLError("the chain was looked at")

        return Object

    def _look(self, chain: Sequence[bytes]) -> bool:
        """Looks at a chain; returns whether it has come, perhaps before the handshake ends: a host that wants a
        certificate of ours lets none end."""
        self.has_seen = self.has_seen or bool(chain)
        self.found = next((one for one in chain if sha256(one).digest() == self._digest), self.found)
        return bool(chain)


def chain(connection: ssl.SSLObject) -> list[bytes]:
    """Returns the certificates that the peer has shown, as DER; none before it did."""
    if sys.version_info >= (3, 13):
        return list(connection.get_unverified_chain() or ())
    inner = connection._sslobj  # type: ignore[attr-defined]
    return [one.public_bytes(_DER) for one in inner.get_unverified_chain() or ()]  # public since Python 3.13


class Authority:
    """Adds the authority to the context of a client, as soon as a host shows it."""

    def __init__(self, looking: Looking, client: Client, context: ssl.SSLContext, requests: Requests) -> None:
        """`client` has the context of `looking`; `context` is the one that is to trust the authority."""
        self._looking, self._client, self._context, self._requests = looking, client, context, requests
        self._one = trio.Lock()
        self._is_trusted = False

    async def find(self, host: str) -> None:
        """Looks at the chain of a host, unless the authority is known; raises Unreachable if it is another one.

        Returns too if the host cannot be reached: the request that follows says why.
        """
        if self._is_trusted or not host.startswith("https://"):
            return
        async with self._one:
            if self._is_trusted:
                return
            began = trio.current_time()
            await self._ask(host)
            if self._looking.found is not None:
                self._context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it may be no root
                self._context.load_verify_locations(cadata=self._looking.found)
                self._is_trusted = True
            elif self._looking.has_seen:
                self._requests.failed(trio.current_time() - began, "tls")
                why = "no certificate of its chain has the ca_fingerprint"
                raise Unreachable(f"{address(host)}: {why}", "tls", Code.TLS_FAILED)

    async def _ask(self, host: str) -> None:
        self._looking.has_seen = False
        try:
            await self._client.request("GET", host, "/")
        except Later:  # as each of these requests ends
            return


@asynccontextmanager
async def open_authority(
    fingerprint: str, tls: ssl.SSLContext, context: OutputContext, proxy: Choice, server_name: str | None
) -> AsyncIterator[Authority]:
    """The authority with a fingerprint, for the context `tls`; contacts nobody by itself."""
    from shipper.sdk.http import open_client

    looking = Looking(fingerprint)
    async with open_client(
        context.aio,
        {},
        looking.context,
        server_name=server_name,
        connections=1,
        seconds=SECONDS,
        may_begin=context.may_begin,
        proxy=proxy,
    ) as client:
        yield Authority(looking, client, tls, context.requests)
