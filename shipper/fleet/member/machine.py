"""One process of one member: which step is next, and what outcomes and events change. See the package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Literal

from msgspec.structs import replace

from shipper.fleet.member.answers import Answers
from shipper.fleet.member.claim import Name
from shipper.fleet.member.fencing import Fencing
from shipper.fleet.member.head import KnownHead
from shipper.fleet.member.marking import Marking
from shipper.fleet.member.order import later
from shipper.fleet.member.registration import Registration
from shipper.fleet.member.reporting import Reporting
from shipper.fleet.member.rollout import Rollout
from shipper.fleet.member.steps import Facts, Fetch, Look, Mark, Offer, Revoke, Save, Seen, Step, Terms, Write
from shipper.fleet.member.withdrawals import Withdrawals
from shipper.fleet.memory import Memory
from shipper.fleet.records import Head, Refusal, Report, Version
from shipper.membership.steps import Rest
from shipper.sdk.retry import Refusals
from shipper.supervise.answers import Stage
from shipper.values import Counts

Place = Literal["unknown", "taken", "apart", "ours", "out"]

UNAUTHENTIC = "unauthentic"
_SOON = 1.0
"""Seconds before another attempt where somebody else was faster."""


class Member:
    """The parts of a member, and its place among them."""

    def __init__(self, terms: Terms, memory: Memory, running: Version | None = None) -> None:
        """`memory` is durable; `running` is the version that an earlier process of this member offered."""
        self.terms, self.memory = terms, memory
        self.place: Place = "unknown"
        self.why = ""
        """Why it is apart, or what it waits for."""
        self.known = KnownHead(later(memory.newest, running), memory.head)
        self._answers = Answers()
        self._registration = Registration(terms, memory, self.known, self._answers)
        self._reporting = Reporting(terms, self.known, self._answers, self._registration)
        self._name = Name(terms)
        self._fencing = Fencing(terms.lease)
        self._rollout = Rollout(running)
        self._withdrawals = Withdrawals(self.known)
        self._marking = Marking(memory)
        self._cause: Literal["store", "clone"] = "store"
        """Why it is apart."""
        self._looking = True
        self._look_at: float | None = None
        self._look_began = 0.0
        self._confirmed = -inf
        """The beginning of the newest call that showed the record and the lease in the store: a lease after it, the
        name may be another process's."""
        self._paused = 0.0
        self._refusals = Refusals()
        self._pending: Memory | None = None
        """To be saved before anything else."""
        self._leaving = False

    # -- what others ask -----------------------------------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send: by its settings, or as long as the store may believe that."""
        return self.terms.hold or self.memory.fence

    @property
    def registered(self) -> bool:
        """Whether the store has the report of this member, not of one that still joins."""
        return self.place == "ours" and self.report is not None and self.report.state == "member"

    @property
    def left(self) -> bool:
        """Whether this process takes part no more, and has forgotten its lease."""
        return self.place == "out" and self._pending is None and not self._name.claimed

    @property
    def state(self) -> str:
        """Returns in a word how it takes part."""
        if self.place == "ours":
            return "member" if self.registered else "joining"
        return self.memory.state if self.place == "out" else {"unknown": "starting"}.get(self.place, self.place)

    @property
    def report(self) -> Report | None:
        """Returns the report in the store."""
        return self._registration.report

    @property
    def granted_until(self) -> float | None:
        return self._fencing.until

    @property
    def held(self) -> str:
        """Returns why the sidecar gets no lease now although this member takes part; empty if it gets one."""
        if not self.holding or not self.registered or self._is_proven():
            return ""
        newest, refusal = self.known.newest, self._answers.refusal
        if refusal is not None and refusal.version == newest:
            return f"it refused version {refusal.version}: {refusal.reason}"
        return f"the sidecar has not answered `active` for version {newest} since the last lapse"

    @property
    def unusable(self) -> str:
        """Returns why the newest version cannot be offered, by its records in the store; empty if they are well."""
        return self._rollout.problem_of(self.known.current)

    def _is_proven(self) -> bool:
        """Whether nothing lapsed since, or the sidecar runs the newest version as it was read after the lapse."""
        newest = self.known.newest
        return self._fencing.verified or newest is None or self._answers.runs(newest)

    # -- the next step -------------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns the next step."""
        if self._fencing.notices_end(now):
            self._lapse()
        if self._pending is not None:
            return Save(self._pending)
        if self.place == "out":
            return Revoke() if self._name.claimed else Rest(None)
        if now < self._paused:
            return Rest(self._paused)
        if self._looking or (self._look_at is not None and now >= self._look_at):
            return self._look(now)
        return self._take_part(now, facts) if self.place == "ours" else self._stand_by(facts)

    def _look(self, now: float) -> Look:
        self._looking, self._look_began = True, now
        return Look(self.known.at)

    def _stand_by(self, facts: Facts) -> Step:
        """Returns the next step of a member that takes no part."""
        is_apart = self.place == "apart"
        if is_apart and (mark := self._marking.apart(self.memory, self.known, self._cause, facts)) is not None:
            return mark
        return Save(replace(self.memory, state="left")) if self._leaving else Rest(self._look_at)

    def _take_part(self, now: float, facts: Facts) -> Step:
        first = (
            self._marking.ours()
            or self._name.step(self.memory)
            or self._withdrawals.step(facts.using, self._registered_epoch())
            or self._fencing.step(now, needed=self.holding and self.registered, proven=self._is_proven())
        )
        if first is not None:
            return first
        due, version = self._reporting.due, self._wanted()
        if version is not None and self._rollout.goes_first(version, now):
            return self._deliver(version, now)
        if self._reporting.must_write(now, self.memory, leaving=self._leaving):
            return self._report(facts)
        if version is None:
            return Rest(due)
        return Rest(min(due, self._rollout.again_at)) if now < self._rollout.again_at else self._deliver(version, now)

    def _report(self, facts: Facts) -> Step:
        memory = self._reporting.remembered(self.memory, leaving=self._leaving)
        if memory != self.memory:
            return Save(memory)
        report = self._reporting.report(memory, self._rollout.running, facts, leaving=self._leaving)
        return Write(report, self._registration.revision)

    def _wanted(self) -> Version | None:
        """Returns the version to fetch and offer; None if there is none."""
        return self._rollout.wanted(self.known.current) if self.registered and not self._leaving else None

    def _deliver(self, version: Version, now: float) -> Step:
        if now >= self._confirmed + self.terms.lease:  # as after a SIGSTOP: somebody else may have the name since
            return self._look(now)
        if self._rollout.fetched != version:
            return Fetch(version)
        if self.memory.newest != self.known.newest:
            return Save(replace(self.memory, newest=self.known.newest))
        return Offer(version)

    def _registered_epoch(self) -> int | None:
        return self.report.epoch if self.report is not None else None

    def _lapse(self) -> None:
        """Demands a look. While the key of its lease is absent, answers may name this member as fenced: only a look
        that began after the claim has found every version of theirs."""
        self._fencing.lapse()
        self._looking = True

    # -- what a look has found -----------------------------------------------------------------------------------------

    def looked(self, step: Look, seen: Seen, *, now: float) -> None:
        """A look has found this."""
        self._looking, self._look_at, self._confirmed = False, None, self._look_began
        self._marking.saw(seen)
        if seen.at < step.since:
            self.known.go_back(seen.head, seen.at)
            self._set_apart(now, "its revisions went back, as after the restore of an older snapshot", "store")
            if not self.known.is_accepted(self.memory.epoch):
                return
        self._take_head(seen.head, seen.at)
        self._judge(seen, now)

    def _judge(self, seen: Seen, now: float) -> None:
        """Decides from a look whether the record and the name are those of this member."""
        finding = self._registration.judge(seen, self.memory)
        if finding.kind == "forgotten":
            self.place, self.why = "out", "it was forgotten by `shipper fleet forget`"
            self._pending = replace(self.memory, state="forgotten")
        elif finding.kind == "outdated":
            self._pending = replace(
                self.memory,
                directory=self.terms.spare,
                state="new",
                instance="",
                writers=(),
                write=0,
                revision=0,
                epoch=0,
            )
        elif finding.kind == "foreign":
            self._set_apart(now, finding.why, self._registration.cause(seen, self.memory))
        elif self.known.is_behind:
            self._set_apart(now, self.known.behind, self._registration.cause(seen, self.memory))
        else:
            self._enter(seen, now)

    def _enter(self, seen: Seen, now: float) -> None:
        """Takes part, unless another holder has the name."""
        if (taken := self._name.judge(seen, self.memory, now)) is None:
            self.place, self.why = "ours", ""
        else:
            self.place, self.why, self._look_at = "taken", taken.why, taken.until
            self._fencing.lapse()

    def _set_apart(self, now: float, why: str, cause: Literal["store", "clone"]) -> None:
        self.place, self.why, self._cause = "apart", why, cause
        self._look_at = now + self.terms.lease
        self._fencing.lapse()

    def saw_head(self, head: Head | None, at: int, since: int = 0) -> None:
        """The head is this as of revision `at`; it was asked for when it was known as of `since`."""
        if at < since:
            self._looking = True
        else:
            self._take_head(head, at)

    def _take_head(self, head: Head | None, at: int) -> None:
        if at < self.known.at:
            return
        if head is None or self.known.head is None or head.newest != self.known.current:
            self._rollout.named_another()
        self.known.take(head, at)
        self._withdrawals.saw_head(self._registered_epoch())
        if self.known.is_behind:
            self._looking = self._looking or self.place == "ours"
        elif self.place == "apart" and self.known.is_accepted(self.memory.epoch):
            self._looking = True

    # -- outcomes of other steps ---------------------------------------------------------------------------------------

    def failed(self, until: float) -> None:
        """The store did not answer, or refused: nothing more before this instant, and then a new look. Whether a write
        was done is unknown."""
        self._registration.unsure(self.memory)
        self._rollout.had_turn()
        self._paused, self._looking = until, True

    def saved(self, memory: Memory) -> None:
        """The memory is durable."""
        if memory.directory != self.memory.directory:
            self._registration.begin_anew()
            self._marking.renamed(memory)
            self._rollout.begin_anew()
            self._looking = True
        self.memory, self._pending = memory, None
        if self._leaving and memory.state == "left" and self.place != "ours":
            self.place = "out"

    def claimed(self, *, done: bool, now: float) -> None:
        """The lease's key is this process's, or somebody else has changed it."""
        self._name.claimed = done
        self._lapse()
        if not done:
            self._paused = now + _SOON

    def lapsed(self, now: float) -> None:
        """The store has ended the lease, or somebody has removed its key."""
        self._registration.unsure(self.memory)
        self._was_refused("lease", now)
        self._name.claimed = False
        self._lapse()

    def revoked(self) -> None:
        self._name.claimed = False

    def wrote(self, step: Write, revision: int | None, *, began: float, now: float) -> None:
        """A write that began at an instant was done as this revision; None: something else is in its place."""
        first, report = self.report is None, step.report
        self._registration.wrote(report, revision)
        if revision is None:
            self._looking = True
            self._was_refused("report", now, at_once=not first)
            return
        self._refusals.over("report")
        self._refusals.over("lease")
        self._confirmed = began
        self._reporting.wrote(began, first=first)
        self._rollout.gets_turn()
        self._fencing.renew(began)
        if report.state == "joining":
            self._looking = True
        if report.state == "left":
            self.place, self.why = "out", "it has left the fleet"
        elif self.memory.fence and report.fence is None:
            self._fencing.loosened()
            self._pending = replace(self.memory, fence=False)

    def _was_refused(self, what: str, now: float, *, at_once: bool = True) -> None:
        """A step was not done, as somebody else was faster: it is tried again at once, or after a pause."""
        if self._refusals.is_repeated(what) or not at_once:
            self._paused = now + _SOON

    def marked(self, step: Mark, revision: int | None, *, now: float) -> None:
        """A mark was written as this revision, 0 if it was removed; None: something else is in its place."""
        if revision is None:
            self._paused, self._looking = now + _SOON, True
        else:
            self._marking.marked(step.restored, revision)

    def fetched(self, version: Version) -> None:
        """The text and the secrets of a version were read, and are authentic."""
        self._rollout.was_read(version)

    def read_in_part(self) -> None:
        """A version was not read within its time."""
        self._rollout.had_turn()

    def missing(self, version: Version, problem: str, *, now: float, wall: float) -> None:
        """The store lacks a record of a version: a newer one may have replaced it; if not, it is refused."""
        if self._rollout.lacks(version):
            self.unauthentic(version, problem, now=now, wall=wall)
        else:
            self._looking = True

    def unauthentic(self, version: Version, problem: str, *, now: float, wall: float) -> None:
        """A record of a version is not sealed by the fleet; it is refused, and tried again a lease later."""
        self._answers.refuse(Refusal(version, UNAUTHENTIC, [problem], wall))
        self._rollout.refused(version, now + self.terms.lease, problem)

    def offered(self, version: Version) -> None:
        """A version was kept and offered."""
        self._rollout.offered(version)
        self._reporting.offered()

    def withdrew(self, ids: Iterable[str]) -> None:
        self._withdrawals.withdrew(ids)

    def forgot(self, ids: Iterable[str]) -> None:
        self._withdrawals.forgot(ids)

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self._fencing.granted(until)

    # -- events --------------------------------------------------------------------------------------------------------

    def answered(
        self,
        version: Version,
        stage: Stage | Literal["refused"],
        reason: str,
        problems: Sequence[str],
        ledger: Counts | None = None,
        local: str = "",
        *,
        wall: float,
    ) -> None:
        """The sidecar has answered to a version; the ledger and the own rotation wait for the next write."""
        self._answers.take(version, stage, reason, problems, ledger, local, wall)

    def leave(self) -> None:
        """This member leaves the fleet."""
        self._leaving = True
