"""A session of a lane, from its first request to its end: what is sent next, and when it is over. No I/O.

    feed: entries in order ──> Send ──> sent ──> noted
           │ small ones together (`parcels`)
           │ a barrier: kept, until everything taken before it is settled

A session keeps its state in memory only, so it may end at any moment. The session leaves behind what the destination
does not take now, and goes on; `backlog` brings it again. That is single events that are put off, and all events of a
target that refuses, which are not even sent. If the rest of a batch was taken, a small row keeps the events that were
left. Trouble with the whole destination ends the session, once the requests under way have their answers. Requests that
a destination has taken and will answer later are given up, and sent again in the next session (`Sender.ending`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.feed import Feed, Read
from shipper.pipeline.delivery.parcels import Parcel
from shipper.pipeline.delivery.probe import Probe
from shipper.pipeline.delivery.waits import Backoff
from shipper.sdk.codes import Code, Why
from shipper.sdk.feeding import Feeding
from shipper.spool.inbox import PATIENT_SECONDS
from shipper.spool.queue import Entry

NOTED_WITHIN = 0.4
"""Seconds for which answers wait, at most, to be noted with what is stored next: inputs that gather store sooner."""
SLOW_SECONDS = 10.0
"""Seconds without an answer after which a request is reported."""


class Send(NamedTuple):
    """Send what a parcel holds, or only its first `few` events."""

    parcel: Parcel
    few: int | None = None
    is_witness: bool = False
    is_probe: bool = False


class TakeSlot(NamedTuple):
    """Wait for a slot for draining."""


class Settle(NamedTuple):
    """Settle this barrier: everything below it has its final answers."""

    barrier: int


class Rest(NamedTuple):
    """Wait until something is said, or until this instant."""

    until: float = math.inf


class End(NamedTuple):
    """The session is over, and nothing is under way."""


Step = Read | Send | TakeSlot | Settle | Rest | End


class Facts(NamedTuple):
    """What a session asks of its lane: whether it is active, whether entries may wait for more to be sent with them,
    and whether it must take a slot before it sends."""

    is_active: bool = True
    lingers: bool = False
    needs_slot: bool = False


class Session:
    """The `backlog` is that of the lane, which goes on from one session to the next.

    After trouble (`last`), or if it `asks` whether the destination answers, it sends one request first.
    """

    def __init__(
        self, backlog: Backlog, feeding: Feeding, backoff: Backoff, *, last: Trouble | None = None, asks: bool = False
    ) -> None:
        self.backlog = backlog
        self.feed = Feed(backlog, feeding, backoff)
        self.trouble: Trouble | None = None
        self.answered = -math.inf
        """When a request was last answered, or failed."""
        self.is_ending = False
        """Whether no more is handed out; it ends when what is under way has its answers."""
        self.is_client_suspect = False
        """Whether the output failed by a bug, so that what it has open may not work any more."""
        self._is_active = True
        asks = asks or last is not None
        self._probe = Probe(self.feed, feeding, last) if asks and not feeding.stable else None
        self._is_alone = asks and feeding.stable
        """Whether one request goes first: as a whole, since it is to stay the same."""
        backlog.rewind()

    # -- what comes next -----------------------------------------------------------------------------------------------

    def next(self, now: float, facts: Facts) -> Step:
        """Returns what is to be done now."""
        self._is_active = facts.is_active
        if not self.is_ending and (step := self._probed()) is not None:
            return step
        if not self.is_ending and (step := self._handed_out(now, facts)) is not None:
            return step
        if not self.is_ending:
            return Rest(self.feed.until(now))
        self.feed.give_up(now)
        return Rest() if self._is_under_way else End()

    def _probed(self) -> Step | None:
        """Returns what is to be done before all other requests; None: these may begin."""
        if self._probe is None or self._probe.has_gone_on:
            return None
        if self._probe.is_under_way:
            return Rest()
        found = self._probe.next()
        if isinstance(found, Read):
            return found
        if found is not None:
            entry, few, is_witness = found
            return Send(Parcel([entry]), few, is_witness, is_probe=True)
        self._probe = None
        self.backlog.rewind()
        return None

    def _handed_out(self, now: float, facts: Facts) -> Step | None:
        """Returns the next step of a destination that answers; None: there is nothing to do, or it is ending."""
        self.feed.pass_barriers()
        self.feed.lingers = facts.lingers and self.is_quiet
        barrier = self.backlog.barrier
        if barrier is not None and self.backlog.barrier_is_reached():
            if facts.is_active:
                return Settle(barrier)
            self.end()
            return None
        found = self.feed.next(now)
        if isinstance(found, Read):
            return found
        if found is not None and self.feed.has_place(now) and not self._waits_for_first:
            return TakeSlot() if facts.needs_slot else Send(found)
        if found is None and self._is_in_vain(now):
            self.end(self._left_behind())
        return None

    @property
    def _waits_for_first(self) -> bool:
        return self._is_alone and not self.feed.progressed and bool(self.feed.sending or self.feed.noting)

    def _is_in_vain(self, now: float) -> bool:
        """Whether all that remains of a retired lane was left behind, and is not due soon."""
        return not self._is_active and self.backlog.has_left and not self.backlog.is_worth_a_slot(now)

    def _left_behind(self) -> Trouble:
        """The destination answers: its targets are asked when they are due, without another wait."""
        problem, code = self.backlog.problem() or Why("events were put off", Code.UNAVAILABLE)
        return Trouble(problem, held=bool(self.backlog.closed), is_of_left=True, code=code)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits for answers to be noted: no barrier, and no end."""
        return self.backlog.barrier is None and not self.is_ending and self._is_active

    @property
    def patience(self) -> float:
        """For how many seconds answers may wait to be noted with what is stored next; 0: somebody waits for them.

        On a quiet host that is the next batch that enters: half of the commits are saved. The first answers of a
        session are told soon.
        """
        if not self.is_quiet:
            return 0.0
        waits = self.feed.progressed and self.feed.lingers and self.feed.rests
        return NOTED_WITHIN if waits else PATIENT_SECONDS

    @property
    def waits_for_requests(self) -> bool:
        """Whether there may be something to do since a request was sent, or noted."""
        is_probing = self._probe is not None and not self._probe.has_gone_on
        return is_probing or not self.is_quiet or self.feed.waits_for_requests

    @property
    def _is_under_way(self) -> bool:
        is_probe = self._probe is not None and self._probe.is_under_way
        return is_probe or bool(self.feed.sending or self.feed.noting)

    # -- what came of it -----------------------------------------------------------------------------------------------

    def read(self, read: Read, entries: Sequence[Entry], now: float) -> bool:
        """Takes what was read; returns whether a question ended without an event to ask with."""
        if self._probe is not None and read.what in ("first", "witnesses"):
            self._probe.read(read, entries)
            return False
        return self.feed.read(read, entries, now)

    def passed(self, barrier: int) -> None:
        """A barrier was settled, or waits for an order."""
        if self.backlog.barrier == barrier:
            self.backlog.barriers.pop(0)

    def begins(self, send: Send, now: float) -> None:
        """A request begins."""
        if not send.is_probe:
            self.feed.handed(send.parcel, now)

    def taken(self) -> None:
        """The destination has taken the question, and will answer later: the others need not wait for that."""
        if self._probe is not None:
            self._probe.taken()

    def sent(self, send: Send, attempts: Sequence[Attempt], left: Sequence[Entry], now: float) -> None:
        """A request has its answers, or failed; there was no memory for the entries that are left."""
        if send.is_probe:
            return
        self.feed.sent(send.parcel, left)
        put_off = any(attempt.is_singly_put_off and attempt.asked_place is None for attempt in attempts)
        self.feed.refused(now, progressed=any(attempt.progress for attempt in attempts), put_off=put_off)

    def noted(self, send: Send) -> None:
        """The answers of a request are durable."""
        if send.is_probe and self._probe is not None:
            self._probe.noted()
        else:
            self.feed.noting -= 1

    def end(self, trouble: Trouble | None = None) -> None:
        """Hands out no more entries. The first trouble counts, with the longest wait that any answer asked for."""
        if self.trouble is None:
            self.trouble = trouble
        elif trouble is not None and trouble.retry_after is not None:
            self.trouble.retry_after = max(self.trouble.retry_after or 0.0, trouble.retry_after)
        self.is_ending = True

    # -- how it stands -------------------------------------------------------------------------------------------------

    @property
    def has_answers(self) -> bool:
        """Whether a request was answered, or failed."""
        return self.answered > -math.inf

    def overdue(self, now: float) -> Why | None:
        """Returns what to report if one request has had no answer for long, whatever became of others."""
        waits = self.backlog.waiting_seconds(now)
        return Why(f"no answer for {waits // 5 * 5:.0f} s", Code.NO_ANSWER) if waits > SLOW_SECONDS else None

    def problem(self, now: float) -> Why | None:
        """Returns what is wrong though it goes on; None: nothing is."""
        if left := self.backlog.problem():
            return Why(f"{left.problem}, events held", left.code) if self.backlog.closed else left
        return self.overdue(now)
