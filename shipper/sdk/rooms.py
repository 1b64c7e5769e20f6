"""PUBLIC: decides which connections a server keeps, and which it closes when there are too many. No I/O.

    accepted ──> newcomer ──authenticated, or a valid request──> client

Newcomers and clients have separate limits. A newcomer above the limit displaces another newcomer (chosen by `Crowd`),
never a client; a client above the limit displaces the client that has been idle for longest, of the address with the
most. Where none is idle, it displaces the oldest of an address that has more than half of all, unless that is its own,
and is refused otherwise. So peers that are silent or slow, or have no key, only take room from their own kind, and a
peer with a key does not take all of it. Displaced newcomers are counted, since they are the sign of a flood. Without a
free descriptor each new connection displaces another one, by the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from shipper.sdk.crowd import Crowd

Connection = TypeVar("Connection", bound=Hashable)


class Rooms(Generic[Connection]):
    """At most so many `clients` and `newcomers`. `drop` closes a connection; `crowded` is called when one is
    displaced."""

    def __init__(
        self, clients: int, newcomers: int, *, drop: Callable[[Connection], None], crowded: Callable[[], None]
    ) -> None:
        self._most, self._drop, self._crowded = clients, drop, crowded
        self._newcomers: Crowd[Connection] = Crowd(newcomers)
        self._clients: dict[Connection, None] = {}
        """In the order in which they were let in."""
        self._addresses: dict[Connection, str] = {}
        self._busy: set[Connection] = set()
        self._turned_away: Counter[str] = Counter()
        self._short: str | None = None
        """Why connections could not be accepted, since the last report."""

    def add(self, newcomer: Connection, address: str) -> None:
        """Adds a newcomer; `address` is the `crowd.origin` of its peer."""
        self._addresses[newcomer] = address
        if displaced := self._newcomers.add(newcomer, address):
            self._drop_newcomer(*displaced)

    def remove(self, connection: Connection) -> None:
        """Removes a connection that has ended."""
        self._newcomers.remove(connection)
        self._clients.pop(connection, None)
        self._addresses.pop(connection, None)

    def let_in(self, connection: Connection) -> bool:
        """Makes a connection the newest client; returns False if there is no room for it."""
        if connection not in self._clients and len(self._clients) >= self._most:
            displaced = self._to_displace(connection)
            if displaced is None:
                return False
            self._drop_client(displaced)
        self._newcomers.remove(connection)
        self._clients.pop(connection, None)
        self._clients[connection] = None
        return True

    def are_full(self, newcomer: Connection) -> bool:
        """Whether `let_in` would refuse this one."""
        return len(self._clients) >= self._most and self._to_displace(newcomer) is None

    @contextmanager
    def busy(self, connection: Connection) -> Iterator[None]:
        """Marks a connection as not idle within this block."""
        self.begin(connection)
        try:
            yield
        finally:
            self.end(connection)

    def begin(self, connection: Connection) -> None:
        """Marks a connection as not idle, until `end`."""
        self._busy.add(connection)

    def end(self, connection: Connection) -> None:
        self._busy.discard(connection)

    def is_busy(self, connection: Connection) -> bool:
        return connection in self._busy

    def make_room(self, short: str) -> None:
        """Closes a newcomer or an idle client, for lack of a descriptor for the next connection."""
        self._short = short
        self._crowded()
        if displaced := self._newcomers.displace():
            self._drop_newcomer(*displaced)
        elif idle := self._idle():
            self._drop_client(idle)

    def turn_away(self, address: str) -> None:
        """Counts a connection that was closed for lack of room."""
        self._turned_away[address] += 1
        self._crowded()

    def tell(self) -> tuple[int, str]:
        """Returns how many were turned away since the last call, and a sentence about it."""
        text, count = _told(self._turned_away, self._short), self._turned_away.total()
        self._turned_away.clear()
        self._short = None
        return count, text

    def _address(self, connection: Connection) -> str:
        return self._addresses.get(connection, "")

    def _idle(self) -> Connection | None:
        """Returns the client that has been idle for longest, of the address with the most clients."""
        counts = Counter(map(self._address, self._clients))
        idle = (client for client in self._clients if client not in self._busy)
        return max(idle, key=lambda client: counts[self._address(client)], default=None)

    def _to_displace(self, newcomer: Connection) -> Connection | None:
        """Returns the client whose place another one gets; None if it gets none."""
        if (idle := self._idle()) is not None or not self._clients:
            return idle
        [(crowd, most)] = Counter(map(self._address, self._clients)).most_common(1)
        if crowd == self._address(newcomer) or most <= self._most / 2:
            return None
        return next(client for client in self._clients if self._address(client) == crowd)

    def _drop_newcomer(self, newcomer: Connection, address: str) -> None:
        self._drop(newcomer)
        self.turn_away(address)

    def _drop_client(self, client: Connection) -> None:
        del self._clients[client]
        self._drop(client)


def _told(turned_away: Counter[str], short: str | None) -> str:
    return "; ".join(filter(None, (short, _sentence(turned_away) if turned_away else None)))


def _sentence(turned_away: Counter[str]) -> str:
    [(address, most)] = turned_away.most_common(1)
    whom = f"all from {address}" if most == turned_away.total() else f"{most} of them from {address}"
    said = "connections closed to make room for others before they showed a valid request"
    return f"{said}: {turned_away.total()}, {whom}; see who connects there"
