"""The keyed state of one edge: its versions are stored, refused or fenced, and compared with what the edge has.

`relay_edges` decides whose request it is, and that its session is the newest one, which the storing transaction checks
again. Nothing is remembered of a version but its key; of one that is refused for ever, its place, as a position of the
input, for at most as many as the edge may have keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import trio

from shipper.plugin import Backpressure, Change, InputContext, Kept
from shipper_plugins.relay import state
from shipper_plugins.relay.digests import Digests
from shipper_plugins.relay.state import (
    Arrived,
    Compared,
    Given,
    Limits,
    Named,
    Other,
    Refusal,
    StateAnswered,
    owner_at,
    owner_from,
)

REFUSED: Final = "REFUSED/"
"""The link in the names of these positions; no name of an edge has capital letters."""
MOST_SETS = 2
"""Sets of edges that are kept from one question to the next; others are read again."""
MOST_NAMED = 4096
"""Keys of one answer: an edge may have a key under many owners. The next comparison finds what is missing."""
_FIRST = b"\0"


class Full(Exception):
    """There is no room on the disk now."""


class Keys:
    """The keyed state of an edge: its refusals, by the name of the key."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.refused: dict[str, Refusal] = {}
        self.reading = trio.Lock()
        """Held by the comparison of this edge that reads its keys, so that the next turn is another edge's."""

    def load(self, positions: Mapping[str, bytes]) -> None:
        """Loads earlier refusals; an unreadable one is forgotten, and made again when its version comes again."""
        self.refused.clear()
        for key, stored in positions.items():
            try:
                self.refused[key.rpartition("/")[2]] = Refusal.unpack(stored)
            except ValueError:
                continue

    @property
    def prefix(self) -> str:
        """Returns the positions of the refusals."""
        return f"{REFUSED}{self._name}/"

    async def keep(
        self,
        context: InputContext,
        arrived: Sequence[Arrived],
        limits: Limits,
        expect: Mapping[str, bytes | None],
        *,
        awaits: bool = False,
    ) -> StateAnswered:
        """Stores versions; if it `awaits`, new ones are answered when all outputs have answered.

        Raises Outdated if other positions are stored than expected, Full, or PluginFault.
        """
        others: dict[int, Other] = {}
        changes: dict[int, Change] = {}
        refused: dict[str, Refusal | None] = {}
        for at, one in enumerate(arrived):
            name = state.name_of(one.version)
            before = self.refused.get(name)
            if before is not None and one.version.place < before.place:
                others[at] = Other(at, "fenced", before.place, before.digest.hex())
            elif (code := _refused(one, limits)) is not None:
                others[at] = Other(at, code)
                if before is not None or len(self.refused) + len(refused) < limits.quota.keys:
                    refused[name] = state.refusal_of(one, limits)
            else:
                version = one.version
                owner = owner_at(self._name, version.owner)
                changes[at] = Change(version.collection, version.key, one.document, owner, version.place)
                if before is not None:
                    refused[name] = None
        kept = await self._store(context, list(changes.values()), limits, refused, expect, awaits=awaits)
        others |= {at: other for at, one in zip(changes, kept, strict=True) if (other := _other(at, one)) is not None}
        return state.answered(others)

    async def put(
        self,
        context: InputContext,
        collection: str,
        key: str,
        document: bytes | None,
        limits: Limits,
        expect: Mapping[str, bytes | None],
    ) -> Kept | state.Code:
        """Stores the document of a program's key, or returns the reason why not. Raises as `keep` does."""
        code = limits.refuses(collection, len(document or b""))
        if code is not None:
            return code
        (kept,) = await self._store(context, [Change(collection, key, document, self._name)], limits, {}, expect)
        return "full" if kept.is_full else kept

    async def _store(
        self,
        context: InputContext,
        changes: Sequence[Change],
        limits: Limits,
        refused: Mapping[str, Refusal | None],
        expect: Mapping[str, bytes | None],
        *,
        awaits: bool = False,
    ) -> tuple[Kept, ...]:
        positions = {self.prefix + name: None if one is None else one.pack() for name, one in refused.items()}
        try:
            kept = await context.keep(changes, positions, expect, wait=False, quota=limits.quota, awaited=awaits)
        except Backpressure:
            raise Full from None
        self.refused |= {name: one for name, one in refused.items() if one is not None}
        for name in [name for name, one in refused.items() if one is None]:
            del self.refused[name]
        return kept


