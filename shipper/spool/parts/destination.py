"""The destination of a lane: whether somebody there may have received events, and what it has confirmed.

If somebody may, none of the lane's events goes elsewhere, unless it is ordered (`contact` has the rule).
"""

from __future__ import annotations

from contextlib import suppress

from shipper.sdk.errors import NotBegun
from shipper.sdk.lineage import Confirmed
from shipper.spool import contact, lineages
from shipper.spool.ground import Ground, Part
from shipper.spool.inbox import PATIENT_SECONDS
from shipper.spool.store import StoreFailed


class Destination(Part):
    """That of one lane; it is the `Lineages` of the plugin contract too."""

    def __init__(self, ground: Ground, lane: int) -> None:
        super().__init__(ground)
        self._lane = lane
        self._is_reached = False
        """Whether it was stored, in this process."""

    async def begins(self) -> None:
        """A request begins; returns when that is durable. Raises NotBegun if it cannot be stored."""
        if not self._is_reached:
            try:
                await self.ground.urgent(lambda db: contact.note(db, self._lane))
            except StoreFailed:
                raise NotBegun("the state directory takes nothing") from None
            self._is_reached = True

    def answered(self) -> None:
        """An answer came, perhaps from an output that does not say when its requests begin."""
        if not self._is_reached:
            self._is_reached = True
            with suppress(StoreFailed):  # the process ends then, and some callers must not raise
                self.store.post(lambda db: contact.note(db, self._lane), urgent=True)

    async def known(self) -> dict[str, Confirmed]:
        """Returns what was confirmed, by lineage, with all that was noted before."""
        return await self.store.do(lambda db: lineages.of_lane(db, self._lane), patience=PATIENT_SECONDS)

    def note(self, lineage: str, confirmed: Confirmed) -> None:
        """Stores what a lineage has confirmed; it goes with the next commit, as do settlements that come after it."""
        with suppress(StoreFailed):
            self.store.post(lambda db: lineages.note(db, self._lane, lineage, confirmed), patience=PATIENT_SECONDS)
