"""The keyed state that is routed to a lane, as its output sees it: the `RoutedState` of the plugin contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shipper.plugin import Mark, Version
from shipper.spool.spool import Spool


class Routed:
    """See `RoutedState`; `on_moved` is called when the lane may have been given something to do."""

    def __init__(self, spool: Spool, lane: int, on_moved: Callable[[], None]) -> None:
        self._spool, self._lane, self._on_moved = spool, lane, on_moved

    async def marks(self) -> list[Mark] | None:
        return await self._spool.marks_of_lane(self._lane)

    async def send_again(self, keys: Sequence[tuple[str, int]]) -> None:
        await self._spool.send_again(self._lane, keys)
        self._on_moved()

    async def delete(self, surplus: Sequence[Version]) -> None:
        await self._spool.delete_surplus(self._lane, surplus)
        self._on_moved()

    async def place_above(self, place: int) -> None:
        await self._spool.place_above(place)
