"""What the sidecar has answered to versions: the stages, the ledger and the refusal that a report carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from shipper.fleet.member.order import is_newer, later
from shipper.fleet.records import Refusal, Report, Version
from shipper.supervise.answers import STAGES, Stage
from shipper.values import Counts

PROBLEMS = 10


class Answers:
    """The newest answers; an older one never replaces them."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None
        self.local = ""
        """The stage of the newest own rotation."""
        self._before: Mapping[Stage, Version] = {}
        """The stages that an earlier process of this member reported."""
        self._now: Mapping[Stage, Version] = {}
        """Those that the sidecar has answered to this process."""
        self._ledger: tuple[Version, Counts] | None = None
        """The newest drained version whose ledger is known."""

    @property
    def stages(self) -> dict[Stage, Version]:
        """The newest version that has reached each stage."""
        both = {stage: later(self._before.get(stage), self._now.get(stage)) for stage in STAGES}
        return {stage: version for stage, version in both.items() if version is not None}

    @property
    def ledger(self) -> Counts | None:
        """The ledger of the newest drained version; None if that is unknown."""
        return self._ledger[1] if self._ledger is not None and self._ledger[0] == self.stages.get("drained") else None

    def runs(self, version: Version) -> bool:
        """Returns whether the sidecar has answered to this process that this version, or a newer one, is active."""
        active = self._now.get("active")
        return version == active or is_newer(active, version)

    def take(
        self,
        version: Version,
        stage: Stage | Literal["refused"],
        reason: str,
        problems: Sequence[str],
        ledger: Counts | None,
        local: str,
        wall: float,
    ) -> None:
        """Takes an answer of the sidecar."""
        self.local = local or self.local
        if stage == "refused":
            self.refuse(Refusal(version, reason, list(problems[:PROBLEMS]), wall))
            return
        self._count(version, ledger)
        reached = STAGES[: STAGES.index(stage) + 1]
        self._now = {**self._now, **{each: version for each in reached if is_newer(version, self._now.get(each))}}
        refused = self.refusal.version if self.refusal is not None else None
        if refused is not None and (version == refused or is_newer(version, refused)):
            self.refusal = None

    def refuse(self, refusal: Refusal) -> None:
        """Takes a refusal unless it is known, or something newer was accepted or refused."""
        known, accepted = self.refusal, self._now.get("received")
        if known is not None and is_newer(known.version, refusal.version):
            return
        if is_newer(accepted, refusal.version) or (known and replace(known, at=refusal.at) == refusal):
            return
        self.refusal = refusal

    def recall(self, report: Report) -> None:
        """Takes from a report of an earlier process what the sidecar has not answered anew."""
        newer = {stage: later(self._before.get(stage), version) for stage, version in report.stages.items()}
        self._before = {**self._before, **{stage: version for stage, version in newer.items() if version}}
        self.local = self.local or report.local
        self._count(report.stages.get("drained"), report.ledger)

    def _count(self, version: Version | None, ledger: Counts | None) -> None:
        """Takes the ledger of a drained version; the first one of each version counts."""
        known = self._ledger[0] if self._ledger is not None else None
        if version is not None and ledger is not None and is_newer(version, known):
            self._ledger = version, ledger
