"""Whether the record in the store is that of a member: `members/NAME`, and the writes whose answer was lost.

A write has the id of its process, and a number. So a member knows its own record again, also after a crash; anything
else in that place was written by somebody else, or by a store that has gone back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shipper.fleet.member.answers import Answers
from shipper.fleet.member.head import KnownHead
from shipper.fleet.member.losses import bounded, counts_as_lost, lost_before, lost_with
from shipper.fleet.member.steps import Seen, Terms
from shipper.fleet.memory import MOST_WRITERS, Memory
from shipper.fleet.records import Lost, Report, Version


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look says about the record."""

    kind: Literal["own", "foreign", "forgotten", "outdated"]
    """`own`: this member may write over it. `forgotten`: a person forgot this member. `outdated`: this directory is
    older than its own record, as one from a backup is."""
    why: str = ""
    """Why it is foreign."""


_OWN = Finding("own")


class Registration:
    """The record as this process knows it."""

    def __init__(self, terms: Terms, memory: Memory, known: KnownHead, answers: Answers) -> None:
        self._terms, self._known, self._answers = terms, known, answers
        self.report: Report | None = None
        """The report of this member that is in the store; None before this process knows of one."""
        self.revision = 0
        """Of the record over which the next write goes."""
        self.attempted = memory.write
        """The number of the last write that may have reached the store."""
        self.forged = False
        """Whether something else is in the place of the report, and is to be replaced."""
        self.since: float | None = None
        self.begun: Version | None = None
        self._writers = frozenset({terms.instance, memory.instance, *memory.writers})
        """Processes of this directory whose late writes may still arrive: this one, and those before it."""
        self._lost: tuple[Lost, ...] = ()
        self._taken_over: Report | None = None
        """The report of a directory that is lost with the next write."""

    def next_state(self, *, leaving: bool) -> Literal["joining", "member", "left"]:
        """Returns the state of the next report: a member's only once the head was read after the joiner's."""
        if leaving:
            return "left"
        return "joining" if self.report is None else "member"

    def losses(self, wall: float) -> list[Lost]:
        """Returns the lost directories of the next report."""
        new = () if self._taken_over is None else (lost_with(self._taken_over, wall),)
        head, name = self._known.head, self._terms.name
        return bounded([one for one in (*self._lost, *new) if head is None or not head.has_forgotten(name, one)])

    def earlier_writers(self, memory: Memory) -> tuple[str, ...]:
        """Returns the processes whose writes may still arrive once this one writes.

        A write of theirs expects a record before the first that this process has written, so none is done after that.
        """
        if self.report is not None and self.report.instance == self._terms.instance:
            return ()
        if memory.instance in ("", self._terms.instance):
            return memory.writers
        return (*memory.writers, memory.instance)[-MOST_WRITERS:]

    # -- what becomes of writes ----------------------------------------------------------------------------------------

    def wrote(self, report: Report, revision: int | None) -> None:
        """A write was done as this revision; None: something else is in its place."""
        self.attempted = report.write
        if revision is None:
            return
        self.report, self.revision, self.forged = report, revision, False
        self.since, self.begun = report.since, report.begun
        self._lost, self._taken_over = tuple(report.lost), None

    def unsure(self, memory: Memory) -> None:
        """It is unknown whether the last write was done."""
        self.attempted = memory.write

    def begin_anew(self) -> None:
        """The directory has another id, under which nothing was written."""
        self.attempted = 0

    # -- what a look has found -----------------------------------------------------------------------------------------

    def judge(self, seen: Seen, memory: Memory) -> Finding:
        """Decides from a look whether the record is that of this member, and takes over what is."""
        return self._first(seen, memory) if self.report is None else self._later(seen, memory)

    def cause(self, seen: Seen, memory: Memory) -> Literal["store", "clone"]:
        """Returns who is to blame: only another process writes what this directory never wrote."""
        found = seen.report
        is_older = found is None or (found.directory == memory.directory and found.write <= memory.write)
        return "store" if is_older or self._known.is_behind else "clone"

    def _first(self, seen: Seen, memory: Memory) -> Finding:
        """Judges the record before this process knows of one of its own."""
        found = seen.report
        self.revision, self._taken_over, self._lost = seen.revision, None, ()
        if found is None:
            was_there = memory.state == "member" and memory.revision and not seen.revision
            is_missing = was_there and not self._known.is_accepted(memory.epoch)
            return Finding("foreign", "it has no record of this member") if is_missing else _OWN
        self._lost = lost_before(found)
        if found.directory != memory.directory:
            self._taken_over = found if counts_as_lost(found) else None
            return _OWN
        if found.instance == self._terms.instance:  # the answer to the first write was lost
            self.report = found
            return _OWN
        if found.write > memory.write:
            return Finding("outdated")
        if found.state in ("left", "forgotten") or memory.state != "member":
            return _OWN
        is_own = seen.revision >= memory.revision and found.instance in self._writers
        if not (is_own or seen.revision == memory.revision or self._known.is_accepted(memory.epoch)):
            return Finding("foreign", "its record of this member is older than the one that this host wrote last")
        if found.state == "member":
            self._resume(found)
        return _OWN

    def _resume(self, found: Report) -> None:
        """Goes on from the report of an earlier process."""
        self.report, self.since, self.begun = found, found.since, found.begun
        self._answers.refusal = self._answers.refusal or found.refusal
        self._answers.recall(found)

    def _later(self, seen: Seen, memory: Memory) -> Finding:
        """Judges the record after this process has seen its own."""
        found = seen.report
        if seen.revision == self.revision:
            return _OWN
        if found is not None and self._is_own_write(found, seen.revision, memory):
            self.report, self.revision = found, seen.revision
            self._answers.recall(found)
            return _OWN
        if found is None and seen.revision:
            self.forged, self.revision = True, seen.revision
            return _OWN
        if found is not None and found.state == "forgotten" and found.directory == memory.directory:
            return Finding("forgotten")
        is_older = found is None or found.epoch < self._known.epoch(memory.epoch)
        if is_older and self._known.is_accepted(memory.epoch):
            self.forged, self.revision = True, seen.revision
            return _OWN
        return Finding("foreign", "its record of this member is not the one that this host wrote last")

    def _is_own_write(self, found: Report, revision: int, memory: Memory) -> bool:
        """Returns whether a record is a write whose answer was lost."""
        is_own = found.directory == memory.directory and found.instance in self._writers
        return is_own and found.state != "forgotten" and found.write <= memory.write and revision > self.revision
