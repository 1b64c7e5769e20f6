"""The sets of keys that edges have, to be compared with what is at the edges; a few are kept between two questions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import trio

from shipper.plugin import InputContext
from shipper_plugins.relay import state
from shipper_plugins.relay.digests import Digests
from shipper_plugins.relay.principal.keys import Keys
from shipper_plugins.relay.state import Compared, Given, Limits, Named, owner_at, owner_from

MOST_SETS = 2
"""Sets of edges that are kept from one question to the next; others are read again."""
MOST_NAMED = 4096
"""Keys of one answer: an edge may have a key under many owners. The next comparison finds what is missing."""
_FIRST = b"\0"


class Sets:
    """What the edges of a door have."""

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
