"""One lane as the process has it, in small steps: what `lane` and `sending` do with threads and tasks, done by hand."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.attempts.joining import Parts, grouped, joined
from shipper.pipeline.attempts.settling import settlements_of
from shipper.pipeline.delivery import machine as closed
from shipper.pipeline.delivery.feed import Read
from shipper.pipeline.delivery.machine import Machine
from shipper.pipeline.delivery.request import Request
from shipper.pipeline.delivery.session import End, Rest, Send, Session, Settle
from shipper.plugin import Answer, Answers, Outcome
from shipper.sdk.codes import Why
from shipper.sdk.event import Batch
from shipper.sdk.feeding import Feeding
from shipper.spool import dead_letters, queue, requests, revisions, slots
from shipper.spool.parts.queue import settle_all
from tests.pipeline.exploration.broken import Broken
from tests.pipeline.exploration.rows import Plain

SEALER: Any = Plain()
WAIT = 4.0
"""Seconds of each backoff."""


class Steady:
    """Endless waits that can be pickled."""

    def __iter__(self) -> Iterator[float]:
        return self

    def __next__(self) -> float:
        return WAIT

    def __reduce__(self) -> str:
        """It is everywhere the same one."""
        return "STEADY"


STEADY = Steady()


def steady() -> Iterator[float]:
    return STEADY


@dataclass
class Job:
    """A request that is under way."""

    request: Request
    stage: str = "load"
    """`load`, `asked` (the destination has it, or it waits for it), or `note`."""
    left: Any = ()
    at: int = 0
    """The attempt that is asked."""
    works: bool = False
    is_sent: bool = False

    @property
    def attempt(self) -> tuple[Attempt, Parts]:
        return self.request.attempts[self.at]


@dataclass
class Actor:
    """A lane, with its jobs. `pending` is what it does next: a decision whose reading may have been fetched."""

    id: int
    key: Any
    machine: Machine
    limits: dead_letters.Limits
    is_open: bool = False
    pending: Any = None
    fetched: Any = None
    news: bool = True
    idle: bool = False
    """Whether an order may rely on it that nothing is under way."""
    jobs: list[Job] = field(default_factory=list)
    is_cut: bool = False
    """Whether its client is being aborted."""

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Decides what is next, unless it waits for something."""
        if self.machine.is_gone or self.is_cut:
            return
        while self.pending is None or (self._is_waiting and (self.news or self.until() <= 0)):
            self.news = self.news and self.pending is None
            self.pending = None
            if self.is_open:
                self._decide_open()
            else:
                self.pending = "look"

    @property
    def _is_waiting(self) -> bool:
        return isinstance(self.pending, Rest | closed.Stand | closed.Held | closed.Idle)

    def _decide_open(self) -> None:
        session = self.machine.session
        assert session is not None
        while self.pending is None:
            step = session.next(0.0, self.machine.facts(needs_slot=False))
            if isinstance(step, Send):
                session.begins(step, 0.0)
                self.jobs.append(Job(Request(step, session)))
            else:
                self.pending = step

    # -- what it does --------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[str]:
        """What it can do itself now."""
        if self.machine.is_gone:
            return
        if self.is_cut:
            yield "abort"
            return
        if isinstance(self.pending, Read):
            yield "fetch" if self.fetched is None else "take"
        elif self.pending == "look" or isinstance(self.pending, Settle | End):
            yield "go on"
        for at, job in enumerate(self.jobs):
            if job.stage in ("load", "compose", "note"):
                yield f"{job.stage} {at}"

    def do(self, step: str, db: sqlite3.Connection, hold: Why | None) -> None:
        """Does one of its steps."""
        what, _, at = step.partition(" ")
        match what:
            case "abort":
                self._abort(db)
            case "fetch":
                if self.pending.what == "requests":
                    self.fetched = requests.of_lane(db, self.id)
                else:
                    self.fetched = queue.window(db, self.id, self.pending.after, self.pending.limit)
            case "take":
                self._take(self.pending, self.fetched)
            case "go":
                self._go_on(db, hold)
            case "load":
                self._load(self.jobs[int(at)], db)
            case "compose":
                self._compose(self.jobs[int(at)], db)
            case "note":
                self._note(self.jobs[int(at)], db)

    def _take(self, read: Read, found: list[Any]) -> None:
        assert self.machine.session is not None
        if read.what == "requests":
            self.machine.session.feed.read_requests(found)
        else:
            self.machine.session.read(read, found, 0.0)
        self.pending = self.fetched = None

    def _go_on(self, db: sqlite3.Connection, hold: Why | None) -> None:
        step, self.pending = self.pending, None
        if step == "look":
            first = queue.window(db, self.id, 0, 1)
            self.pending = self.machine.next(0.0, first[0] if first else None, hold)
            self.idle = isinstance(self.pending, closed.Stand) or (self.idle and self.machine.quiets > 0)
            if isinstance(self.pending, closed.Open):
                self.machine.begin()
                self.is_open, self.pending = True, None
        elif isinstance(step, Settle):
            self._settle_barrier(step.barrier, db)
        else:
            self._close()

    def _settle_barrier(self, barrier: int, db: sqlite3.Connection) -> None:
        end = revisions.settle_barrier(db, self.id, barrier, connected=self.is_open)
        session = self.machine.session
        if end == "gone":
            if self.jobs or self.is_open:
                raise Broken("B10: a lane goes while it sends")
            self.machine.is_gone = True
        elif end == "waits":
            self.pending = closed.Stand()
        if session is not None and self.is_open:
            session.end() if end == "retired" else session.passed(barrier)

    def _close(self) -> None:
        if self.jobs:
            raise Broken("B10: a session ends while requests are under way")
        if self.machine.session is not None:
            self.machine.ended(0.0)
        self.is_open, self.pending = False, None

    def cut_off(self) -> None:
        """What is under way is to be aborted."""
        self.news = True
        self.is_cut = self.is_open

    def _abort(self, db: sqlite3.Connection) -> None:
        for job in self.jobs:
            if job.stage == "asked":
                job.attempt[0].failed(Trouble("the session was cancelled"))
            if job.request.attempts:
                self._settle(job, db)
        self.jobs.clear()
        self.is_cut, self.pending, self.fetched = False, None, None
        self._close()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _load(self, job: Job, db: sqlite3.Connection) -> None:
        request = job.request
        session = self.machine.session
        assert session is not None
        loaded, lost, entries = [], [], request.send.parcel.entries
        for entry in [] if session.is_ending else entries:
            batch = queue.load(db, SEALER, self.id, entry)
            if batch is slots.NOTHING:
                lost.append(entry)
            else:
                loaded.append((entry._replace(place=batch.seq) if batch.versions else entry, batch))
        job.left = entries if session.is_ending else ()
        request.loaded(loaded, lost)
        for group in grouped(loaded, self.machine.feeding):
            attempt, parts = joined(group, (), request.send.few)
            request.add(attempt, parts, targets_of(attempt.batch) if request.wants_targets else None)
        request.asks_nothing(job.left)
        if request.in_vain is not None:
            requests.answered(db, [request.in_vain])
            session.end()
        job.at = -1
        self._next_attempt(job)

    def _next_attempt(self, job: Job) -> None:
        request, job.at, job.stage = job.request, job.at + 1, "note"
        session = self.machine.session
        assert session is not None
        if job.at < len(request.attempts) and session.trouble is None:
            job.works = request.works(job.attempt[1])
            job.stage = "asked" if job.attempt[0].stable is None else "compose"
            if job.attempt[0].next_piece() is None:
                self._judge(job)
        elif not request.is_noted_first:
            job.is_sent = True
            request.sent(job.left, 0.0)
        self._changed()

    def _compose(self, job: Job, db: sqlite3.Connection) -> None:
        """What is sent next is durable before it is sent."""
        attempt, stable = job.attempt[0], job.attempt[0].stable
        assert stable is not None
        positions, _ = attempt.next_piece() or ((), None)
        if stable.name(positions) is None:
            (number,) = db.execute("SELECT count(*) FROM request").fetchone()
            parts = stable.parts(positions)
            name = f"{parts} {number}"
            if not requests.compose(db, self.id, name, parts, stable.covering(positions)):
                attempt.failed(Trouble("another request has some of these events"))
                self._judge(job)
                return
            stable.composed(positions, name)
        job.stage = "asked"

    def _changed(self) -> None:
        """As `Lane.changed`."""
        session = self.machine.session
        assert session is not None
        self.news |= session.is_ending or session.waits_for_requests

    def answer(self, job: Job, say: Any) -> None:
        """The destination has answered: `say` does that to the attempt."""
        session = self.machine.session
        assert session is not None
        positions, events = job.attempt[0].next_piece() or ((), None)
        say(job, positions, events)
        session.answered = 0.0
        if job.attempt[0].next_piece() is None:
            self._judge(job)
        elif job.attempt[0].stable is not None:
            job.stage = "compose"

    def _judge(self, job: Job) -> None:
        attempt, parts = job.attempt
        if attempt.refusals() and not attempt.stops:
            attempt.targets = attempt.targets or targets_of(attempt.batch)
            job.request.close_targets(attempt, 0.0)
        job.request.judge(attempt, parts, works=job.works)
        self._next_attempt(job)

    def _note(self, job: Job, db: sqlite3.Connection) -> None:
        session = self.machine.session
        assert session is not None
        self._settle(job, db)
        if not job.is_sent:
            job.request.sent(job.left, 0.0)
        session.noted(job.request.send)
        self.jobs.remove(job)
        self._changed()

    def _settle(self, job: Job, db: sqlite3.Connection) -> None:
        for attempt, parts in job.request.attempts:
            settlements = settlements_of("main", attempt, parts, None)
            fits: Any = None
            while True:
                changed = {seq: one for seq, one in settlements.items() if one is not None}
                try:
                    changes, _ = settle_all(db, SEALER, self.id, changed, self.limits, 0.0)
                    if attempt.stable is not None and changed:
                        requests.answered(db, attempt.stable.answered)
                    break
                except dead_letters.Full as full:
                    fits = full.fits if fits is None else {}
                    settlements = settlements_of("main", attempt, parts, fits)
                    if attempt.stable is not None:
                        settlements = dict.fromkeys(settlements)
            renewed = {change.entry.seq for change in changes if change.is_renewed}
            if job.request.settled(attempt, parts, settlements, renewed, 0.0):
                self.machine.failing = None

    # -- time ----------------------------------------------------------------------------------------------------------

    def until(self) -> float:
        """The next instant for which it waits."""
        return self.pending.until if isinstance(self.pending, Rest) else math.inf

    def pass_time(self, seconds: float) -> None:
        """All instants are by so much nearer."""
        waits = self.machine.waits
        for name in ("destination", "wanted", "questions"):
            setattr(waits, name, _nearer(getattr(waits, name), seconds))
        backlogs = [self.machine.backlog]
        if self.machine.session is not None:
            backlogs.append(self.machine.session.backlog)
            feed = self.machine.session.feed
            feed._handed = _nearer(feed._handed, seconds)
            feed._refused_until = _nearer(feed._refused_until, seconds)
        for backlog in {id(each): each for each in backlogs}.values():
            for left in (*backlog._closed.values(), *([] if backlog._put_off is None else [backlog._put_off])):
                left.due = max(0.0, left.due - seconds)
        if isinstance(self.pending, Rest):
            self.pending = Rest(max(0.0, self.pending.until - seconds))


def _nearer(instant: float, seconds: float) -> float:
    return -math.inf if instant - seconds <= 0 else instant - seconds


def number(event: dict[str, Any]) -> int:
    return int(event["n"])


def targets_of(batch: Batch) -> list[str]:
    """Events with an even number go to one place, the others to another."""
    return ["even" if number(event) % 2 == 0 else "odd" for event in batch.own()]


FEEDING = Feeding(linger=0.0, in_flight=1, backoff=(WAIT, WAIT))
__all__ = ["FEEDING", "Actor", "Answer", "Answers", "Outcome", "Session"]
