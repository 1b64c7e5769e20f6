"""The member's vector, and the contents of Secrets that it names, as a source of policies.

See `supervise.shared_source`: what is offered is a vector. It reads secrets of this host where that is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shipper.kubernetes.member.steps import Vector
from shipper.kubernetes.membership.membership import Membership
from shipper.kubernetes.secret import KubernetesSecret
from shipper.kubernetes.trees import PolicyTree
from shipper.policy.registry import Registry
from shipper.sdk.codes import Code
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Answer
from shipper.supervise.desired import Given
from shipper.supervise.ledger import Kept
from shipper.supervise.secrets import Reference
from shipper.supervise.shared_source import Say, SharedSource
from shipper.supervise.watch import Watch


class KubernetesSource(SharedSource[Vector]):
    """See `policy_source.PolicySource`."""

    delays = True
    name, method = "the policies of Kubernetes", "watch"
    _unheard = (
        "the member has stopped, but the API server does not answer, so policies still count it: start it, and try "
        "again"
    )

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
        super().__init__(membership, watch, environment, say, registry=registry, may_run=membership.may_run)
        self._namespace, self._membership, self._allows_host = namespace, membership, allows_host

    @property
    def watched(self) -> Sequence[str]:
        return [f"policies of namespace {self._namespace}"]

    def _nothing(self) -> Problem:
        where = f"namespace {self._namespace}"
        return Problem("", 1, 1, "no policy has been supplied yet", where, Code.NOT_RUNNING)

    def _tell(self, offer: Vector) -> None:
        parts = [f"{part.name} {part.generation}" for part in offer.parts]
        self._say("kubernetes_policies", {"number": offer.number, "policies": parts})

    def _origin(self, offer: Vector) -> PolicyTree:
        return PolicyTree(offer.tree, self._allows_host)

    def _given(self, offer: Vector, reference: Reference) -> Given | None:
        source = reference.source
        if not isinstance(source, KubernetesSecret) or source.id not in offer.contents:
            return None
        return Given(source.id, offer.contents[source.id].content)

    def _reject(self, offer: Vector, reason: str, problems: Sequence[Problem]) -> None:
        self._membership.answered(offer.name, "refused", reason, tuple(problems))

    def answered(self, member: str, answer: Answer) -> None:
        self._membership.answered(answer.version, answer.stage, answer.reason, answer.problems)

    def released(self, kept: Kept) -> None:
        """Has the membership say when the ledger forgets the content."""
        self._membership.released(kept.id)

    def status(self) -> Mapping[str, Any]:
        return {"kubernetes": self._membership.status()}

    def _left(self) -> str:
        self._say("kubernetes_left", {"namespace": self._namespace})
        return f"this member has left the namespace {self._namespace}"
