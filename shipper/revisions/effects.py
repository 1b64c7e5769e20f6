"""The effects that the machine of revisions yields: first the lasting ones, then the immediate ones.

The docstring of an effect names its answer, if it has one, and its errors.

They are structs of msgspec, since there are many: a frozen dataclass takes 0.5 ms of each start, a struct 0.01.
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
    """Perform these steps to their end, even if cancelled, and never concurrently with other such steps."""

    steps: Generator[Effect, Any, Any]


class Read(Struct, frozen=True):
    """Make the plan of an offer, unless it is given, and parse its secrets.

    The answer is the plan and the secrets by their ids. Raises PolicyError or CredentialError.
    """

    offer: Offer
    plan: Plan | None


class Look(Struct, frozen=True):
    """Read the stored revisions from `since` on. The answer is these, the stages, and the ids in use."""

    still_used: Collection[str]
    since: Revision | None


class Store(Struct, frozen=True):
    """Make a candidate and the skipped ones before it durable.

    The answer is its change against the active revision, and the revisions that it superseded.
    """

    candidate: Candidate
    active: Known | None
    skipped: Sequence[Candidate]


class Open(Struct, frozen=True):
    """Open the inputs of a plan beside the running ones. The answer is the new inputs. Raises StartFailed."""

    plan: Plan


class Settle(Struct, frozen=True):
    """Store, under the active revision, the events that processors hold of inputs that a plan changes.

    Takes some seconds at most. Until `Switch`, or until a `Cut` fails, inputs with such processors take in nothing.
    """

    plan: Plan


class Cut(Struct, frozen=True):
    """Make a plan active in one transaction, or resume the active one. The answer is its lanes."""

    plan: Plan
    resumes: bool


class ForgetRevision(Struct, frozen=True):
    """Forget a received revision."""

    at: Revision


class ForgetCredentials(Struct, frozen=True):
    """Forget these ids, except for those that stored data refers to. The answer is the forgotten ids (`Forgotten`)."""

    ids: Collection[str]
    still_used: Collection[str]


class Advance(Struct, frozen=True):
    """Commit `drained` for the newest drained revision.

    `closing` is the oldest revision under which an input still closes. The answer is the receipt, if there is a new
    one, the ids that became free but are not in it, and what `Look` answers after that.
    """

    closing: Revision | None
    still_used: Collection[str]
    before: Before
    since: Revision | None


class Release(Struct, frozen=True):
    """Commit the credentials that became free. The answer is their ids."""

    still_used: Collection[str]


# -- immediate ---------------------------------------------------------------------------------------------------------


class Say(Struct, frozen=True):
    """Send a statement, in the order of these effects; call `delivered` with its number once it is written."""

    number: int
    statement: Statement


class Start(Struct, frozen=True):
    """Bring up `next` until there is none."""


class GiveUp(Struct, frozen=True):
    """Cancel the lasting effect of a candidate; steps under `InOrder` end first."""

    candidate: Candidate


class Check(Struct, frozen=True):
    """Check that the plan lacks no secret, with the offered and the held ones. Raises CredentialError."""

    plan: Plan
    offered: Mapping[str, Credential]


class Keep(Struct, frozen=True):
    """Hold the offered secrets except for the withdrawn ones; lanes and inputs that need them continue."""

    offered: Mapping[str, Credential]
    withdrawn: Collection[str] = ()


class Withdraw(Struct, frozen=True):
    """Stop holding these secrets. The answer is the inputs that close without them."""

    ids: Collection[str]


class Forget(Struct, frozen=True):
    """Stop holding these secrets; `entirely`: their ids are free again."""

    ids: Collection[str]
    entirely: bool = False


class Switch(Struct, frozen=True):
    """Switch intake and delivery from the plan `before` to another. The answer is the old inputs that close."""

    plan: Plan
    before: Plan | None
    cut: Any
    prepared: Any


class Close(Struct, frozen=True):
    """Close the inputs that `Open` returned."""

    prepared: Any


class Activated(Struct, frozen=True):
    """Report that a revision has become active; run `settle`."""


class Changed(Struct, frozen=True):
    """Report that the status may have changed."""


Lasting: TypeAlias = (
    InOrder | Read | Look | Store | Open | Settle | Cut | ForgetRevision | ForgetCredentials | Advance | Release
)
Immediate: TypeAlias = Say | Start | GiveUp | Check | Keep | Withdraw | Forget | Switch | Close | Activated | Changed
Effect: TypeAlias = Lasting | Immediate
Steps: TypeAlias = Generator[Effect, Any, T]