def _refused(one: Arrived, limits: Limits) -> state.Code | None:
    if one.is_withheld:
        return limits.refuses(one.version.collection, limits.max_document_bytes + 1)
    return limits.refuses(one.version.collection, len(one.document or b""))


def _other(at: int, kept: Kept) -> Other | None:
    if kept.is_full:
        return Other(at, "full")
    if kept.fenced:
        return Other(at, "fenced", kept.place, kept.digest.hex())
    if kept.awaited:
        return Other(at, "awaited")
    if kept.final is not None:
        return Other(at, "final", answer=kept.final)
    return None if kept.is_new else Other(at, "duplicate")


class Sets:
    """What edges have, to be compared; a few sets are kept between two questions."""

    def __init__(self, context: InputContext) -> None:
        self._context = context
        self._sets: dict[str, _Set] = {}
        self._building = trio.CapacityLimiter(1)

    async def answer(self, name: str, keys: Keys, limits: Limits, question: bytes) -> Compared:
        """Returns the answer to a question. Raises `digests.Unreadable`."""
        found = await self._get(name, keys, limits, question)
        answer = found.digests.answer(question)
        if answer == _FIRST:
            self._sets.pop(name, None)
        return Compared(answer, found.highest, found.highest_of_all)

    async def named(self, name: str, keys: Keys, limits: Limits, points: Sequence[int]) -> Named:
        """Returns the names of an edge's keys at these points, at most `MOST_NAMED`."""
        found = await self._get(name, keys, limits)
        versions = await self._context.versions(found.at(points))
        return Named([(owner_from(name, one.owner), one.collection, one.key, one.place) for one in versions])

    async def given(self, name: str, keys: Sequence[tuple[str, int]]) -> Given:
        """Returns the documents of the first of these keys of an edge."""
        own = [(owner_at(name, owner), point) for owner, point in keys]
        found, read = await self._context.documents(own, state.MOST_GIVEN)
        return Given(
            read,
            [
                (owner_from(name, one.owner), one.collection, one.key, one.place, document.decode())
                for one, document in found
            ],
        )

    def forget(self, name: str) -> None:
        """The edge is forgotten; its set is read again."""
        self._sets.pop(name, None)

    async def _get(self, name: str, keys: Keys, limits: Limits, question: bytes = b"") -> _Set:
        found = None if question.startswith(_FIRST) else self._sets.pop(name, None)
        if found is None:
            async with keys.reading, self._building:
                found = await self._read(name, keys, limits, question)
        self._sets.pop(name, None)
        self._sets[name] = found
        for oldest in list(self._sets)[:-MOST_SETS]:
            del self._sets[oldest]
        return found

    async def _read(self, name: str, keys: Keys, limits: Limits, question: bytes) -> _Set:
        """Where both sides are the same, nobody asks for owners."""
        marks = await self._context.marks(name)
        refused = list(keys.refused.values())

        def build() -> _Set:
            digests = state.digests_of(marks, refused, limits, edge=name)
            own = [one.place for one in refused if not one.owner]
            below = [one.place for one in refused] + [mark.place for mark in marks]
            highest = max([*own, state.highest(marks, name)])
            owners: list[tuple[int, str]] = []
            if not digests.is_same(question):
                digests.in_order()
                owners = sorted((mark.point, mark.owner) for mark in marks if not mark.deleted)
            return _Set(digests, highest, max(below, default=0), owners)

        return await trio.to_thread.run_sync(build)


class _Set(NamedTuple):
    """What an edge has: the highest place of its own keys and that of all, and the point and owner of each key, in
    order."""

    digests: Digests
    highest: int
    highest_of_all: int
    owners: Sequence[tuple[int, str]]

    def at(self, points: Sequence[int]) -> list[tuple[str, int]]:
        """Returns the keys at these points, by owner and point, at most `MOST_NAMED`."""
        found: list[tuple[str, int]] = []
        for point in points:
            begin, end = bisect_left(self.owners, (point, "")), bisect_left(self.owners, (point + 1, ""))
            found += [(owner, point) for _, owner in self.owners[begin : min(end, begin + MOST_NAMED)]]
        return found[:MOST_NAMED]
