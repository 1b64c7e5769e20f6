"""PUBLIC: newcomers, and which of them must go when they are too many. No I/O.

Whoever opens connections and says nothing displaces his own: the one to go is the oldest of the address that has the
most. An address is that of a peer, or the 64 bits before it in IPv6, as a host there has the rest for itself.
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
        """Take a connection in; returns one that must go instead, with its address, and has forgotten it."""
        self._addresses[connection] = address
        self._of.setdefault(address, {})[connection] = None
        return self.displace() if len(self._addresses) > self._most else None

    def displace(self) -> tuple[Connection, str] | None:
        """Forget the one that must go first, and return it with its address; None if there is none."""
        if not self._of:
            return None
        crowded = max(self._of, key=lambda address: len(self._of[address]))
        oldest = next(iter(self._of[crowded]))
        self.remove(oldest)
        return oldest, crowded

    def remove(self, connection: Connection) -> None:
        """Forget a connection, if it is here."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._of[address][connection]
            if not self._of[address]:
                del self._of[address]


def origin(host: str) -> str:
    """What connections from a host have in common with others of the same owner."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
