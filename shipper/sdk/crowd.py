"""PUBLIC: newcomers, and the choice of one to close when there are too many. No I/O.

A peer that opens many silent connections displaces its own: the oldest of the address with the most is closed. An
address is that of a peer, or its first 64 bits in IPv6, since a host there controls the rest.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class Crowd(Generic[Connection]):
    """At most `most` connections."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[Connection, str] = {}
        self._of: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection, address: str) -> tuple[Connection, str] | None:
        """Adds a connection; removes and returns one that must be closed for it, with its address."""
        self._addresses[connection] = address
        self._of.setdefault(address, {})[connection] = None
        return self.displace() if len(self._addresses) > self._most else None

    def displace(self) -> tuple[Connection, str] | None:
        """Removes the connection to close first, and returns it with its address; None if there is none."""
        if not self._of:
            return None
        crowded = max(self._of, key=lambda address: len(self._of[address]))
        oldest = next(iter(self._of[crowded]))
        self.remove(oldest)
        return oldest, crowded

    def remove(self, connection: Connection) -> None:
        """Removes a connection, if present."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._of[address][connection]
            if not self._of[address]:
                del self._of[address]


def origin(host: str) -> str:
    """Returns the part of a host's address that it shares with other addresses of the same owner."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
