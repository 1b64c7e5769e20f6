"""The shipper as one input sees it, recording what the input does.

`emit` stores at once and in one step, as the spool's transaction does: a cancel strikes before it or not at all.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence

import trio

from shipper.plugin import (
    Asyncio,
    Backpressure,
    Batch,
    Code,
    Credential,
    Endpoint,
    Fields,
    Meters,
    Outdated,
    PluginFault,
)
from shipper.plugin.relay import Ranked
from shipper.plugin.state import Change, Kept, Mark, Quota, Version, answers_key, compact, digest_of, point_of
from shipper.sdk.sockets import Bound, bind


class RecordingInputContext:
    """An `InputContext` that keeps everything in memory. Its sockets are closed when it is forgotten."""

    aio: Asyncio
    """Only there if it was given."""

    def __init__(
        self,
        name: str = "test",
        *,
        credentials: Mapping[str, Credential] | None = None,
        positions: Mapping[str, bytes] | None = None,
        aio: Asyncio | None = None,
    ) -> None:
        self.name = name
        self.credentials: Mapping[str, Credential] = dict(credentials or {})
        self.batches: list[Batch] = []
        """What was stored, with the ids that the spool would have given."""
        self.stored: dict[str, bytes] = dict(positions or {})
        """The positions."""
        self.state: dict[tuple[str, str, str], tuple[bytes | None, Kept]] = {}
        """What was kept, by owner, collection and key: the document (None: deleted), and the last answer."""
        self.problems: list[str | None] = []
        """All that was reported, the newest last."""
        self.codes: list[str] = []
        """The code of each."""
        self.peers_turned_away = 0
        self.is_held = False
        """See `InputContext.is_held`."""
        self.is_complete = False
        """See `InputContext.complete`."""
        self.meters = Meters()
        if aio is not None:
            self.aio = aio
        self.delivers = True
        """See `InputContext.delivers`."""
        self.awaited: dict[str, bytes | None] = {}
        """The batches and versions whose answers are awaited, by key; a test gives the answers."""
        self._origin = os.urandom(16)
        self._full = False
        self._count = 0
        self._places = 0
        self._changed = trio.Event()
        self._bound: dict[Endpoint, Bound] = {}
        weakref.finalize(self, _close, self._bound)

    @property
    def count(self) -> int:
        """How many events were emitted."""
        return self._count

    @property
    def events(self) -> list[Fields]:
        """Every emitted event with the fields that the input gave, nested."""
        return [event for batch in self.batches for event in batch.whole()]

    @property
    def problem(self) -> str | None:
        """The last report."""
        return self.problems[-1] if self.problems else None

    @property
    def full(self) -> bool:
        """While it is set, `emit` waits, or raises Backpressure."""
        return self._full

    @full.setter
    def full(self, full: bool) -> None:
        self._full = full
        self._notify()

    async def wait_for(self, count: int) -> None:
        """Wait until at least `count` events were emitted."""
        await self.wait_until(lambda: self._count >= count)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is asked after each emit, report and change of `full`."""
        while not condition():
            await self._changed.wait()

    # -- the contract ---------------------------------------------------------------------------------------------

    async def emit(
        self,
        *batches: Batch,
        positions: Mapping[str, bytes | None] | None = None,
        wait: bool = True,
        expect: Mapping[str, bytes | None] | None = None,
        awaited: Sequence[str | None] = (),
        forgotten: Collection[str] = (),
    ) -> None:
        """See `InputContext.emit`."""
        await trio.lowlevel.checkpoint()
        if self._full and not wait:
            raise Backpressure("the test says that there is no room")
        await self.wait_until(lambda: not self._full)
        self._require(expect or {})
        for batch in batches:
            self.batches.append(batch.stored(self._origin, len(self.batches) + 1))
            self._count += batch.count
        self._place(positions or {})
        for key in forgotten:
            self.awaited.pop(key, None)
        self.awaited.update({key: None for key in awaited if key is not None})
        self._notify()

    async def answers(self, keys: Collection[str]) -> Mapping[str, bytes | None]:
        """See `InputContext.answers`."""
        await trio.lowlevel.checkpoint()
        return {key: self.awaited[key] for key in keys if key in self.awaited}

    async def keep(
        self,
        changes: Sequence[Change],
        positions: Mapping[str, bytes | None] | None = None,
        expect: Mapping[str, bytes | None] | None = None,
        *,
        wait: bool = True,
        quota: Quota | None = None,
        awaited: bool = False,
    ) -> tuple[Kept, ...]:
        """See `InputContext.keep`."""
        await trio.lowlevel.checkpoint()
        if self._full and not wait:
            raise Backpressure("the test says that there is no room")
        await self.wait_until(lambda: not self._full)
        self._require(expect or {})
        kept = tuple([self._answered(change, self._keep(change, quota), awaited=awaited) for change in changes])
        self._place(positions or {})
        self._notify()
        return kept

    def _keep(self, change: Change, quota: Quota | None) -> Kept:
        if change.document is not None and compact(change.document) != change.document:
            raise PluginFault("a document is not compact")
        name = change.owner, change.collection, change.key
        digest, (document, has) = digest_of(change.document), self.state.get(name, (None, None))
        is_same = document == change.document if has is None else has.digest == digest
        if change.place is None and is_same:
            return (has or Kept(0, digest, False, False))._replace(is_new=False, fenced=False)
        if change.place is not None and has is not None and change.place <= has.place:
            is_fenced = change.place < has.place or not is_same
            return has._replace(is_new=False, fenced=is_fenced)
        if quota is not None and change.document is not None and not self._has_room(name, change.document, quota):
            return Kept(0, digest, False, False, is_full=True)
        self._places += 1
        kept = Kept(self._places if change.place is None else change.place, digest, True, False)
        self.state[name] = change.document, kept
        return kept

    def _answered(self, change: Change, kept: Kept, *, awaited: bool) -> Kept:
        key = answers_key(change.owner, change.collection, change.key, kept.place)
        if awaited and not kept.fenced and not kept.is_full:
            begin = key.rpartition("/")[0] + "/"
            self.awaited = {one: said for one, said in self.awaited.items() if one == key or not one.startswith(begin)}
            self.awaited.setdefault(key, None)
        if kept.fenced or key not in self.awaited:
            return kept
        said = self.awaited[key]
        return kept._replace(awaited=said is None, final=None if said is None else Ranked(said[0]))

    def _has_room(self, name: tuple[str, str, str], document: bytes, quota: Quota) -> bool:
        has = {key: one for key, (one, _) in self.state.items() if key[0] == name[0] and one is not None} | {
            name: document
        }
        return len(has) <= quota.keys and sum(map(len, has.values())) <= quota.bytes

    async def marks(self, owner: str) -> list[Mark]:
        """See `InputContext.marks`."""
        await trio.lowlevel.checkpoint()
        return [
            Mark(of, point_of(collection, key), kept.place, kept.digest, document is None)
            for (of, collection, key), (document, kept) in self.state.items()
            if of == owner or of.startswith(f"{owner}/")
        ]

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        """See `InputContext.versions`."""
        await trio.lowlevel.checkpoint()
        wanted = frozenset(keys)
        return [
            Version(of, collection, key, kept.place, kept.digest, False)
            for (of, collection, key), (document, kept) in self.state.items()
            if document is not None and (of, point_of(collection, key)) in wanted
        ]

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        """See `InputContext.documents`."""
        found: list[tuple[Version, bytes]] = []
        for number, key in enumerate(keys):
            those = await self.versions([key])
            more = [(one, self.state[one.owner, one.collection, one.key][0] or b"") for one in those]
            if number and sum(len(document) for _, document in found + more) > most:
                return found, number
            found += more
        return found, len(keys)

    def complete(self, is_complete: bool) -> None:
        """See `InputContext.complete`."""
        self.is_complete = is_complete
        self._notify()

    def _require(self, expect: Mapping[str, bytes | None]) -> None:
        for key, expected in expect.items():
            if self.stored.get(key) != expected:
                raise Outdated(key)

    def _place(self, positions: Mapping[str, bytes | None]) -> None:
        for key, position in positions.items():
            if position is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = position

    @property
    def chunk_bytes(self) -> int:
        """See `InputContext.chunk_bytes`."""
        return 1 << 20

    def no_room(self, size: int = 0) -> str | None:
        """See `InputContext.no_room`."""
        return "the queue is full" if self._full else None

    async def positions(self, prefix: str = "") -> dict[str, bytes]:
        """See `InputContext.positions`."""
        await trio.lowlevel.checkpoint()
        return {key: position for key, position in self.stored.items() if key.startswith(prefix)}

    async def position(self, key: str) -> bytes | None:
        """See `InputContext.position`."""
        await trio.lowlevel.checkpoint()
        return self.stored.get(key)

    def report(self, problem: str | None, *, code: str = Code.INPUT_DEGRADED) -> None:
        """See `InputContext.report`."""
        self.problems.append(problem)
        self.codes.append(Code.OK if problem is None else code)
        self._notify()

    def turned_away(self, peers: int) -> None:
        """See `InputContext.turned_away`."""
        self.peers_turned_away += peers

    async def listen(
        self, endpoint: Endpoint, *, mode: int | None = None, receive_buffer: int | None = None
    ) -> socket.socket:
        """See `InputContext.listen`; the host is an address, or loopback where there is none."""
        await trio.lowlevel.checkpoint()
        if endpoint not in self._bound:
            family = socket.AF_UNIX if endpoint.path else socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
            address = endpoint.path or (endpoint.host or "127.0.0.1", endpoint.port)
            self._bound[endpoint] = bind(endpoint, family, address, mode=mode, receive_buffer=receive_buffer)
        return self._bound[endpoint].socket

    def close(self) -> None:
        """Close its sockets now."""
        _close(self._bound)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _close(bound: dict[Endpoint, Bound]) -> None:
    for one in bound.values():
        one.remove()
        one.close()
    bound.clear()
