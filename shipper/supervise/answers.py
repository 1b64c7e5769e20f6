"""Answers to a source of policies: the stage that each of its versions has reached at a member.

A version is answered by the first revision that was made from it; later ones, such as for a rotated secret, carry it
too. So a stage of a revision is also reached by the newest version that began at it or before it, and by all older
versions.

    version 6 at 11, version 7 at 12     ack 13 drained     version 7 is drained, and so is 6

The stage of the newest later one, a rotation of this host's own, stands apart in `Answer.local`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from shipper.sdk.errors import Problem
from shipper.values import Counts, Revision, Revisions

Stage = Literal["received", "active", "drained"]
STAGES: tuple[Stage, ...] = ("received", "active", "drained")

MOST = 64
"""Versions that are remembered until they are answered; newer ones answer for forgotten ones."""

_NONE = Revision(-1, -1)


class Answer(msgspec.Struct, frozen=True):
    """The stage of one version; an answer may be repeated, and the newest counts."""

    version: str
    revision: Revision
    stage: Stage | Literal["refused"]
    reason: str = ""
    """The reason of the nack, for a refused version."""
    problems: tuple[Problem, ...] = ()
    ledger: Counts | None = None
    """Of `drained`: the events that the first revision to drain the version waited for; None if that is unknown."""
    local: str = ""
    """The stage of the newest rotation, or `refused`, and its revision: `drained 12`; empty if there is none."""


class Versions:
    """The versions that one member was given, and the stages that its revisions have reached."""

    def __init__(self) -> None:
        self._began: dict[Revision, str] = {}
        """Versions by the first revision made from each, since its last appearance."""
        self._reached: dict[Stage, Revision] = {}
        self._counted: Mapping[Revision, Counts] = {}
        """The ledger of the newest drained revision, if it is known."""
        self._rotated: Revision | None = None
        """The newest revision that was not the first one of its version."""
        self._refused: Revision | None = None
        """The newest rotation that was refused."""

    def carried(self, version: str, at: Revision) -> Iterator[Answer]:
        """Records that a revision is made from a version; one without a name gets no answers."""
        if not version:
            return
        if self._began and self._began[first := max(self._began)] == version:
            self._rotated = at if at > first else self._rotated
            return
        self._began = {began: other for began, other in self._began.items() if other != version} | {at: version}
        while len(self._began) > MOST:
            del self._began[min(self._began)]
        for stage, reached in self._reached.items():
            if reached >= at:
                yield self._answer(at, stage, self._counted.get(at) if stage == "drained" else None)

    def renumbered(self, before: Revision, at: Revision) -> None:
        """Records the new number of a policy whose old one the sidecar refused as taken.

        That of a rotation is then the first one of its version: what the sidecar has reached below it may be the
        policy of another supervisor.
        """
        if before == self._rotated:
            self._rotated, before = None, max(self._began)
        if before in self._began:
            self._began[at] = self._began.pop(before)

    def stage(self, stage: Stage, at: Revision, ledger: Counts | None = None) -> Iterator[Answer]:
        """Yields the answers for a revision that has reached a stage; `ledger` is that of the ack."""
        earlier = self._reached.get(stage, _NONE)
        self._reached[stage] = max(at, earlier)
        newest = max((began for began in self._began if began <= at), default=None)
        if newest is None:
            return
        is_first = earlier < newest or at == newest
        yield self._answer(newest, stage, ledger if is_first else None)
        if stage == "drained":
            self._counted = {at: ledger} if ledger is not None else self._counted
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
        elif at == self._rotated:
            self._refused = at
            yield from self._repeated()

    def _repeated(self) -> Iterator[Answer]:
        """Yields the last stage of the newest version again, for what has changed beside it."""
        newest = max(self._began)
        for stage in reversed(STAGES):
            if self._reached.get(stage, _NONE) >= newest:
                yield self._answer(newest, stage)
                return

    def _answer(self, began: Revision, stage: Stage, ledger: Counts | None = None) -> Answer:
        return Answer(self._began[began], began, stage, ledger=ledger, local=self._local())

    def _local(self) -> str:
        """Returns the stage of the newest rotation, and its revision."""
        if self._rotated is None:
            return ""
        for stage in reversed(STAGES):
            if self._reached.get(stage, _NONE) >= self._rotated:
                return f"{stage} {self._rotated}"
        return f"refused {self._rotated}" if self._refused == self._rotated else ""
