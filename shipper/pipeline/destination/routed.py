"""The `RoutedState` of the plugin contract: the keyed state that is routed to a lane."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from shipper.pipeline import door
from shipper.pipeline.sources import Sources
from shipper.sdk.state import Change, Decided, Mark, Version
from shipper.spool.parts.state import State


class Routed:
    """See `RoutedState`; `on_moved` is called with lanes that may have something to do now."""

    def __init__(self, state: State, lane: int, sources: Sources, on_moved: Callable[[Collection[int]], None]) -> None:
        self._state, self._lane, self._sources, self._on_moved = state, lane, sources, on_moved

    async def marks(self) -> list[Mark] | None:
        return await self._state.marks_of_lane(self._lane)

    async def send_again(self, keys: Sequence[tuple[str, int]]) -> None:
        await self._state.send_again(self._lane, keys)
        self._on_moved([self._lane])

    async def decide(self, surplus: Sequence[Version]) -> Decided:
        news = self._sources.news
        claimed = [(one, self._sources.claim(one.owner, one.collection)) for one in surplus]
        wanted, waits = await self._state.decide(self._lane, claimed)
        self._on_moved([self._lane])
        return Decided(wanted, news if waits else None)

    async def adopt(self, changes: Sequence[Change]) -> None:
        door.check_changes(changes, {}, {})
        claimed = [(one, self._sources.claim(one.owner, one.collection)) for one in changes]
        self._on_moved(await self._state.adopt(self._lane, claimed))
        self._sources.adopted([(one.owner, one.collection) for one in changes])

    async def gone(self, versions: Sequence[Version]) -> list[Version]:
        return await self._state.gone_from_lane(self._lane, versions)

    async def place_above(self, place: int) -> None:
        await self._state.place_above(place)
