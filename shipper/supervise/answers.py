"""Answers to a source of policies: the stage that each of its versions has reached at a member.

A version is answered by the first revision that was made from it; later ones, such as for a rotated secret, carry it
too. So a stage of a revision is also reached by the newest version that began at it or before it, and by all older
versions.

    version 6 at 11, version 7 at 12     ack 13 drained     version 7 is drained, and so is 6
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from shipper.sdk.errors import Problem
from shipper.values import Revision, Revisions

Stage = Literal["received", "active", "drained"]

MOST = 64
"""Versions that are remembered until they are answered; newer ones answer for forgotten ones."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The stage of one version; an answer may be repeated, and the newest counts."""

    version: str
    revision: Revision
    stage: Stage | Literal["refused"]
    reason: str = ""
    """The reason of the nack, for a refused version."""
    problems: tuple[Problem, ...] = ()


class Versions:
    """The versions that one member was given, and the stages that its revisions have reached."""

    def __init__(self) -> None:
        self._began: dict[Revision, str] = {}
        """Versions by the first revision made from each, since its last appearance."""
        self._reached: dict[Stage, Revision] = {}

    def carried(self, version: str, at: Revision) -> Iterator[Answer]:
        """Records that a revision is made from a version; one without a name gets no answers."""
        if not version or (self._began and self._began[max(self._began)] == version):
            return
        self._began = {began: other for began, other in self._began.items() if other != version} | {at: version}
        while len(self._began) > MOST:
            del self._began[min(self._began)]
        for stage, reached in self._reached.items():
            if reached >= at:
                yield Answer(version, at, stage)

    def renumbered(self, before: Revision, at: Revision) -> None:
        """Records the new number of a policy whose old one the sidecar refused as taken."""
        if before in self._began:
            self._began[at] = self._began.pop(before)

    def stage(self, stage: Stage, at: Revision) -> Iterator[Answer]:
        """Yields the answers for a revision that has reached a stage."""
        self._reached[stage] = max(at, self._reached.get(stage, at))
        newest = max((began for began in self._began if began <= at), default=None)
        if newest is None:
            return
        yield Answer(self._began[newest], newest, stage)
        if stage == "drained":
            self._began = {began: version for began, version in self._began.items() if began >= newest}

    def stages(self, revisions: Revisions) -> Iterator[Answer]:
        """Yields the answers for the stages that a starting sidecar reports."""
        reached: Mapping[Stage, Revision | None] = {
            "received": revisions.received,
            "active": revisions.active,
            "drained": revisions.drained,
        }
        for stage, at in reached.items():
            if at is not None:
                yield from self.stage(stage, at)

    def refused(self, at: Revision, reason: str, problems: tuple[Problem, ...] = ()) -> Iterator[Answer]:
        """Yields the answers for a nack whose reason lies in the policy or its credentials."""
        if at in self._began:
            yield Answer(self._began[at], at, "refused", reason, problems)
