"""Who may send to a `syslog` input, and how his messages are read. No I/O.

A door is immutable: a change of the settings replaces it in one assignment.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shipper.plugin import Endpoint, Fields
from shipper_plugins.inputs.syslog_message import Reading

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a message comes from; a peer at a socket in the file system has no address."""

    ip: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, endpoint: Endpoint, address: Any) -> Peer:
        """`address` is what `accept` or `recvfrom` gave for a socket of this endpoint."""
        if endpoint.path:
            return cls(path=endpoint.path)
        return cls(str(address[0]).removeprefix("::ffff:"), address[1])

    def __str__(self) -> str:
        """As `log.source.address`."""
        return self.path or (f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What a change of the settings can replace while sockets and connections stay."""

    reading: Reading
    max_bytes: int
    """Of a message."""
    max_connections: int
    idle_seconds: float
    allow_from: Sequence[Network] | None = None
    """Whose messages are taken; None: of everybody who can reach the socket."""
    tls: ssl.SSLContext | None = None

    def lets_in(self, peer: Peer) -> bool:
        """Whether messages of this peer are taken."""
        if self.allow_from is None or peer.path:
            return True
        address = ipaddress.ip_address(peer.ip.partition("%")[0])
        return any(address in network for network in self.allow_from)

    def event(self, body: bytes, peer: Peer, *, is_cut: bool = False) -> Fields | None:
        """The event of a message that comes now; None if there is nothing in it."""
        event = self.reading.event(body, datetime.now(UTC), is_cut=is_cut)
        if event is not None:
            event.setdefault("log", {})["source"] = {"address": str(peer)}
        return event
