"""One process of one member: which step is next, and what outcomes and events change. See the package.

Instants (`now`, `began`, `until`) are seconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from shipper.apiserver.objects import Event, Listing, Object
from shipper.kubernetes.member.memory import Memory
from shipper.kubernetes.member.steps import (
    Confirm,
    Facts,
    Found,
    Judge,
    Judgement,
    Look,
    SecretFound,
    Step,
    Terms,
    Vector,
    Write,
)
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Stage

Place = Literal["unknown", "taken", "apart", "ours", "out"]


class Member:
    """A member; the caller performs the steps that `next` returns, one after the other, and tells what happens."""

    def __init__(self, terms: Terms, memory: Memory) -> None:
        """`memory` is durable."""
        self.terms, self.memory = terms, memory
        self.place: Place = "unknown"
        self.why = ""
        """Why it is taken, apart or out, in a sentence."""

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether the watches of policies, of Secrets and of the own ShipperMember run: from the registration on, for
        ever. Their first lists must begin after this is True."""
        raise NotImplementedError

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the Secrets to watch now; empty before `follows`."""
        raise NotImplementedError

    @property
    def kept(self) -> Vector | None:
        """The vector of an earlier process, which may run without the API server; None for a new member, or one that
        has left."""
        raise NotImplementedError

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send: by its settings, or as long as the API server may believe that."""
        raise NotImplementedError

    @property
    def registered(self) -> bool:
        """Whether the API server has the status of this process, and nothing speaks against it."""
        raise NotImplementedError

    @property
    def left(self) -> bool:
        """Whether this process takes part no more, and has said so."""
        raise NotImplementedError

    @property
    def granted_until(self) -> float | None:
        """The end of the newest lease of the sidecar."""
        raise NotImplementedError

    @property
    def held(self) -> str:
        """Why the sidecar gets no lease now although this member takes part; empty if it gets one."""
        raise NotImplementedError

    @property
    def waits(self) -> Sequence[tuple[str, str]]:
        """What keeps policies from being run as they are: name and a sentence, for people."""
        raise NotImplementedError

    # -- the next step -------------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns the next step; an event in between only changes what it is."""
        raise NotImplementedError

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def failed(self, until: float) -> None:
        """A step failed otherwise than by None: nothing more before this instant, and then a Look. Whether a write was
        done is unknown."""

    def looked(self, step: Look, found: Found, *, now: float) -> None:
        """A look has found this."""

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""

    def created(self, found: Object | None, *, now: float) -> None:
        """The ShipperMember was created, or there is one."""

    def adjusted(self, found: Object | None, *, now: float) -> None:
        """Labels and spec were written."""

    def held_lease(self, found: Object | None, *, began: float, now: float) -> None:
        """`Hold` was done by a request that began at an instant."""

    def wrote(self, step: Write, found: Object | None, *, began: float, now: float) -> None:
        """The status was written, and this is the answer, whole."""

    def reread(self, policies: Listing, secrets: Mapping[str, SecretFound], *, began: float, now: float) -> None:
        """All policies, and each Secret of the step."""

    def judged(self, step: Judge, judgement: Judgement, *, now: float) -> None:
        """A generation was judged."""

    def confirmed(self, step: Confirm, found: Mapping[str, SecretFound], *, now: float) -> None:
        """Each Secret of the step, read after the step was given."""

    def offered(self, vector: Vector) -> None:
        """The agent reads this vector from now on."""

    def withdrew(self, ids: Iterable[str]) -> None:
        """The sidecar has these contents no more."""

    def forgot(self, ids: Iterable[str]) -> None:
        """The ledger has these contents no more."""

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""

    # -- events --------------------------------------------------------------------------------------------------------

    def saw_policy(self, event: Event) -> None:
        """An event of the watch of policies, SYNCED included, in order."""

    def saw_secret(self, name: str, event: Event) -> None:
        """An event of the watch of one Secret, SYNCED included: without an object before it there is none."""

    def denied(self, name: str, why: str) -> None:
        """The watch of a Secret is refused (401, 403)."""

    def saw_own(self, event: Event, *, now: float) -> None:
        """An event of the watch of the own ShipperMember."""

    def caught_up(self, version: str) -> None:
        """The watch of the own ShipperMember was handed everything up to a version."""

    def answered(
        self, version: str, stage: Stage | Literal["refused"], reason: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        """The sidecar, or the source's own reading, has answered to a vector by its name. Paths of the problems are
        those of `Vector.tree`; names of other vectors are ignored."""

    def leave(self) -> None:
        """This member leaves for good; every sidecar has stopped."""
