"""What a source of policies hears back: which stage of its versions a member has reached.

A version is answered by the first revision that was made from it: later ones, as of a rotated secret, are the member's
own affair, but carry it too. So a stage of a revision is one of the newest version that began at it or before it, and
with that of all older versions.

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
"""Versions without an answer of their own that are remembered; newer ones answer for those that are not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one version; an answer may come again, and the newest counts."""

    version: str
    revision: Revision
    stage: Stage | Literal["refused"]
    reason: str = ""
    """Of one that was refused, a reason of the protocol's nack."""
    problems: tuple[Problem, ...] = ()


class Versions:
    """The versions that one member was given, and the stages that its revisions have reached."""

    def __init__(self) -> None:
        self._began: dict[Revision, str] = {}
        """By the first revision made from each, of one that came again since then."""
        self._reached: dict[Stage, Revision] = {}

    def carried(self, version: str, at: Revision) -> Iterator[Answer]:
        """This revision is made from the version; one without a name gets no answers."""
        if not version or (self._began and self._began[max(self._began)] == version):
            return
        self._began = {began: other for began, other in self._began.items() if other != version} | {at: version}
        while len(self._began) > MOST:
            del self._began[min(self._began)]
        for stage, reached in self._reached.items():
            if reached >= at:
                yield Answer(version, at, stage)

    def renumbered(self, before: Revision, at: Revision) -> None:
        """A policy has a new number, since the sidecar refused the old one as taken."""
        if before in self._began:
            self._began[at] = self._began.pop(before)

    def stage(self, stage: Stage, at: Revision) -> Iterator[Answer]:
        """A revision has reached a stage."""
        self._reached[stage] = max(at, self._reached.get(stage, at))
        newest = max((began for began in self._began if began <= at), default=None)
        if newest is None:
            return
        yield Answer(self._began[newest], newest, stage)
        if stage == "drained":
            self._began = {began: version for began, version in self._began.items() if began >= newest}

    def stages(self, revisions: Revisions) -> Iterator[Answer]:
        """What a sidecar says that begins: the stages that it has reached before."""
        reached: Mapping[Stage, Revision | None] = {
            "received": revisions.received,
            "active": revisions.active,
            "drained": revisions.drained,
        }
        for stage, at in reached.items():
            if at is not None:
                yield from self.stage(stage, at)

    def refused(self, at: Revision, reason: str, problems: tuple[Problem, ...] = ()) -> Iterator[Answer]:
        """A revision was nacked, for a reason that lies in the policy or its credentials."""
        if at in self._began:
            yield Answer(self._began[at], at, "refused", reason, problems)
