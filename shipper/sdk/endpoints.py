"""PUBLIC: addresses of sockets, as a policy writes them: `host:port`, `udp://host:port`, `unix:/run/app.sock`. No I/O.

| text | meaning |
|---|---|
| `127.0.0.1:514`, `[::1]:514`, `logs.example:514` | TCP, or the plugin's default scheme |
| `:514` | the same port of all addresses of this host |
| `tcp://…`, `udp://…`, `tls://…` | the same, with the kind of socket |
| `unix:/run/app.sock`, `unixgram:/run/app.sock` | a socket in the file system, of streams or of datagrams |
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final, Literal, get_args

import msgspec

from shipper.sdk.errors import BadOption

Scheme = Literal["tcp", "tls", "udp", "unix", "unixgram"]
SCHEMES: Final[frozenset[Scheme]] = frozenset(get_args(Scheme))
LONGEST_PATH = 103
"""Bytes of the path of a socket, on every system; Linux takes four more."""

_SCHEME = re.compile(r"(?:(tcp|tls|udp)://|(unix|unixgram):(?=/))(.*)", re.DOTALL)
_ANY_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


class Endpoint(msgspec.Struct, frozen=True):
    """An address to listen on, or to connect to. Equal ones are the same place, however they were written."""

    scheme: Scheme
    host: str = ""
    """A name, or an IP address in its short form; empty: all addresses of this host."""
    port: int = 0
    """0: any free one."""
    path: str = ""
    """Of a `unix` or `unixgram` socket; the others have none."""

    @classmethod
    def parse(cls, text: str, *at: str | int, schemes: Collection[Scheme] = SCHEMES, usual: Scheme = "tcp") -> Endpoint:
        """Returns an endpoint; raises BadOption for the option `at` if the text is none, or its scheme not in
        `schemes`.

        `usual` is the scheme of a text without one.
        """
        match = _SCHEME.fullmatch(text)
        if match is None and _ANY_SCHEME.match(text):
            raise BadOption(f"the scheme of an address is {_listed(schemes)}", *at)
        scheme: Scheme = usual if match is None else match[1] or match[2]  # type: ignore[assignment]
        rest = text if match is None else match[3]
        if scheme not in schemes:
            raise BadOption(f"an address of {scheme} is not taken here, only {_listed(schemes)}", *at)
        if scheme in ("unix", "unixgram"):
            return cls(scheme, path=_path(rest, at))
        return cls(scheme, *_host_and_port(rest, at))

    def __str__(self) -> str:
        """Returns a text for `parse`."""
        return f"{self.scheme}:{self.path}" if self.path else f"{self.scheme}://{self.address}"

    @property
    def address(self) -> str:
        """`host:port`, or the path."""
        return self.path or f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_of_datagrams(self) -> bool:
        return self.scheme in ("udp", "unixgram")

    @property
    def place(self) -> tuple[str, str, int] | None:
        """The place that no other socket may use; None for port 0, which is another port for each input."""
        if self.path:
            return "path", self.path, 0
        return ("udp" if self.scheme == "udp" else "tcp", self.host, self.port) if self.port else None


def _listed(schemes: Collection[Scheme]) -> str:
    written = [f"{one}:/path" if one in ("unix", "unixgram") else f"{one}://host:port" for one in sorted(schemes)]
    return " or ".join(written)


def _host_and_port(text: str, at: tuple[str | int, ...]) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536
    if host.startswith("[") and host.endswith("]"):
        return _ipv6(host[1:-1], is_port, port, at)
    if ":" in host:
        raise BadOption("an IPv6 address is written in brackets, such as [::1]:9200", *at)
    if not colon or not is_port or (host and not _NAME.fullmatch(host)):
        raise BadOption("an address is host:port, such as 127.0.0.1:9200", *at)
    return host.lower(), int(port)


def _ipv6(host: str, is_port: bool, port: str, at: tuple[str | int, ...]) -> tuple[str, int]:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        raise BadOption("what is in brackets is not an IPv6 address", *at) from None
    if not is_port:
        raise BadOption("an address is [host]:port, such as [::1]:9200", *at)
    return str(address), int(port)


def _path(path: str, at: tuple[str | int, ...]) -> str:
    if not path.isprintable() or path.endswith("/") or "//" in path or {".", ".."} & set(path.split("/")):
        raise BadOption("the path of a socket names a file, without // and . and .., such as /run/app.sock", *at)
    if len(path.encode(errors="replace")) > LONGEST_PATH:
        raise BadOption(f"the path of a socket has at most {LONGEST_PATH} bytes", *at)
    return path
