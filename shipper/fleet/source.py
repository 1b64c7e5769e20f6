"""The fleet's newest version, and the secrets of this host that it refers to, as a source of policies.

See `supervise.shared_source`: what is offered is a version, and the fleet's secrets that it names come with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shipper.fleet.membership.membership import Membership
from shipper.fleet.membership.offered import Offered
from shipper.policy.registry import Registry
from shipper.sdk.codes import Code
from shipper.sdk.errors import Problem
from shipper.supervise.answers import Answer
from shipper.supervise.desired import Given
from shipper.supervise.ledger import Kept
from shipper.supervise.secrets import Reference
from shipper.supervise.shared_source import Say, SharedSource
from shipper.supervise.sources import PolicyText
from shipper.supervise.watch import Watch
from shipper.values import Revision

KIND = "fleet"
"""The kind of reference whose secrets the fleet supplies."""
_NO_REVISION = Revision(-1, -1)
_MOST_PROBLEMS = 10


class FleetSource(SharedSource[Offered]):
    """See `policy_source.PolicySource`."""

    name = "the fleet's version and this host's secrets"
    _unheard = (
        "the host has stopped, but the store does not answer, so the fleet still counts it: start it, and try again"
    )

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
        super().__init__(membership, watch, environment, say, registry=registry)
        self._fleet, self._membership = fleet, membership

    def resume(self, version: str, *, may_run: bool) -> None:
        """Goes on with the version in the ledger of an earlier process; `may_run`: it may run without the store."""
        self._accepted, self._may_run = version, may_run

    @property
    def watched(self) -> Sequence[str]:
        return [f"fleet {self._fleet}"]

    @property
    def method(self) -> str:
        return self._files.method

    def _nothing(self) -> Problem:
        return Problem("", 1, 1, "it has not supplied any version yet", f"fleet {self._fleet}", Code.NOT_RUNNING)

    def _tell(self, offer: Offered) -> None:
        if offer.name != self._accepted:
            self._say("fleet_version", {"version": str(offer.version)})

    def _origin(self, offer: Offered) -> PolicyText:
        return PolicyText(offer.text.policy, f"version {offer.version}")

    def _given(self, offer: Offered, reference: Reference) -> Given | None:
        name = reference.source.name
        if reference.kind != KIND or name not in offer.secrets:
            return None
        return Given(offer.text.secrets[name], offer.secrets[name])

    def _reject(self, offer: Offered, reason: str, problems: Sequence[Problem]) -> None:
        texts = [str(problem) for problem in problems[:_MOST_PROBLEMS]]
        self._membership.answered(offer.name, _NO_REVISION, "refused", reason, texts)

    def answered(self, member: str, answer: Answer) -> None:
        problems = [str(problem) for problem in answer.problems[:_MOST_PROBLEMS]]
        self._membership.answered(
            *(answer.version, answer.revision, answer.stage, answer.reason, problems, answer.ledger, answer.local)
        )

    def released(self, kept: Kept) -> None:
        """Does nothing: the next report leaves the id out of `using`, and the fleet says when to forget it."""

    def status(self) -> Mapping[str, Any]:
        return {"fleet": self._membership.status()}

    def _left(self) -> str:
        self._say("fleet_left", {"fleet": self._fleet})
        return f"this host has left the fleet {self._fleet}"
