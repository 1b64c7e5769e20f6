"""What a membership offers, and the secrets of this host that it refers to, as a source of policies.

    membership ── offered ──> read ── Wanted ──> agent ──> sidecar
               <── answered ──  └ PolicyError: this host refuses what is offered

It reads again when the membership offers something else, or when a local file changes that the policy depends on: a
secret, a certificate. What this host cannot use, for lack of a variable or of a secret, is refused as if the sidecar
had refused it; what it uses already stays accepted. Nothing here waits for the other side of the membership.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import trio
from msgspec.structs import replace

from shipper.policy.registry import Registry
from shipper.protocol.messages import Result
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem, ShipperError
from shipper.supervise.desired import Desired, Given
from shipper.supervise.files import Files
from shipper.supervise.ledger import Wanted
from shipper.supervise.order_results import refused
from shipper.supervise.policy_source import Known
from shipper.supervise.secrets import Reference
from shipper.supervise.sources import Origin, PolicyText
from shipper.supervise.watch import Watch

LEAVE_SECONDS = 15.0

Say = Callable[[str, Mapping[str, Any]], None]


class Named(Protocol):
    """An offer."""

    @property
    def name(self) -> str:
        """`Wanted.version`."""
        ...


Offer = TypeVar("Offer", bound=Named)
Offer_co = TypeVar("Offer_co", bound=Named, covariant=True)


class Offering(Protocol[Offer_co]):
    """A membership."""

    @property
    def offered(self) -> Offer_co | None:
        """The newest offer; it never goes back."""
        ...

    async def changed(self) -> None:
        """Waits for the next offer."""
        ...

    async def leave(self) -> None:
        """Ends the membership; raises ShipperError if it cannot."""
        ...


class SharedSource(ABC, Generic[Offer]):
    """See `policy_source.PolicySource`; a source of a kind says what its offers mean."""

    is_shared, delays = True, False

    def __init__(
        self,
        offering: Offering[Offer],
        watch: Watch,
        environment: Mapping[str, str],
        say: Say,
        *,
        registry: Registry,
        may_run: bool = False,
    ) -> None:
        """`may_run`: the policy of an earlier process may run before anything is offered."""
        self.problems: Sequence[Problem] = ()
        self.secret_variables: Collection[str] = frozenset()
        self._offering, self._environment, self._say, self._registry = offering, environment, say, registry
        self._files = Files(Desired(PolicyText("", ""), environment, registry), watch)
        self._taken: Offer | None = None
        """What the last reading has read."""
        self._accepted = ""
        """The newest offer that this host could use, by its name."""
        self._refused: tuple[str, Sequence[Problem]] = ("", ())
        self._may_run = may_run

    # -- what differs between kinds ------------------------------------------------------------------------------------

    @abstractmethod
    def _nothing(self) -> Problem:
        """Returns the problem of a host that was offered nothing yet."""

    @abstractmethod
    def _tell(self, offer: Offer) -> None:
        """Reports that an offer is about to be read, which was not read just before."""

    @abstractmethod
    def _origin(self, offer: Offer) -> Origin:
        """Returns where the policy of an offer comes from."""

    @abstractmethod
    def _given(self, offer: Offer, reference: Reference) -> Given | None:
        """Returns the content that an offer has for a reference; None: it is one of this host."""

    @abstractmethod
    def _reject(self, offer: Offer, reason: str, problems: Sequence[Problem]) -> None:
        """Answers that this host cannot use an offer."""

    @abstractmethod
    def _left(self) -> str:
        """Reports that this host has left, and returns that in words."""

    @property
    @abstractmethod
    def _unheard(self) -> str:
        """Why leaving has taken too long, and what to do, in words."""

    # -- as a source ---------------------------------------------------------------------------------------------------

    async def may_run(self) -> None:
        """Returns at once if an earlier process has left what may run; otherwise something must be offered first."""
        while not self._may_run and self._offering.offered is None:
            await self._offering.changed()

    async def read(self, known: Known) -> Wanted:
        """Returns what is offered for this host; raises PolicyError with places in what is offered."""
        offer = self._offering.offered
        if offer is None:
            self.problems = (self._nothing(),)
            raise PolicyError([*self.problems])
        self._take(offer)
        try:
            wanted = await self._files.read(known)
        except PolicyError as error:
            self.problems = error.problems
            self._refuse(offer, error.problems)
            raise
        finally:
            self.secret_variables = {*self.secret_variables, *self._files.secret_variables}
        self.problems, self._accepted, self._refused = (), offer.name, ("", ())
        return replace(wanted, version=offer.name)

    def _take(self, offer: Offer) -> None:
        """Begins to read an offer, if it is another one than before."""
        if offer is self._taken:
            return
        self._taken = offer
        self._tell(offer)

        def giving(reference: Reference) -> Given | None:
            return self._given(offer, reference)

        desired = Desired(self._origin(offer), self._environment, self._registry, given=giving)
        desired.watched = self._files.desired.watched  # until it is read
        self._files.desired = desired

    def _refuse(self, offer: Offer, problems: Sequence[Problem]) -> None:
        refusal = (offer.name, tuple(problems))
        if offer.name == self._accepted or refusal == self._refused:
            return
        self._refused = refusal
        secrets_only = all(problem.code == Code.SECRET_UNAVAILABLE for problem in problems)
        self._reject(offer, "credential_missing" if secrets_only else "invalid", problems)

    async def changed(self) -> bool:
        """Waits until something else is offered, a local file may have changed, or a person asks."""
        asked = False
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while self._offering.offered is self._taken:
                    await self._offering.changed()
                nursery.cancel_scope.cancel("something else is offered")

            nursery.start_soon(other)
            asked = await self._files.changed()
            nursery.cancel_scope.cancel("a file changed")
        return asked

    def ask(self) -> None:
        self._files.ask()

    async def leave(self) -> Result:
        """Returns when the other side knows that this host has left, or after `LEAVE_SECONDS`."""
        with trio.move_on_after(LEAVE_SECONDS):
            try:
                await self._offering.leave()
            except ShipperError as error:
                return refused(str(error), Code.FAILED)
            return Result(id="", status="SUCCESS", message=self._left(), code=Code.OK)
        return refused(self._unheard, Code.TIMED_OUT)
