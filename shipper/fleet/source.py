"""The fleet's newest version, and the secrets of this host that it refers to, as a source of policies.

    membership ── offered ──> read ── Wanted ──> agent ──> sidecar
               <── answered ──  └ PolicyError: this host refuses the version

It reads again when the membership offers another version, or when a local file changes that the version depends on: a
secret, a certificate. A version that this host cannot use, for lack of a variable or of a secret, is refused like one
that the sidecar refuses. Nothing here waits for the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from shipper.fleet.membership.membership import Membership
from shipper.fleet.membership.offered import Offered
from shipper.policy.registry import Registry
from shipper.protocol.messages import Result
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem, ShipperError
from shipper.supervise.answers import Answer
from shipper.supervise.desired import Desired, Given
from shipper.supervise.files import Files
from shipper.supervise.ledger import Kept, Wanted
from shipper.supervise.order_results import refused
from shipper.supervise.policy_source import Known
from shipper.supervise.secrets import Reference
from shipper.supervise.sources import PolicyText
from shipper.supervise.watch import Watch
from shipper.values import Revision

KIND = "fleet"
"""The kind of reference whose secrets the fleet supplies."""
LEAVE_SECONDS = 15.0
_NO_REVISION = Revision(-1, -1)
_MOST_PROBLEMS = 10

Say = Callable[[str, Mapping[str, Any]], None]


class FleetSource:
    """See `policy_source.PolicySource`."""

    name = "the fleet's version and this host's secrets"
    is_shared = True

    def __init__(
        self,
        fleet: str,
        membership: Membership,
        watch: Watch,
        environment: Mapping[str, str],
        say: Say,
        *,
        registry: Registry,
    ) -> None:
        self.problems: Sequence[Problem] = ()
        self.secret_variables: Collection[str] = frozenset()
        self._fleet, self._membership, self._environment, self._say = fleet, membership, environment, say
        self._registry = registry
        self._may_run = False
        self._files = Files(Desired(PolicyText("", ""), environment, self._registry), watch)
        self._taken: Offered | None = None
        """What the last reading has read."""
        self._accepted = ""
        """The newest version that this host could use."""
        self._refused: tuple[str, Sequence[Problem]] = ("", ())

    def resume(self, version: str, *, may_run: bool) -> None:
        """Goes on with the version in the ledger of an earlier process; `may_run`: it may run without the store."""
        self._accepted, self._may_run = version, may_run

    @property
    def watched(self) -> Sequence[str]:
        return [f"fleet {self._fleet}"]

    @property
    def method(self) -> str:
        return self._files.method

    async def may_run(self) -> None:
        """Returns at once for a member; a host that has joined no fleet, or left it, needs the store first."""
        while not self._may_run and self._membership.offered is None:
            await self._membership.changed()

    async def read(self, known: Known) -> Wanted:
        """Returns the offered version for this host; raises PolicyError with places in the fleet's text."""
        offered = self._membership.offered
        if offered is None:
            problem = Problem("", 1, 1, "it has not supplied any version yet", f"fleet {self._fleet}", Code.NOT_RUNNING)
            self.problems = (problem,)
            raise PolicyError([problem])
        self._take(offered)
        try:
            wanted = await self._files.read(known)
        except PolicyError as error:
            self.problems = error.problems
            self._refuse(offered, error.problems)
            raise
        finally:
            self.secret_variables = {*self.secret_variables, *self._files.secret_variables}
        self.problems, self._accepted, self._refused = (), offered.name, ("", ())
        return replace(wanted, version=offered.name)

    def _take(self, offered: Offered) -> None:
        """Begins to read a version, if it is another one than before."""
        if offered is self._taken:
            return
        self._taken = offered
        if offered.name != self._accepted:
            self._say("fleet_version", {"version": str(offered.version)})
        given = {name: Given(offered.text.secrets[name], content) for name, content in offered.secrets.items()}

        def giving(reference: Reference) -> Given | None:
            return given.get(reference.source.name) if reference.kind == KIND else None

        origin = PolicyText(offered.text.policy, f"version {offered.version}")
        desired = Desired(origin, self._environment, self._registry, given=giving)
        desired.watched = self._files.desired.watched  # until it is read
        self._files.desired = desired

    def _refuse(self, offered: Offered, problems: Sequence[Problem]) -> None:
        """Answers that this host cannot use a version; a version that it uses already stays accepted."""
        refusal = (offered.name, tuple(problems))
        if offered.name == self._accepted or refusal == self._refused:
            return
        self._refused = refusal
        secrets_only = all(problem.code == Code.SECRET_UNAVAILABLE for problem in problems)
        reason = "credential_missing" if secrets_only else "invalid"
        texts = [str(problem) for problem in problems[:_MOST_PROBLEMS]]
        self._membership.answered(offered.name, _NO_REVISION, "refused", reason, texts)

    async def changed(self) -> bool:
        """Waits until another version is offered, a local file may have changed, or a person asks."""
        asked = False
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while self._membership.offered is self._taken:
                    await self._membership.changed()
                nursery.cancel_scope.cancel("another version is offered")

            nursery.start_soon(other)
            asked = await self._files.changed()
            nursery.cancel_scope.cancel("a file changed")
        return asked

    def ask(self) -> None:
        self._files.ask()

    def answered(self, member: str, answer: Answer) -> None:
        problems = [str(problem) for problem in answer.problems[:_MOST_PROBLEMS]]
        self._membership.answered(
            *(answer.version, answer.revision, answer.stage, answer.reason, problems, answer.ledger, answer.local)
        )

    def released(self, kept: Kept) -> None:
        """Does nothing: the next report leaves the id out of `using`, and the fleet says when to forget it."""

    def status(self) -> Mapping[str, Any]:
        return {"fleet": self._membership.status()}

    async def leave(self) -> Result:
        """Returns when the store knows that this host has left, or after `LEAVE_SECONDS`."""
        with trio.move_on_after(LEAVE_SECONDS):
            try:
                await self._membership.leave()
            except ShipperError as error:
                return refused(str(error), Code.FAILED)
            self._say("fleet_left", {"fleet": self._fleet})
            return Result(id="", status="SUCCESS", message=f"this host has left the fleet {self._fleet}", code=Code.OK)
        text = (
            "the host has stopped, but the store does not answer, so the fleet still counts it: start it, and try again"
        )
        return refused(text, Code.TIMED_OUT)
