"""What keeps a member from taking part, as its host shows it."""

from __future__ import annotations

from collections.abc import Iterable

from shipper.fleet.member.machine import Member
from shipper.fleet.store import StoreError, StoreRefused
from shipper.membership.causes import Causes

UNREACHABLE, REFUSED, SLOW, UNSAVED = "store_unreachable", "store_refused", "store_slow", "fleet_unsaved"
APART, TAKEN, OUT, FORGED, HELD = "store_restored", "name_taken", "fleet_left", "unauthentic", "fleet_held"
UNUSABLE = "version_unusable"
"""Causes of troubles."""
_PLACES = {"apart": APART, "taken": TAKEN, "out": OUT}
_REMEDY = {
    APART: "this host runs on and acknowledges nothing; if the store was restored: `shipper fleet accept-restore`; "
    "if another supervisor uses a copy of this directory: give it another member name; once it has stopped for good, "
    "restart this one, which joins the fleet anew",
    TAKEN: "nothing of the fleet is taken over before its lease is over; stop it, or give one of them another `member`",
    OUT: "restart this supervisor to join the fleet again",
}
_PUBLISH = (
    "this host runs on with the version before, and tries again every lease; publish the policy again (`shipper fleet "
    "publish`, or `rollback` to a version that can be read)"
)


class Troubles(Causes[StoreError]):
    """What keeps a member of a fleet from taking part."""

    of_failures = (REFUSED, UNREACHABLE)

    @staticmethod
    def cause_of(error: StoreError) -> str:
        """Returns whether the store has refused, or did not answer."""
        return REFUSED if isinstance(error, StoreRefused) else UNREACHABLE

    def slow(self, message: str | None) -> None:
        """Notes that the store answers too late for the lease; None: it is over."""
        self._put(SLOW, message)

    def unsaved(self, message: str | None) -> None:
        """Notes that the disk took nothing; None: it is over."""
        self._put(UNSAVED, message)

    def look_at(self, member: Member, forged: Iterable[str]) -> None:
        """Notes what the state of a member, and forged records, keep it from."""
        for place, cause in _PLACES.items():
            what = f"the store is not as this host knows it: {member.why}" if place == "apart" else member.why
            self._put(cause, f"{what}; {_REMEDY[cause]}" if member.place == place else None)
        self._put(HELD, f"nothing is sent without a lease: {member.held}" if member.held else None)
        self._put(FORGED, "; ".join(forged) or None)
        self._put(UNUSABLE, f"{member.unusable}; {_PUBLISH}" if member.unusable else None)
