"""What the machine of revisions has done: those effects that take their time first, then those that are done at once.

An effect says what its answer is, if it has one, and which errors it raises.

They are structs of msgspec, as many as they are: a frozen dataclass takes 0.5 ms of each start, a struct 0.01.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from shipper.pipeline.plan import Plan
from shipper.revisions.offer import Candidate, Offer
from shipper.revisions.statements import Statement
from shipper.sdk.credentials import Credential
from shipper.spool.credentials import Before
from shipper.spool.revisions import Known
from shipper.values import Revision

T = TypeVar("T")


class InOrder(Struct, frozen=True):
    """Perform these steps to their end, whoever stops waiting for them, and beside no other such steps."""

    steps: Generator[Effect, Any, Any]


class Read(Struct, frozen=True):
    """Make a plan of an offer, or take the one that is there, and parse its secrets.

    The answer is the plan and the secrets by their ids. Raises PolicyError or CredentialError.
    """

    offer: Offer
    plan: Plan | None


class Look(Struct, frozen=True):
    """The answer is what is stored, of the revisions from `since` on, with the ids in use."""

    still_used: Collection[str]
    since: Revision | None


class Store(Struct, frozen=True):
    """Make a candidate durable, and those that were skipped for it.

    The answer is what it changes against the active revision, and the revisions that it superseded.
    """

    candidate: Candidate
    active: Known | None
    skipped: Sequence[Candidate]


class Open(Struct, frozen=True):
    """Open the inputs of a plan beside those that run. The answer is these. Raises StartFailed."""

    plan: Plan


class Settle(Struct, frozen=True):
    """Have stored, under the revision that is active, what processors hold of inputs that a plan changes.

    It takes some seconds at most. Until `Switch`, or until a `Cut` fails, inputs with such processors take in nothing.
    """

    plan: Plan


class Cut(Struct, frozen=True):
    """Make a plan active in one transaction, or resume it where it is. The answer is its lanes."""

    plan: Plan
    resumes: bool


class ForgetRevision(Struct, frozen=True):
    """Forget a received revision."""

    at: Revision


class ForgetCredentials(Struct, frozen=True):
    """Forget those of these ids that nothing stored refers to. The answer is what was forgotten (`Forgotten`)."""

    ids: Collection[str]
    still_used: Collection[str]


class Advance(Struct, frozen=True):
    """Commit `drained` for the newest revision of which it is true.

    `closing` is the oldest revision under which an input still closes. The answer is its receipt, if there is a new
    one, and the ids that became free and that it does not list.
    """

    closing: Revision | None
    still_used: Collection[str]
    before: Before


class Release(Struct, frozen=True):
    """Commit which credentials became free; the answer is their ids."""

    still_used: Collection[str]


# -- done at once ------------------------------------------------------------------------------------------------------


class Say(Struct, frozen=True):
    """Say it, in the order of these effects; call `delivered` with the number when it was written, or never."""

    number: int
    statement: Statement


class Start(Struct, frozen=True):
    """Bring up `next` until there is none."""


class GiveUp(Struct, frozen=True):
    """Stop waiting for what is being done for a candidate; what was begun under `InOrder` ends first."""

    candidate: Candidate


class Check(Struct, frozen=True):
    """Raise CredentialError if the plan lacks a secret, with these and those that are held."""

    plan: Plan
    offered: Mapping[str, Credential]


class Keep(Struct, frozen=True):
    """Hold these secrets but for the withdrawn ones; who misses one of them goes on."""

    offered: Mapping[str, Credential]
    withdrawn: Collection[str] = ()


class Withdraw(Struct, frozen=True):
    """Hold these secrets no longer. The answer is what of the inputs closes for that."""

    ids: Collection[str]


class Forget(Struct, frozen=True):
    """Hold these secrets no longer; `entirely`: their ids are free again."""

    ids: Collection[str]
    entirely: bool = False


class Switch(Struct, frozen=True):
    """Intake and delivery go over to a plan, after the one `before`. The answer is what of the old inputs closes."""

    plan: Plan
    before: Plan | None
    cut: Any
    prepared: Any


class Close(Struct, frozen=True):
    """Close what was opened."""

    prepared: Any


class Activated(Struct, frozen=True):
    """A revision has become active: what depends on that may go on, `settle` too."""


class Changed(Struct, frozen=True):
    """What there is to be seen from outside may have changed."""


Lasting: TypeAlias = (
    InOrder | Read | Look | Store | Open | Settle | Cut | ForgetRevision | ForgetCredentials | Advance | Release
)
Immediate: TypeAlias = Say | Start | GiveUp | Check | Keep | Withdraw | Forget | Switch | Close | Activated | Changed
Effect: TypeAlias = Lasting | Immediate
Steps: TypeAlias = Generator[Effect, Any, T]
