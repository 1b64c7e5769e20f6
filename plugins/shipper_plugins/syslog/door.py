"""Admits senders of a `syslog` input, and reads their messages. No I/O.

A door is immutable: a change of the settings replaces it in one assignment.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from shipper.plugin import Endpoint
from shipper.sdk.columns import Column
from shipper_plugins.syslog.block import Block, block
from shipper_plugins.syslog.message import Reading

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Peer:
    """The sender of a message; one at a socket in the file system has no address."""

    ip: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, endpoint: Endpoint, address: Any) -> Peer:
        """`address` is the result of `accept` or `recvfrom` for a socket of this endpoint."""
        if endpoint.path:
            return cls(path=endpoint.path)
        return cls(str(address[0]).removeprefix("::ffff:"), address[1])

    @property
    def source(self) -> bytes:
        """The text of `log.source.address`, escaped for JSON."""
        return orjson.dumps(str(self))[1:-1]

    def __str__(self) -> str:
        return self.path or (f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The settings that can change while sockets and connections stay."""

    reading: Reading
    max_bytes: int
    """The limit of a message."""
    max_connections: int
    idle_seconds: float
    allow_from: Sequence[Network] | None = None
    """The networks of permitted senders; None: all that can reach the socket."""
    tls: ssl.SSLContext | None = None

    def lets_in(self, peer: Peer) -> bool:
        """Returns whether this peer may send."""
        if self.allow_from is None or peer.path:
            return True
        address = ipaddress.ip_address(peer.ip.partition("%")[0])
        return any(address in network for network in self.allow_from)

    def block(self, frames: Sequence[bytes], sources: Column) -> Block:
        """Returns the documents of messages that arrive now; `sources` are those of `Peer.source`."""
        return block(self.reading, frames, sources, datetime.now(UTC))
