"""The `Lineages` of the plugin contract: what the state directories of a lane's destination have confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from shipper.plugin import Confirmed
from shipper.spool.spool import Spool


class LaneLineages:
    """See `Lineages`."""

    def __init__(self, spool: Spool, lane: int) -> None:
        self._spool, self._lane = spool, lane

    async def known(self) -> Mapping[str, Confirmed]:
        return await self._spool.lineages(self._lane)

    def note(self, lineage: str, confirmed: Confirmed) -> None:
        self._spool.note_confirmed(self._lane, lineage, confirmed)
