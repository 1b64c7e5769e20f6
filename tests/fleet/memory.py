"""A store of a fleet in memory, with the faults of a real one; it obeys the laws of `shipper.fleet.store`.

    server = MemoryStore()                 the store itself: snapshot, restore, compact, down and up again
    client = server.client("web-1")        a `Store`; every client has faults of its own

Time is trio's, so a test under the autojump clock waits for nothing. No task runs in the background: what is due (the
end of a lease, the effect of a swap that comes late) happens before the next call, and wakes whoever watches for it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count, takewhile
from math import inf
from typing import Any, Literal, TypeVar

import outcome
import trio
from trio.testing import MockClock

from shipper.fleet.store import (
    ABSENT,
    SECONDS,
    Change,
    Compacted,
    Entry,
    Found,
    Lease,
    LeaseEnded,
    Listing,
    StoreRefused,
    StoreUnreachable,
    Swapped,
)

T = TypeVar("T")
Mishap = Literal["before", "after", "late"]
"""When a swap loses its answer: before its effect (it has none), after it, or before an effect that comes later."""
LARGEST = 1_400_000
"""Bytes of a value."""
LATE = SECONDS + 5
"""Seconds after which a late swap has its effect: its caller has given up."""
KEPT = 100_000
"""Changes that the store keeps for watches; older ones are compacted."""


@dataclass
class _Granted:
    seconds: float
    end: float


@dataclass(frozen=True)
class Snapshot:
    """All that the store had at one revision."""

    revision: int
    entries: dict[str, Entry]
    under: dict[str, int]
    leases: dict[int, float]


class MemoryStore:
    """The store; `client` returns a connection to it."""

    def __init__(self) -> None:
        self.revision = 1
        self.down = False
        """No client is answered, and no lease ends, as in a cluster without a quorum."""
        self._compacted = 0
        self._entries: dict[str, Entry] = {}
        self._under: dict[str, int] = {}
        """The lease of each key that has one; `_kinds` counts these keys by their part before the slash."""
        self._kinds: Counter[str] = Counter()
        self._leases: dict[int, _Granted] = {}
        self._ids = count(1)
        self._log: deque[tuple[float, Change]] = deque()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._late = 0
        self._order = count()
        self._watches: dict[str, set[_Watch]] = {}
        """By prefix."""
        self._turned = trio.Event()

    def client(self, name: str = "", rate: float = 1.0) -> Client:
        """Returns a new client. The store counts `rate` seconds of a lease for each second of this client: a rate
        above 1 is a client whose clock is slow."""
        return Client(self, name, rate)

    # faults of the store

    def stop(self) -> None:
        """Answers nobody until `start`; leases do not end meanwhile."""
        self.advance()
        self.down = True
        self.wake()

    def start(self) -> None:
        """Answers again; every lease begins anew, as after the election of a leader."""
        self.down = False
        self._refresh()
        self.wake()

    def compact(self) -> None:
        """Forgets all changes up to now: a watch that has not yet delivered them raises Compacted."""
        self.advance()
        self._compacted = self.revision
        self._log.clear()

    def snapshot(self) -> Snapshot:
        self.advance()
        leases = {id: lease.seconds for id, lease in self._leases.items()}
        return Snapshot(self.revision, dict(self._entries), dict(self._under), leases)

    def restore(self, snapshot: Snapshot) -> None:
        """Puts back an older state: revisions go back, leases come back refreshed, and every watch is broken."""
        self.revision = self._compacted = snapshot.revision
        self._entries, self._under = dict(snapshot.entries), dict(snapshot.under)
        self._kinds = Counter(map(_kind, self._under))
        self._leases = {id: _Granted(seconds, inf) for id, seconds in snapshot.leases.items()}
        self._log.clear()
        self._due.clear()
        self._late = 0
        self._refresh()
        for watch in self.watches:
            watch.break_("the store was restored")
        self.wake()

    # what clients do; each is one instant

    def read(self, key: str) -> Found:
        self.advance()
        return Found(self._entries.get(key), self.revision)

    def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        self.advance()
        found = [entry for key, entry in sorted(self._entries.items()) if key.startswith(prefix)]
        return Listing([replace(one, value=b"") for one in found] if keys_only else found, self.revision)

    def swap(
        self, key: str, value: bytes | None, expected: int, lease: int | None, renews: int | None = None
    ) -> Swapped:
        self.advance()
        if renews is not None and not self.renew(renews):
            raise LeaseEnded(f"the lease {renews} has ended")
        if value is not None and len(value) > LARGEST:
            raise StoreRefused(f"the value of {key} has {len(value)} bytes, of at most {LARGEST}")
        entry = self._entries.get(key)
        if (entry.revision if entry else ABSENT) != expected:
            return Swapped(False, entry, self.revision)
        if lease is not None and lease not in self._leases:
            raise LeaseEnded(f"the lease {lease} has ended")
        if value is None:
            self._remove([key] if entry else [])
            return Swapped(True, None, self.revision)
        self.revision += 1
        entry = Entry(key, value, self.revision, entry.created if entry else self.revision, lease is not None)
        self._entries[key] = entry
        self._loose(key)
        if lease is not None:
            self._under[key] = lease
            self._kinds[_kind(key)] += 1
        self._record(Change(key, entry, self.revision))
        return Swapped(True, entry, self.revision)

    def grant(self, seconds: float, rate: float) -> Lease:
        self.advance()
        id = next(self._ids)
        self._leases[id] = _Granted(seconds / rate, inf)
        self._prolong(id)
        return Lease(id, seconds)

    def renew(self, id: int) -> bool:
        self.advance()
        if id not in self._leases:
            return False
        self._prolong(id)
        return True

    def revoke(self, id: int) -> None:
        self.advance()
        self._end(id)

    def since(self, after: int, prefix: str) -> Sequence[tuple[float, Change]]:
        """Returns the changes after a revision, each with its time; raises Compacted if one is no longer known."""
        self.advance()
        if after < self._compacted or after > self.revision:
            raise Compacted(f"the changes after {after} are not known")
        newer = list(takewhile(lambda logged: logged[1].at > after, reversed(self._log)))
        return [logged for logged in reversed(newer) if logged[1].key.startswith(prefix)]

    # time

    def advance(self) -> None:
        """Does what is due by now."""
        while not self.down and self._due and self._due[0][0] <= trio.current_time():
            heapq.heappop(self._due)[2]()

    def next_due(self, prefix: str) -> float:
        """Returns when something is due next that may change a key that begins so."""
        if self.down or not self._due:
            return inf
        kinds = [kind for kind, keys in self._kinds.items() if keys]
        leased = any(kind.startswith(prefix) or prefix.startswith(kind) for kind in kinds)
        return self._due[0][0] if self._late or leased else inf

    def late(self, act: Callable[[], object]) -> None:
        """Does something after `LATE` seconds, unless the store is restored before."""
        self._late += 1

        def arrive() -> None:
            self._late -= 1
            act()

        self._later(LATE, arrive)
        self.wake()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (trio.current_time() + seconds, next(self._order), act))

    def _prolong(self, id: int) -> None:
        lease = self._leases[id]
        watched = lease.end == inf
        lease.end = trio.current_time() + lease.seconds
        if watched:
            self._later(lease.seconds, lambda: self._lapse(id))

    def _lapse(self, id: int) -> None:
        """Ends a lease, unless it was renewed: then looks again when it is to end."""
        lease = self._leases.get(id)
        if lease is None:
            return
        left = lease.end - trio.current_time()
        if left > 0:
            self._later(left, lambda: self._lapse(id))
        else:
            self._end(id)

    def _end(self, id: int) -> None:
        self._leases.pop(id, None)
        self._remove([key for key, lease in self._under.items() if lease == id])

    def _refresh(self) -> None:
        for id in self._leases:
            self._prolong(id)

    # changes

    def _remove(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        self.revision += 1
        for key in keys:
            del self._entries[key]
            self._loose(key)
            self._record(Change(key, None, self.revision))

    def _record(self, change: Change) -> None:
        self._log.append((trio.current_time(), change))
        if len(self._log) > KEPT:
            self._compacted = self._log.popleft()[1].at
        for prefix, watches in self._watches.items():
            if change.key.startswith(prefix):
                for watch in watches:
                    watch.wake()

    def _loose(self, key: str) -> None:
        """Takes a key from its lease."""
        if self._under.pop(key, None) is not None:
            self._kinds[_kind(key)] -= 1

    @property
    def watches(self) -> list[_Watch]:
        """All open watches."""
        return [*chain.from_iterable(self._watches.values())]

    def watched(self, watch: _Watch) -> None:
        """A watch begins."""
        self._watches.setdefault(watch.prefix, set()).add(watch)

    def unwatched(self, watch: _Watch) -> None:
        """A watch ends."""
        self._watches[watch.prefix].discard(watch)

    def wake(self) -> None:
        """Wakes every call and watch, because a fault has changed."""
        self.wake_calls()
        for watch in self.watches:
            watch.wake()

    def wake_calls(self) -> None:
        """Wakes every call, because a fault of one client has changed."""
        self._turned.set()
        self._turned = trio.Event()

    async def turn(self) -> None:
        """Returns when a fault has changed."""
        await self._turned.wait()


def jumping(main: Callable[[], Any], clock: object = None, **options: Any) -> None:
    """As `trio.run`, under a clock that jumps: for the parameter of a fixture, marked `trio(run=jumping)`. pytest-trio
    takes a clock from the arguments of a test alone, and not from what its fixtures ask for."""
    trio.run(main, clock=MockClock(autojump_threshold=0), **options)


def _kind(key: str) -> str:
    return key.partition("/")[0]


@dataclass
class Faults:
    """The faults of one client; each may be changed at any time."""

    cut: bool = False
    """Nothing reaches the store, nor comes back: each call raises StoreUnreachable after `SECONDS`."""
    delay: float = 0.0
    """Seconds that a call takes to the store, and as many back."""
    watch_delay: float = 0.0
    """Seconds by which a watch is behind."""
    stopped: bool = False
    """As by SIGSTOP: no call begins, returns or raises, and no watch yields."""
    swaps: deque[tuple[str, Mishap]] = field(default_factory=deque)
    """What befalls the next swap of a key that begins so; each entry befalls one swap."""


class Client:
    """A `Store`, and the faults of its connection."""

    largest = LARGEST
    relist = 30.0

    def __init__(self, server: MemoryStore, name: str, rate: float) -> None:
        self.server, self.name, self.rate = server, name, rate
        self.calls: Counter[str] = Counter()
        """How often each kind of call was made; `written` counts the swaps that changed something."""
        self.faults = Faults()
        self._watches: set[_Watch] = set()

    # faults

    def set(self, **faults: object) -> None:
        """Changes faults, such as `set(cut=True)`, and wakes the calls that they touch."""
        for name, value in faults.items():
            if not hasattr(self.faults, name):
                raise AttributeError(name)
            setattr(self.faults, name, value)
        self.server.wake_calls()
        for watch in self._watches:
            watch.wake()

    def compact(self) -> None:
        """Breaks the open watches of this client by Compacted."""
        for watch in self._watches:
            watch.break_("the changes were compacted")

    def lose(self, mishap: Mishap, prefix: str = "") -> None:
        """Loses the answer of the next swap of a key that begins with `prefix`."""
        self.faults.swaps.append((prefix, mishap))

    # a Store

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        return await self._call("read", lambda: self.server.read(key), seconds=seconds)

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        return await self._call("list", lambda: self.server.list(prefix, keys_only=keys_only))

    async def swap(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        ids = [None if one is None else one.id for one in (lease, renews)]

        def act() -> Swapped:
            swapped = self.server.swap(key, value, expected, *ids)
            self.calls["written"] += swapped.done
            return swapped

        return await self._call("swap", act, self._mishap(key))

    async def grant(self, seconds: float) -> Lease:
        return await self._call("grant", lambda: self.server.grant(seconds, self.rate))

    async def renew(self, lease: Lease) -> bool:
        return await self._call("renew", lambda: self.server.renew(lease.id))

    async def revoke(self, lease: Lease) -> None:
        await self._call("revoke", lambda: self.server.revoke(lease.id))

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[AsyncIterator[Sequence[Change]]]:
        self.calls["watch"] += 1
        watch = _Watch(self, prefix, after)
        self._watches.add(watch)
        self.server.watched(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            self.server.unwatched(watch)

    # the connection

    @property
    def connected(self) -> bool:
        return not (self.faults.cut or self.server.down)

    def _mishap(self, key: str) -> Mishap | None:
        for fault in self.faults.swaps:
            if key.startswith(fault[0]):
                self.faults.swaps.remove(fault)
                return fault[1]
        return None

    async def _call(self, kind: str, act: Callable[[], T], mishap: Mishap | None = None, seconds: float = SECONDS) -> T:
        self.calls[kind] += 1
        await self.running()
        with trio.move_on_after(seconds):
            await self._passage()
            if mishap == "late":
                self.server.late(lambda: outcome.capture(act))
            if mishap in ("late", "before"):
                await trio.sleep_forever()
            answer = outcome.capture(act)
            if mishap == "after":
                await trio.sleep_forever()
            await self._passage()
            await self.running()
            return answer.unwrap()
        await self.running()
        raise StoreUnreachable(f"{self.name or 'a client'}: the store did not answer for {seconds:g} s")

    async def running(self) -> None:
        """Returns when this client is not stopped."""
        await trio.lowlevel.checkpoint()
        while self.faults.stopped:
            await self.server.turn()

    async def _passage(self) -> None:
        """Passes the connection in one direction."""
        await trio.sleep(self.faults.delay)
        while not self.connected:
            await self.server.turn()


class _Watch:
    """The iterator of a watch."""

    def __init__(self, client: Client, prefix: str, after: int) -> None:
        self.client, self.server, self.prefix = client, client.server, prefix
        self._after = after
        self._broken = ""
        self._lost_at: float | None = None
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    def break_(self, why: str) -> None:
        """Raises Compacted at the next step."""
        self._broken = why
        self.wake()

    def __aiter__(self) -> _Watch:
        return self

    async def __anext__(self) -> Sequence[Change]:
        await self.client.running()
        while (changes := self._ready()) is None:
            self._event = trio.Event()
            with trio.move_on_at(self._deadline()):
                await self._event.wait()
            await self.client.running()
        return changes

    def _ready(self) -> Sequence[Change] | None:
        now = trio.current_time()
        if not self.client.connected:
            self._lost_at = now if self._lost_at is None else self._lost_at
            if now >= self._lost_at + SECONDS:
                raise StoreUnreachable(f"the watch of {self.prefix} was not resumed for {SECONDS:g} s")
            return None
        self._lost_at = None
        if self._broken:
            raise Compacted(self._broken)
        logged = self.server.since(self._after, self.prefix)
        ready = [change for at, change in logged if at + self.client.faults.watch_delay <= now]
        if ready or not logged:
            self._after = ready[-1].at if ready else self.server.revision
        return ready or None

    def _deadline(self) -> float:
        if self._lost_at is not None:
            return self._lost_at + SECONDS
        logged = self.server.since(self._after, self.prefix)
        return logged[0][0] + self.client.faults.watch_delay if logged else self.server.next_due(self.prefix)
