"""Whether this process is the member: its place, and the steps that take the name, keep it and give it up.

    from                   when                                         to
    any but out            a look finds nobody else under the name      ours
    unknown, taken, ours   a look finds another holder of the Lease     taken, or apart if it was registered
    apart                  likewise                                     apart
    ours                   the status `left` is written                 out
    taken, apart           it leaves                                    out

A look is due at the start, after each failure, where somebody else was faster, and when the other Lease may be over.
"""

from __future__ import annotations

from typing import Literal

from shipper.apiserver.objects import Object
from shipper.kubernetes.member.claim import Name
from shipper.kubernetes.member.own import Own
from shipper.kubernetes.member.registering import adjusted, created
from shipper.kubernetes.member.steps import Adjust, Create, Facts, Found, Hold, Look, Terms
from shipper.membership.steps import Rest

Place = Literal["unknown", "taken", "apart", "ours", "out"]

SOON = 1.0
"""Seconds before another attempt where somebody else was faster."""


class Standing:
    """The place, the own ShipperMember and the Lease, as they are known."""

    def __init__(self, terms: Terms, directory: str) -> None:
        self.place: Place = "unknown"
        self.why = ""
        """Why it is taken, apart or out, in a sentence."""
        self.own, self.name = Own(), Name(terms)
        self.directory = directory
        """The id of the state directory now."""
        self.is_leaving = False
        """Whether this member leaves for good."""
        self.is_reported = False
        """Whether the API server has the status of this process."""
        self.follows = False
        """Whether the watches of policies, of Secrets and of the own ShipperMember run: from the registration on, for
        ever. Their first lists must begin after this is True."""
        self._terms, self._former = terms, directory
        self._looking = True
        self._look_at: float | None = None
        self._paused = 0.0
        self._adjusted = False
        self.renew_at = 0.0
        """When the Lease is to be renewed."""
        self._has_renewed = False
        """Whether the last request was a renewal: others have their turn then."""

    @property
    def has_name(self) -> bool:
        """Whether this process has the Lease."""
        return self.name.is_ours(self.directory)

    @property
    def registered(self) -> bool:
        """Whether the API server has the status of this process, and nothing speaks against it."""
        return self.place == "ours" and self.is_reported and self.has_name

    # -- steps ---------------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Brings what the watch has shown of the own ShipperMember up to date."""
        if self.own.settle(now) or self.own.gone:
            self._looking = True

    def look(self, now: float) -> Rest | Look | None:
        """Returns the look that is due, or the pause before it; None if neither is."""
        if now < self._paused:
            return Rest(self._paused)
        if self._looking or (self._look_at is not None and now >= self._look_at):
            self._looking = True
            return Look()
        return None

    def stand_by(self) -> Rest:
        """Returns the wait for the Lease of another holder."""
        return Rest(self._look_at)

    def enter(self, facts: Facts) -> Create | Hold | Adjust | None:
        """Returns the next step of a registration before its status; None if there is none left."""
        if self.own.object is None:
            return Create(created(self._terms))
        if not self.has_name:
            return self.hold(facts)
        if not self._adjusted and (wanted := adjusted(self.own.object, self._terms)) is not None:
            return Adjust(wanted)
        self._adjusted = True
        return None

    def renewal(self, now: float, facts: Facts) -> Hold | None:
        """Returns the renewal that is due, but for one after the other: None once, then."""
        if now >= self.renew_at and not self._has_renewed:
            return self.hold(facts)
        self._has_renewed = False
        return None

    def hold(self, facts: Facts) -> Hold:
        """Returns the claim, or its renewal."""
        return Hold(self.name.to_hold(self.directory, facts))

    def go(self, now: float, facts: Facts) -> Rest | Look | Hold:
        """Returns the next step of a member that has left: it gives the name up."""
        if not self.has_name:
            return Rest(None)
        return self.look(now) or Hold(self.name.to_hold(self.directory, facts, give_up=True))

    # -- what has happened ---------------------------------------------------------------------------------------------

    def look_again(self, paused: float | None = None) -> None:
        """What is known is in doubt: the next step is a look, not before an instant."""
        self._looking = True
        if paused is not None:
            self._paused = paused

    def looked(self, found: Found, now: float) -> None:
        """A look has found this; `judge` says what follows."""
        self._looking, self._look_at = False, None
        self.own.read(found.member, now)
        self.name.found(found.lease, now)

    def judge(self, now: float) -> bool:
        """Decides on the place; returns whether it is ours."""
        taken = self.name.judge({self.directory, self._former}, now)
        if taken is None:
            self.place, self.why = "ours", ""
            return True
        self.place = "apart" if self.is_reported or self.place == "apart" else "taken"
        self.why, self._look_at = taken.why, taken.until
        self.is_reported = False
        return False

    def created(self, found: Object, now: float) -> None:
        """The ShipperMember was created."""
        self.own.read(found, now)
        self.is_reported = False

    def adjusted(self, found: Object, now: float) -> None:
        """Labels and spec were written."""
        self._adjusted = True
        self.own.wrote(found, now)

    def renewed(self, began: float) -> None:
        """The Lease was claimed or renewed by a request that began at an instant."""
        self.renew_at, self._has_renewed = began + self._terms.lease / 3, True

    def reported(self, found: Object, now: float) -> None:
        """The status was written: this is the answer, whole."""
        self.own.wrote(found, now)
        self.is_reported = self.follows = True

    def renamed(self, directory: str) -> None:
        """The state directory has another id, under which nothing was reported yet."""
        self.directory, self.is_reported, self._looking = directory, False, True

    def left(self, why: str) -> None:
        """This process takes part no more."""
        self.place, self.why = "out", why
