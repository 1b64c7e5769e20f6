"""The member's vector, and the contents of Secrets that it names, as a source of policies.

    membership ── offered ──> read ── Wanted ──> agent ──> sidecar
               <── answered ──  └ PolicyError: this member cannot run the vector

It reads again when the membership offers another vector, or when a local file changes that the vector depends on: a
certificate, or a secret of this host where that is allowed. Nothing here waits for the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from shipper.kubernetes.member.steps import Vector
from shipper.kubernetes.membership.membership import Membership
from shipper.kubernetes.secret import KubernetesSecret
from shipper.kubernetes.trees import PolicyTree
from shipper.policy.document import Mark, Node
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
from shipper.supervise.watch import Watch

LEAVE_SECONDS = 15.0
Say = Callable[[str, Mapping[str, Any]], None]


class KubernetesSource:
    """See `policy_source.PolicySource`."""

    name = "the policies of Kubernetes"
    is_shared = True

    def __init__(
        self,
        namespace: str,
        membership: Membership,
        watch: Watch,
        environment: Mapping[str, str],
        say: Say,
        *,
        registry: Registry,
        allows_host: bool = False,
    ) -> None:
        """`allows_host`: policies may read variables, files and secrets of this host."""
        self.problems: Sequence[Problem] = ()
        self.secret_variables: Collection[str] = frozenset()
        self._namespace, self._membership, self._environment, self._say = namespace, membership, environment, say
        self._registry, self._allows_host = registry, allows_host
        nothing = PolicyTree(Node({}, Mark(1, 1)))
        self._files = Files(Desired(nothing, environment, registry), watch)
        self._taken: Vector | None = None
        """What the last reading has read."""
        self._accepted = ""
        """The newest vector that this host could use."""
        self._refused: tuple[str, Sequence[Problem]] = ("", ())
        self._may_run = membership.may_run

    @property
    def watched(self) -> Sequence[str]:
        return [f"policies of namespace {self._namespace}"]

    @property
    def method(self) -> str:
        return "watch"

    async def may_run(self) -> None:
        """Returns at once if an earlier process has left what it ran; otherwise the API server is needed first."""
        while not self._may_run and self._membership.offered is None:
            await self._membership.changed()

    async def read(self, known: Known) -> Wanted:
        """Returns the offered vector for this host; raises PolicyError with places in its policies."""
        offered = self._membership.offered
        if offered is None:
            where = f"namespace {self._namespace}"
            problem = Problem("", 1, 1, "no policy has been supplied yet", where, Code.NOT_RUNNING)
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

    def _take(self, offered: Vector) -> None:
        """Begins to read a vector, if it is another one than before."""
        if offered is self._taken:
            return
        self._taken = offered
        parts = [f"{part.name} {part.generation}" for part in offered.parts]
        self._say("kubernetes_policies", {"number": offered.number, "policies": parts})

        def giving(reference: Reference) -> Given | None:
            source = reference.source
            if not isinstance(source, KubernetesSecret) or source.id not in offered.contents:
                return None
            return Given(source.id, offered.contents[source.id].content)

        origin = PolicyTree(offered.tree, self._allows_host)
        desired = Desired(origin, self._environment, self._registry, given=giving)
        desired.watched = self._files.desired.watched  # until it is read
        self._files.desired = desired

    def _refuse(self, offered: Vector, problems: Sequence[Problem]) -> None:
        """Answers that this host cannot use a vector; one that it uses already stays accepted."""
        refusal = (offered.name, tuple(problems))
        if offered.name == self._accepted or refusal == self._refused:
            return
        self._refused = refusal
        secrets_only = all(problem.code == Code.SECRET_UNAVAILABLE for problem in problems)
        reason = "credential_missing" if secrets_only else "invalid"
        self._membership.answered(offered.name, "refused", reason, tuple(problems))

    async def changed(self) -> bool:
        """Waits until another vector is offered, a local file may have changed, or a person asks."""
        asked = False
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while self._membership.offered is self._taken:
                    await self._membership.changed()
                nursery.cancel_scope.cancel("another vector is offered")

            nursery.start_soon(other)
            asked = await self._files.changed()
            nursery.cancel_scope.cancel("a file changed")
        return asked

    def ask(self) -> None:
        self._files.ask()

    def answered(self, member: str, answer: Answer) -> None:
        self._membership.answered(answer.version, answer.stage, answer.reason, answer.problems)

    def released(self, kept: Kept) -> None:
        """Has the membership say when the ledger forgets the content."""
        self._membership.released(kept.id)

    def status(self) -> Mapping[str, Any]:
        return {"kubernetes": self._membership.status()}

    async def leave(self) -> Result:
        """Returns when the API server knows that this member has left, or after `LEAVE_SECONDS`."""
        with trio.move_on_after(LEAVE_SECONDS):
            try:
                await self._membership.leave()
            except ShipperError as error:
                return refused(str(error), Code.FAILED)
            self._say("kubernetes_left", {"namespace": self._namespace})
            text = f"this member has left the namespace {self._namespace}"
            return Result(id="", status="SUCCESS", message=text, code=Code.OK)
        text = (
            "the member has stopped, but the API server does not answer, so policies still count it: start it, and try "
            "again"
        )
        return refused(text, Code.TIMED_OUT)
