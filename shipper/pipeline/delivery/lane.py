"""A lane: one destination identity, until it is retired and empty. It performs what its machine decides (`machine`).

What the output has opened (`client`) lives as long as a session. Where the output wants it, and while the lane is
active, it also lives through the waits between sessions.

The barrier of a retired lane is settled outside of any session: by then its connections are closed. A lane that a newer
revision has made active again settles it in passing.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.attempts.settling import Settling
from shipper.pipeline.delivery.feed import Read
from shipper.pipeline.delivery.machine import Held, Idle, Machine, Stand
from shipper.pipeline.delivery.sending import Sending, failed
from shipper.pipeline.delivery.session import End, Rest, Send, Session, Settle, Step, TakeSlot
from shipper.pipeline.delivery.shown import Shown
from shipper.pipeline.destination.pool import Pool
from shipper.pipeline.memory.loading import LaneMemory
from shipper.pipeline.memory.loans import Lender
from shipper.pipeline.memory.recent import Recent
from shipper.pipeline.memory.slots import Slot, Slots
from shipper.plugin import Output, Sender
from shipper.process import stalls
from shipper.process.signal import Signal
from shipper.sdk.codes import Code, Why
from shipper.sdk.event import Batch
from shipper.sdk.feeding import Feeding
from shipper.sdk.retry import backoff
from shipper.spool.inbox import PATIENT_SECONDS
from shipper.spool.queue import Entry
from shipper.spool.revisions import LaneRow

SILENT_SECONDS = 3.0
"""Seconds without an answer after which a lane gives up its slot."""


class Home(Protocol):
    """What lanes share, and whom they tell."""

    pool: Pool
    slots: Slots
    lender: Lender
    recent: Recent

    def barrier_settled(self) -> None:
        """A barrier was settled."""


class Lane:
    """One destination identity."""

    def __init__(self, row: LaneRow, output: Output, home: Home) -> None:
        self.id, self.key = row.id, row.key
        self._home, self._means = home, home.pool.means
        self.link = home.pool.link(row, output, self)
        self.shown = Shown(home.pool.changed, trio.current_time())
        self.machine = Machine(self._feeding(), self._backoff, active=row.active)
        self.machine.is_fed = row.is_fed
        self.slot = Slot(home.slots, is_needed=not row.active)
        self.memory = LaneMemory(row.id, self._means.spool.queue, home.lender, home.recent)
        self._news = Signal()
        self._idle = trio.Event()
        """Set while an order may rely on it that nothing is under way."""
        self._turn = trio.Event()
        """Set, and replaced, when the lane has become active or retired, or is gone."""
        self._scope = trio.CancelScope()

    # -- what others say to it -----------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Tries at once: something that this lane needs has changed, perhaps for the better."""
        self.machine.poke()
        self._retire_client()
        self.look()

    def hasten(self) -> None:
        """Tries at once, if that may help: its destination took events of another lane (`Waits.hasten`)."""
        if self.machine.waits.hasten():
            self.look()

    def has_room(self) -> None:
        """Tries at once what was put off for lack of room for dead letters."""
        if self.machine.has_room(trio.current_time()):
            self.look()

    def look(self, *, anew: bool = False) -> None:
        """Looks for something to do; `anew`: also below what was handed out, so a session ends."""
        session = self.machine.session
        if anew:
            self.machine.anew()
            self._end(session)
        if session is not None:
            session.feed.look()
        self._news.set()

    def cut_off(self) -> None:
        """The lane may send no more: requests under way are aborted, received answers count."""
        self._scope.cancel("nothing may be sent any more")
        self._means.spool.store.hurry()
        self._news.set()

    def hurry(self) -> None:
        """From now on nothing waits for more to be sent with it."""
        self.machine.hurries = True
        self._means.spool.store.hurry()
        self._news.set()

    def arrived(self, entry: Entry, batch: Batch) -> None:
        """Takes a stored batch of this lane; it may stay in memory until it is sent."""
        session = self.machine.session
        if session is not None:
            session.feed.arrived(entry)
            if entry.seq > session.backlog.front:
                self.memory.keep(entry.seq, batch)
        self._news.set()

    def look_at_barrier(self) -> None:
        """Something that waited was superseded: if that was everything, the rest does not wait for the destination."""
        if not self._means.spool.figures.of_lanes([self.id]).events:
            self.machine.waits.end()
        self.look()

    def adopt(self, output: Output, *, active: bool, is_fed: bool = True) -> None:
        """Uses the settings of a newer revision; a session with other settings ends when its requests have their
        answers."""
        self.machine.active, self.machine.is_fed, self.slot.is_needed = active, is_fed, not active
        self._turn.set()
        self._turn = trio.Event()
        session = self.machine.session
        if active:
            self.slot.give_back()
            self.slot.leave_queue()
        elif session is not None and (
            session.backlog.waiting_seconds(trio.current_time()) > SILENT_SECONDS or not self.slot.take_at_once()
        ):
            self._end(session)
        if output != self.link.output:
            self.link.output = output
            self._end(session)
            self.machine.adopt(self._feeding())
            self._retire_client()
        self.look()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Within this block no request is under way: received answers count, the rest is aborted."""
        self.machine.quiets += 1
        self._scope.cancel("an order ends what is under way")
        self._news.set()
        try:
            await self._idle.wait()
            self.memory.forget()
            self.machine.anew()
            self.machine.failing = None
            yield
        finally:
            self.machine.quiets -= 1
            self._news.set()

    async def ended_or_active(self) -> None:
        """Waits until the lane is gone, or takes new events again."""
        while not (self.active or self.machine.is_gone):
            await self._turn.wait()

    # -- how it stands -------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether the active revision routes events to it."""
        return self.machine.active

    @property
    def problem(self) -> str | None:
        """Returns what is wrong."""
        return self.shown.problem

    @property
    def code(self) -> str:
        """Returns the code of the problem."""
        return self.shown.code

    @property
    def is_held(self) -> bool:
        """See `Shown.is_held`."""
        return self.shown.is_held

    @property
    def front(self) -> int:
        """Returns the newest slot that was handed out; nothing above it was sent yet."""
        return self.machine.backlog.front

    @property
    def next_attempt(self) -> float | None:
        """Returns the seconds until the destination is asked again; None where nothing waits for that."""
        left = self.machine.waits.destination - trio.current_time()
        return left if self.machine.session is None and left > 0 else None

    @property
    def failing(self) -> tuple[int, float] | None:
        """Returns the batch that alone fails again and again, and for how many seconds; None if there is none."""
        found = self.machine.failing
        return None if found is None else (found.batch, trio.current_time() - found.since)

    @property
    def ill_seconds(self) -> float | None:
        """Returns how long it has had a problem, without a moment of delivery; None: it has none."""
        return None if self.shown.ill_since is None else trio.current_time() - self.shown.ill_since

    def watch(self, *, holds_events: bool) -> None:
        """Looks at the clock: a lane without answers gives up its slot, one that delivers nothing is not healthy."""
        now, session, client = trio.current_time(), self.machine.session, self.link.client
        gathers = session is not None and session.feed.is_gathering
        holds_events = holds_events and not gathers
        why = self.shown.stalled(now, self.link.counters.total(), holds_events=holds_events, queues=self._queue())
        if session is not None:
            if now - max(self.slot.since, session.answered) > SILENT_SECONDS:
                self.slot.give_back()
            if session.backlog.waiting_seconds(now) > SILENT_SECONDS:
                self.memory.loans.set_aside()
            why = session.overdue(now) or why
        if client is not None:
            why = client.stuck() or why
        if why is not None:
            self.report(why)

    def _queue(self) -> str:
        if self.memory.loans.is_waiting:
            return ", it waits for memory that other requests hold"
        return ", others drain before it" if self.slot.is_waited_for else ""

    # -- what its output says to it ------------------------------------------------------------------------------------

    def lowest(self) -> int:
        """See `OutputContext.lowest`."""
        return 0 if self.key.state else self.machine.backlog.lowest()

    def taken(self) -> None:
        """See `OutputContext.taken`."""
        if self.machine.session is not None:
            self.machine.session.taken()
            self._news.set()

    def notice(self, text: str | None, code: str) -> None:
        """See `OutputContext.notice`."""
        self.shown.notice(text, code)

    # -- what its requests say to it -----------------------------------------------------------------------------------

    def changed(self) -> None:
        """See `sending.Teller`."""
        session = self.machine.session
        if session is not None and session.is_ending:
            self._end(session)
        elif session is not None and session.waits_for_requests:
            self._news.set()

    def succeeded(self) -> None:
        """See `sending.Teller`."""
        self.machine.failing = None
        self._home.pool.answers_again(self.key)
        self._home.pool.changed()

    def report(self, why: Why | None, *, held: bool = False) -> None:
        """See `sending.Teller`; `held`: only a person or a supervisor can mend it."""
        self.shown.report(trio.current_time(), why, held=held)

    def _end(self, session: Session | None, trouble: Trouble | None = None) -> None:
        """Ends a session: nobody waits for a slot or for memory any more, and its sender hands out no more."""
        if session is None:
            return
        session.end(trouble)
        self.slot.leave_queue()
        self.memory.loans.leave_queue()
        self._means.spool.store.hurry()
        if self.link.client is not None:
            self.link.client.ending()
        self._news.set()

    # -- its life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delivers until the lane is retired and empty. On cancel, requests under way are aborted."""
        stalls.unit.set(f"outputs.{self.key.output}")
        while not self.machine.is_gone:
            first = await self._means.spool.queue.window(self.id, 0, 1)
            hold = self.link.hold()
            if hold is None and self.shown.hold is not None:
                self.report(None)
            match self.machine.next(trio.current_time(), first[0] if first else None, hold):
                case Stand():
                    await self._stand()
                case Settle(barrier):
                    await self._settle_barrier(barrier)
                case Held(hold):
                    self.shown.report_hold(trio.current_time(), hold)
                    await self._news.wait()
                case Idle():
                    self.report(None)
                    await self._ask_until_news()
                case Rest():
                    await self._wait_out()
                case step:
                    await self._deliver(drains=step.drains)
        self.memory.forget()
        self._idle.set()
        self._turn.set()

    async def _stand(self) -> None:
        self._idle.set()
        await self._news.wait()
        if not self.machine.quiets:
            self._idle = trio.Event()

    async def _ask_until_news(self) -> None:
        """Waits for something to do. If it is to ask meanwhile, no connection of that is left when it returns."""
        async with trio.open_nursery() as nursery:
            if self.link.is_to_ask:
                nursery.start_soon(self.link.ask_now)
            await self._news.wait()
            nursery.cancel_scope.cancel("there may be something to do")

    async def _wait_out(self) -> None:
        """Waits until the destination may be asked again, or until an order wants the lane quiet, or it is held, or its
        client must be closed."""
        waits, trouble = self.machine.waits, self.machine.trouble
        assert trouble is not None
        self._tell(trouble)  # again, since all may have been well while nothing waited
        with trio.move_on_at(waits.destination):
            while waits.destination > -math.inf and not self._is_to_close():
                await self._news.wait()

    def _is_to_close(self) -> bool:
        """Whether no client may be open while nothing is sent."""
        return self.machine.quiets > 0 or not self.link.may_begin() or self._is_client_in_vain()

    def _is_client_in_vain(self) -> bool:
        """Whether the client must not stay open while nothing is sent."""
        return self.link.client is not None and (self.link.client.is_stale or not self.active)

    def _feeding(self) -> Feeding:
        feeding = self.link.output.feeding()
        return feeding.of_state() if self.key.state else feeding

    def _backoff(self) -> Iterator[float]:
        return backoff(*self.link.output.feeding().backoff, draw=self._means.environment.draw)

    async def _settle_barrier(self, seq: int, *, connected: bool = False) -> bool:
        """Returns False if the lane was retired, which it may not know yet: it must close its connections first."""
        end = await self._means.spool.drains.settle_barrier(self.id, seq, connected=connected)
        self.machine.is_gone = end == "gone"
        if end == "retired":
            return False
        if end == "waits":
            self.report(Why("its barrier waits for an order: dead_letter or drop", Code.ORDER_NEEDED))
            await self._news.wait()
        else:
            self._home.barrier_settled()
        return True

    # -- a client ------------------------------------------------------------------------------------------------------

    async def _deliver(self, *, drains: bool) -> None:
        """One life of the client: a session, or those of an active lane until the client must be closed."""
        self.machine.is_tried = True
        try:
            with trio.CancelScope() as self._scope:
                await (self.slot.take_to_drain() if drains else self.slot.take_to_ask())
                self.machine.begin()
                lives_on = self.machine.feeding.client == "lane"
                await self.link.live(self._run_sessions, self._client_failed, lives_on=lives_on)
        finally:
            self.machine.is_tried = False
            self.slot.give_back()
            self.memory.loans.give_back()
            if self.machine.session is not None:
                self._session_ended()
            if self.shown.code == Code.CLIENT_STUCK:
                self.report(None)

    async def _run_sessions(self, sender: Sender) -> None:
        """Ends the last session when the client is closed: an error of closing is trouble too."""
        session = self.machine.session
        while session is not None:
            await self._run_session(session, sender)
            session = await self._next_session(session)

    async def _run_session(self, session: Session, sender: Sender) -> None:
        """Performs what a session decides until it is over."""
        sending = self._sending(session)
        async with trio.open_nursery() as nursery:
            while not isinstance(step := self._next(session), End):
                match step:
                    case Read(what="requests"):
                        session.feed.read_requests(await self._means.spool.queue.open_requests(self.id))
                    case Read():
                        entries = await self._means.spool.queue.window(self.id, step.after, step.limit)
                        if session.read(step, entries, trio.current_time()):
                            sending.tell_problem()
                    case Send():
                        session.begins(step, trio.current_time())
                        nursery.start_soon(sending.perform, step, sender)
                    case TakeSlot():
                        await self.slot.take_to_drain()
                    case Settle(barrier):
                        if await self._settle_barrier(barrier, connected=True):
                            session.passed(barrier)
                        else:
                            self._end(session)
                    case Rest(math.inf):
                        await self._news.wait()
                    case rest:
                        with trio.move_on_at(rest.until):
                            await self._news.wait()

    def _next(self, session: Session) -> Step:
        was_ending = session.is_ending
        needs_slot = self.slot.is_needed and not self.slot.is_of_draining
        step = session.next(trio.current_time(), self.machine.facts(needs_slot=needs_slot))
        if session.is_ending and not was_ending:
            self._end(session)
        return step

    def _sending(self, session: Session) -> Sending:
        spool = self._means.spool
        settling = Settling(self.link, spool.queue, spool.letters, lambda: self._patience(session))
        return Sending(self.link, session, self.memory, settling, self, self._means)

    def _patience(self, session: Session) -> float:
        """For how long answers may wait: only shortly where somebody waits for the room that they make, and for keyed
        state, where the next batch may have a newer version, which would supersede what was delivered."""
        is_wanted = self.key.state or self._means.spool.room.statistics().tasks_waiting
        return min(session.patience, PATIENT_SECONDS) if is_wanted else session.patience

    def _session_ended(self) -> None:
        trouble = self.machine.ended(trio.current_time())
        if trouble is not None:
            self._put_off(trouble)

    def _put_off(self, trouble: Trouble) -> None:
        self.memory.forget()
        self._tell(trouble)
        self.link.counters["retries"] += 1

    def _tell(self, trouble: Trouble) -> None:
        text = f"{trouble.reason}, events held" if trouble.held else trouble.reason
        self.report(Why(text, trouble.code), held=trouble.held)

    async def _next_session(self, last: Session) -> Session | None:
        """Waits with an open client for the next session; returns None if the client must be closed instead."""
        client = self.link.client
        assert client is not None
        client.is_stale |= last.is_client_suspect
        if last.trouble is None or not client.lives_on or self._is_client_in_vain():
            return None
        self._session_ended()
        self.memory.loans.give_back()
        await self._wait_out()
        if not await self._means.spool.queue.window(self.id, 0, 1) or self._is_to_close():
            return None
        return self.machine.begin()

    def _retire_client(self) -> None:
        """Begins no further session with the present client: there are new settings or credentials."""
        client = self.link.client
        if client is not None:
            client.is_stale = True
            if client.lives_on:
                self._end(self.machine.session)

    def _client_failed(self, error: Exception) -> None:
        trouble = failed(self.key.output, error)
        if self.machine.session is not None:
            self._end(self.machine.session, trouble)
        else:
            self.machine.failed(trouble, trio.current_time())
            self._put_off(trouble)
