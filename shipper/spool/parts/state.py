"""Keyed state: what inputs give, and how it agrees with what another side has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from shipper.sdk.state import Change, Mark, Version
from shipper.spool import holdings, keyed, places, resync
from shipper.spool.figures import Figures
from shipper.spool.ground import Part, query, urgent
from shipper.spool.keyed import Admitted
from shipper.spool.queue import Moved
from shipper.spool.resync import Claim

Item = TypeVar("Item")


class State(Part):
    """Keyed state."""

    figures = query(keyed.figures)
    holdings = query(holdings.load)
    place_above = urgent(places.raise_above)

    async def keep(
        self,
        arrival: keyed.Arrival,
        abandoned: Callable[[Admitted], object] = lambda admitted: None,
        *,
        wait: bool = True,
    ) -> Admitted:
        """Stores versions of keyed state with their input's positions. Raises queue.NotActive or Outdated.

        `wait` and `abandoned` are as those of `Queue.enter`.
        """
        op = partial(keyed.keep, sealer=self.sealer, now=self.ground.now(), arrival=arrival)

        def count_abandoned(counted: tuple[Admitted, Figures]) -> None:
            abandoned(_count(*counted))

        return _count(*await self.store.append(self.ground.counted(op), count_abandoned, wait=wait))

    async def marks_of_lane(self, lane: int) -> list[Mark] | None:
        """Returns the keys of the inputs that are routed to an active lane; None: there is no such input."""
        inputs = await self.store.read(partial(resync.inputs_of, lane=lane))
        pages = [await self._marks(partial(resync.of_input, input=input), 0) for input in inputs]
        return list(chain.from_iterable(pages)) if inputs else None

    async def marks_of_owner(self, owner: str) -> list[Mark]:
        """Returns the keys of an owner and of those below it."""
        return await self._marks(partial(resync.of_owner, owner=owner), None)

    async def _marks(self, page: Callable[..., tuple[list[Mark], Any]], after: Any) -> list[Mark]:
        found, after = await self.store.read(partial(page, after=after))
        while after is not None:
            marks, after = await self.store.read(partial(page, after=after))
            found += marks
        return found

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        """Returns the current versions of keys, by owner and point, that are not deleted; some may be missing."""
        found: list[Version] = []
        for chunk in _chunks(keys):
            found += await self.store.read(partial(resync.versions, sealer=self.sealer, keys=chunk))
        return found

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        """Returns current versions with their documents, as `versions` does, and how many of the keys were read.

        The documents have `most` bytes together, unless the first alone has more.
        """
        return await self.store.read(partial(resync.documents, sealer=self.sealer, keys=keys, most=most))

    async def gone_from_lane(self, lane: int, versions: Sequence[Version]) -> list[Version]:
        """Returns those of these versions that are in no slot of a lane."""
        found: list[Version] = []
        for chunk in _chunks(versions):
            found += await self.store.read(partial(resync.gone, lane=lane, versions=chunk))
        return found

    async def send_again(self, lane: int, keys: Sequence[tuple[str, int]]) -> None:
        """Puts the current versions of keys, by owner and point, into slots of a lane."""
        now = self.ground.now()
        for chunk in _chunks(keys):
            await self._move(partial(resync.send_again, now=now, lane=lane, keys=chunk))

    async def decide(self, lane: int, surplus: Sequence[tuple[Version, Claim | None]]) -> tuple[list[Version], bool]:
        """Has keys agree of which the destination of a lane has versions that are not here; see `resync.decide`.

        Returns those that are wanted from there, and whether some wait for an input.
        """
        now, sealer, since = self.ground.now(), self.sealer, self.ground.first_epoch
        wanted, waits = list[Version](), False
        for chunk in _chunks(surplus):
            op = partial(resync.decide, sealer=sealer, now=now, lane=lane, surplus=chunk, since=since)
            decision, figures = await self.store.do(self.ground.counted(op))
            figures.moved(decision.moved)
            wanted += decision.wanted
            waits |= decision.waits
        return wanted, waits

    async def adopt(self, lane: int, changes: Sequence[tuple[Change, Claim | None]]) -> frozenset[int]:
        """Takes versions that the destination of a lane has; returns the lanes that have something to do since."""
        now = self.ground.now()
        lanes: set[int] = set()
        for chunk in _chunks(changes):
            lanes |= await self._move(partial(resync.adopt, sealer=self.sealer, now=now, lane=lane, changes=chunk))
        return frozenset(lanes)

    async def _move(self, op: Callable[[sqlite3.Connection], list[Moved]]) -> set[int]:
        moved, figures = await self.store.do(self.ground.counted(op))
        figures.moved(moved)
        return {each.lane for each in moved}


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[at : at + resync.MOST_KEYS] for at in range(0, len(items), resync.MOST_KEYS))


def _count(admitted: Admitted, figures: Figures) -> Admitted:
    figures.moved(admitted.moved)
    return admitted
