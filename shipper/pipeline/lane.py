"""A lane: one destination identity, and its life until it is retired and empty.

A lane lives in sessions (`session`). A session ends when the destination gives no answer or refuses our requests. Then
the lane gives up connections, memory and, if it is retired, its slot (`slots`), and keeps only the time of its next
try, with one request. So hundreds of lanes of a dead destination cost nothing, and no destination is asked more often
than once in a backoff. Revisions, orders and other credentials do not shorten the wait; only a new setting or
credential of this lane does.

What the output has opened (`client`) lives as long as a session. Where the output wants it, and while the lane is
active, it also lives through the waits between sessions.

The barrier of a retired lane is settled outside of any session: by then its connections are closed. A lane that a newer
revision has made active again settles it in passing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import trio

from shipper.pipeline.accepted import is_accepted
from shipper.pipeline.attempt import Trouble
from shipper.pipeline.client import Client
from shipper.pipeline.confirmed import Confirmations
from shipper.pipeline.heads import Backlogs, Heads
from shipper.pipeline.hold import Hold, hold
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.lease import Lease
from shipper.pipeline.lineages import LaneLineages
from shipper.pipeline.loans import Lender
from shipper.pipeline.recent import Recent
from shipper.pipeline.routed import Routed
from shipper.pipeline.session import Session, failed
from shipper.pipeline.slots import Slot, Slots
from shipper.pipeline.sources import Sources
from shipper.pipeline.tap import Taps
from shipper.plugin import Confirms, Output, OutputContext, Principal, Requests, Sender
from shipper.process import log, stalls
from shipper.process.environment import REAL, Environment
from shipper.process.groups import contained
from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Code, Why, checked
from shipper.sdk.errors import NotBegun, raised_at
from shipper.sdk.event import Batch
from shipper.sdk.meters import Meters
from shipper.sdk.retry import backoff
from shipper.spool.revisions import LaneKey, LaneRow
from shipper.spool.spool import Spool
from shipper.spool.store import StoreFailed

_log = log.get(__name__)

SILENT_SECONDS = 3.0
"""Seconds without an answer after which a lane gives up its slot."""
ASK_SECONDS = 60.0
STALLED_SECONDS = 10.0
"""Seconds without progress after which a lane with something to deliver is not healthy."""


class Failing(NamedTuple):
    """A batch whose events may be why sessions end; `since` when the first of these sessions in a row ended."""

    batch: int
    since: float


class Lane:
    """One destination identity.

    `on_change` is called when its problem changes, and `on_barrier` when a barrier was settled. `on_success` is called
    when the destination took events for the first time in a session, and `on_moved` with the lanes that have something
    to do now. `beside` returns, for a lane's key, whom the lanes of its destination relay to, or did last.
    """

    def __init__(
        self,
        row: LaneRow,
        output: Output,
        *,
        spool: Spool,
        keyring: Keyring,
        lease: Lease,
        aio: Asyncio,
        slots: Slots,
        lender: Lender,
        recent: Recent,
        taps: Taps,
        on_change: Callable[[], None],
        on_barrier: Callable[[], None],
        on_success: Callable[[LaneKey], None] = lambda key: None,
        on_moved: Callable[[Collection[int]], None] = lambda lanes: None,
        beside: Callable[[LaneKey], Sequence[Principal]] = lambda key: (),
        requests: Requests | None = None,
        meters: Meters | None = None,
        sources: Sources | None = None,
        environment: Environment = REAL,
    ) -> None:
        self.id, self.key, self.active = row.id, row.key, row.active
        self.output = output
        self._feeding = output.feeding()
        self.delivers = not output.relays
        """Whether a final answer comes from the end of the way, as far as is known."""
        self.problem: str | None = None
        self.code: str = Code.OK
        """The code of the problem."""
        self.is_held = False
        """Whether only a person or a supervisor can end `problem`: a refusal, or `hold`."""
        self._own: Why | None = None
        """What the lane has reported itself."""
        self._notice: Why | None = None
        """What its output reports, though the lane delivers."""
        self.hold: Hold | None = None
        """What holds its events, whatever its destination answers: a lease, or a credential; `problem` shows it."""
        self.is_tried = False
        """Whether a session is under way, or waits for a slot; False between two sessions, even with an open client."""
        self.counters: Counter[str] = Counter()
        self._confirmed = Confirmations(row.confirmed, row.confirmed_versions)
        self._requests = Requests() if requests is None else requests
        self.meters = Meters() if meters is None else meters
        self._spool, self._keyring, self._lease, self._aio = spool, keyring, lease, aio
        self._environment = environment
        self._slot = Slot(slots, is_needed=not row.active)
        self._heads = Heads(row.id, spool, lender)
        self._recent, self._taps = recent, taps
        self._on_change, self._on_barrier, self._on_success = on_change, on_barrier, on_success
        self._on_moved, self._beside = on_moved, beside
        self._sources = Sources() if sources is None else sources
        self._gone = False
        self._hurries = False
        self._suspended = 0
        self._idle = trio.Event()
        self._turn = trio.Event()
        self._scope = trio.CancelScope()
        self._backlogs = Backlogs(self._backoff)
        self._waits = self._backoff()
        self._due = -math.inf
        """When the destination may be asked again."""
        self._poked = False
        """Whether it was poked since the session began."""
        self._may_hasten = False
        """Whether another lane's success may end the wait."""
        self._waits_for_left = False
        """Whether the destination answers, and what was left behind is not due yet."""
        self._hastened = False
        """Whether another lane's success ended the last wait."""
        self._answers = False
        """Whether the destination answered when it was last asked."""
        self._is_reached = False
        """Whether an answer of any kind came, in this process."""
        self._is_to_ask = self._has_asked_well = False
        """Whether the destination is to be asked when nothing is to be sent, and whether it accepted the login then."""
        self._client: Client | None = None
        self._says_no_principal = False
        """Whether its sender failed to name the principal."""
        self._relayed_to: Principal | None = None
        """The principal of the last client that was closed."""
        self._session: Session | None = None
        self._trouble: Trouble | None = None
        """What ended the last session, if it was a trouble."""
        self._failing: Failing | None = None
        self._ill_since: float | None = None
        self._done: tuple[int, Why | None] = 0, None
        self._moved = trio.current_time()
        """When `watch` last saw the lane idle, making progress, or with a reported problem."""

    # -- what others say to it -----------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Tries at once: something that this lane needs has changed, perhaps for the better."""
        self._waits = self._backoff()
        self._backlogs = Backlogs(self._backoff)
        self._due = -math.inf
        self._poked = True
        self._retire_client()
        self._heads.wake()

    def hasten(self) -> None:
        """Tries at once, if the destination was unreachable or overloaded: it took events of another lane.

        Not after a refusal, which may concern this lane's credential, nor where the destination asked for a wait. If it
        fails again all the same, the wait after that is kept.
        """
        if self._may_hasten:
            self._may_hasten, self._hastened = False, True
            self._due = -math.inf
            self._heads.wake()

    def has_room(self) -> None:
        """Tries at once what was put off for lack of room for dead letters."""
        if self._trouble is not None and self._trouble.code == Code.DEAD_LETTERS_FULL:
            self._due = -math.inf
            self._heads.wake()
        elif self._backlogs.has_room(trio.current_time()):
            if self._waits_for_left:
                self._due = -math.inf
            self._heads.wake()

    def look(self, *, anew: bool = False) -> None:
        """Looks for something to do; `anew`: also below what was handed out, so a session ends."""
        if anew:
            self._begin_anew()
        self._heads.wake()

    def _begin_anew(self) -> None:
        """Begins at the first entry again; what the present session learns no longer counts."""
        self._backlogs = Backlogs(self._backoff)
        if self._session is not None:
            self._session.end()

    def ask(self) -> None:
        """Asks the destination, as soon as nothing is to be sent, whether it accepts the credentials; see
        `is_accepted`."""
        if not self.is_accepted and self.output.can_ask:
            self._is_to_ask = True
            self._heads.wake()

    def cut_off(self) -> None:
        """The lane may send no more: requests under way are aborted, received answers count."""
        self._scope.cancel("nothing may be sent any more")
        self._heads.wake()

    def hurry(self) -> None:
        """From now on nothing waits for more to be sent with it."""
        self._hurries = True
        self._heads.wake()

    def arrived(self, seq: int, batch: Batch) -> None:
        """Takes a stored batch of this lane; it may stay in memory until it is sent."""
        if self._session is not None and seq > self._session.backlogs.logs.front:
            self._recent.keep(self.id, seq, batch)
        self._heads.logs.news.set()

    def look_at_barrier(self) -> None:
        """Something that waited was superseded: if that was everything, the rest does not wait for the destination."""
        if not self._spool.figures.of_lanes([self.id]).events:
            self._due = -math.inf
        self._heads.wake()

    @property
    def front(self) -> int:
        """Returns the newest slot that was handed out; nothing above it was sent yet."""
        return self._backlogs.state.front

    def adopt(self, output: Output, *, active: bool) -> None:
        """Uses the settings of a newer revision; a session with other settings ends when its requests have their
        answers."""
        self.active, self._slot.is_needed = active, not active
        self._turn.set()
        self._turn = trio.Event()
        if active:
            self._slot.give_back()
            self._slot.leave_queue()
        elif self._session is not None and (
            self._session.waiting_seconds() > SILENT_SECONDS or not self._slot.take_at_once()
        ):
            self._session.end()
        if output != self.output:
            self.output, self._feeding = output, output.feeding()
            if self._session is not None:
                self._session.end()
            self.poke()
        self._heads.wake()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Within this block no request is under way: received answers count, the rest is aborted."""
        self._suspended += 1
        self._scope.cancel("an order ends what is under way")
        self._heads.wake()
        try:
            await self._idle.wait()
            self._recent.forget(self.id)
            self._backlogs, self._failing = Backlogs(self._backoff), None
            yield
        finally:
            self._suspended -= 1
            self._heads.wake()

    async def ended_or_active(self) -> None:
        """Waits until the lane is gone, or takes new events again."""
        while not (self.active or self._gone):
            await self._turn.wait()

    def watch(self, *, holds_events: bool) -> None:
        """Looks at the clock: a lane without answers gives up its slot, one that delivers nothing is not healthy."""
        now = trio.current_time()
        done = self.counters.total(), self._own
        if done != self._done or not holds_events:
            self._done, self._moved = done, now
        if self._session is not None and now - max(self._slot.since, self._session.answered) > SILENT_SECONDS:
            self._slot.give_back()
        if self._session is not None:
            self._set_aside(self._session.backlogs, now)
        if self._client is not None and (stuck := self._client.stuck()) is not None:
            self._report(stuck, Code.CLIENT_STUCK)
        elif self._session is not None and (overdue := self._session.overdue()) is not None:
            self._report(overdue, Code.NO_ANSWER)
        elif self._stalls() and now - self._moved > STALLED_SECONDS:
            text = f"nothing was delivered for more than {STALLED_SECONDS:g} s{self._queue()}"
            self._report(text, Code.NO_PROGRESS)

    def _set_aside(self, backlogs: Backlogs, now: float) -> None:
        """A lane without answers lends its memory to others."""
        for head, backlog in zip(self._heads, backlogs, strict=True):
            if backlog.waiting_seconds(now) > SILENT_SECONDS:
                head.loans.set_aside()

    @property
    def is_accepted(self) -> bool:
        """Whether the destination has accepted the credentials once, in this process: it took an event, or a session,
        or it was asked."""
        if self._has_asked_well or self.counters["delivered"] or self.counters["duplicate"]:
            return True
        there = self.principal()
        return there is not None and there.connected_seconds is not None

    @property
    def next_attempt(self) -> float | None:
        """Returns the seconds until the destination is asked again; None where nothing waits for that."""
        left = self._due - trio.current_time()
        return left if self._session is None and left > 0 else None

    @property
    def failing(self) -> tuple[int, float] | None:
        """Returns the batch that alone fails again and again, and for how many seconds; None if there is none."""
        if self._failing is None:
            return None
        return self._failing.batch, trio.current_time() - self._failing.since

    @property
    def ill_seconds(self) -> float | None:
        """Returns how long it has had a problem, without a moment of delivery; None: it has none."""
        return None if self._ill_since is None else trio.current_time() - self._ill_since

    def _stalls(self) -> bool:
        """Whether nothing else is reported; what a lane waits for may have changed since the last look."""
        return self._own is None or self._own.code == Code.NO_PROGRESS

    def _queue(self) -> str:
        if self._heads.is_waiting_for_memory:
            return ", it waits for memory that other requests hold"
        return ", others drain before it" if self._slot.is_waited_for else ""

    # -- its life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delivers until the lane is retired and empty. On cancel, requests under way are aborted."""
        stalls.unit.set(f"outputs.{self.key.output}")
        while not self._gone:
            if self._suspended:
                await self._rest()
                continue
            first = await self._spool.window(self.id, 0, 1)
            hold = self._hold()
            if hold is None and self.hold is not None:
                self._report(None)
            if first and first[0].is_barrier:
                await self._settle_barrier(first[0].seq)
            elif hold is not None and (first or hold.code != Code.CREDENTIAL_MISSING):
                await self._be_held(hold)
            elif not first and (hold is not None or not self._is_open_idle()):
                self._report(None)
                await self._ask_until_news()
            elif self._trouble is not None and self._due > trio.current_time():
                await self._wait_out(self._trouble)
            else:
                await self._deliver()
        self._recent.forget(self.id)
        self._idle.set()
        self._turn.set()

    def _hold(self) -> Hold | None:
        return hold(self.key.credentials, self._keyring, self._lease)

    def may_begin(self) -> bool:
        """Whether a request may begin now; from any thread."""
        return self._hold() is None

    def _is_open_idle(self) -> bool:
        """Whether the client stays open though nothing waits."""
        return self.active and self._feeding.is_open_idle

    async def _be_held(self, hold: Hold) -> None:
        self._report(hold.problem, hold.code, held=True)
        self.hold = hold
        await self._heads.logs.news.wait()

    async def _ask_until_news(self) -> None:
        """Waits for something to do. If it is to ask meanwhile, no connection of that is left when it returns."""
        async with trio.open_nursery() as nursery:
            if self._is_to_ask and self.active and self.may_begin() and not self.is_accepted:
                nursery.start_soon(self._ask)
            await self._heads.logs.news.wait()
            nursery.cancel_scope.cancel("there may be something to do")

    async def _ask(self) -> None:
        with trio.move_on_after(ASK_SECONDS):
            if await is_accepted(self.output, self._context()):
                self._has_asked_well = True
                self._on_change()
        self._is_to_ask = False

    async def _rest(self) -> None:
        self._idle.set()
        await self._heads.logs.news.wait()
        if not self._suspended:
            self._idle = trio.Event()

    def _put_off(self, trouble: Trouble) -> None:
        """Sets the time of the next try: after a growing wait, and not before the destination wants it."""
        self._recent.forget(self.id)
        self._tell(trouble)
        if trouble.due < math.inf:
            trouble.due = min(trouble.due, self._backlogs.next_due())  # room may have been made since
        self.counters["retries"] += 1
        wait = max(next(self._waits), trouble.retry_after or 0.0)
        self._due = -math.inf if self._poked else min(trio.current_time() + wait, trouble.due)
        self._waits_for_left = trouble.due < math.inf
        self._may_hasten = not (trouble.held or trouble.retry_after or self._hastened)
        self._hastened = False

    async def _wait_out(self, trouble: Trouble) -> None:
        """Waits until then, or until an order wants the lane quiet, or it is held, or its client must be closed."""
        self._tell(trouble)  # again, since all may have been well while nothing waited
        with trio.move_on_at(self._due):
            while self._due > -math.inf and not self._suspended and self.may_begin() and not self._is_client_in_vain():
                await self._heads.logs.news.wait()

    def _backoff(self) -> Iterator[float]:
        return backoff(*self._feeding.backoff, draw=self._environment.draw)

    async def _settle_barrier(self, seq: int, *, connected: bool = False) -> bool:
        """Returns False if the lane was retired, which it may not know yet: it must close its connections first."""
        end = await self._spool.settle_barrier(self.id, seq, connected=connected)
        self._gone = end == "gone"
        if end == "retired":
            return False
        if end == "waits":
            self._report("its barrier waits for an order: dead_letter or drop", Code.ORDER_NEEDED)
            await self._heads.logs.news.wait()
        else:
            self._on_barrier()
        return True

    # -- a session -----------------------------------------------------------------------------------------------------

    def _begin_session(self) -> Session:
        self._poked = self._may_hasten = False
        self.is_tried = True
        self._session = Session(
            lane=self.id,
            output=self.key.output,
            targets=self.output.targets,
            heads=self._heads,
            backlogs=self._backlogs,
            spool=self._spool,
            recent=self._recent,
            taps=self._taps,
            counters=self.counters,
            confirmed=self._confirmed,
            report=self._report,
            slot=self._slot,
            is_active=lambda: self.active,
            settle_barrier=partial(self._settle_barrier, connected=True),
            on_end=self._tell_ending,
            on_answer=self._note_answer,
            on_success=self._succeeded,
            on_moved=self._on_moved,
            feeding=self._feeding,
            lingers=lambda: self.active and not self._hurries,
            backoff=self._backoff,
            in_thread=self._environment.in_thread,
        )
        return self._session

    def _end_session(self, session: Session) -> None:
        self._session, self.is_tried = None, False
        self._trouble = session.trouble
        self._answers = session.trouble is None and session.answered > -math.inf
        if session.progressed:
            self._waits = self._backoff()
        self._note_failing(None if session.trouble is None else session.trouble.batch)
        if session.trouble is not None:
            self._put_off(session.trouble)

    def _succeeded(self) -> None:
        self._failing = None
        self._on_success(self.key)
        self._on_change()

    def _note_failing(self, batch: int | None) -> None:
        if batch is None:
            self._failing = None
        elif self._failing is None or self._failing.batch != batch:
            self._failing = Failing(batch, trio.current_time())

    # -- a client ------------------------------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        """One life of the client: a session, or those of an active lane until the client must be closed."""
        self.is_tried = True
        try:
            with trio.CancelScope() as self._scope:
                if self._suspended:
                    self._scope.cancel()
                await (self._slot.take_to_drain() if self._answers else self._slot.take_to_ask())
                self._client = Client(
                    self.output,
                    self._context(),
                    lives_on=self._feeding.client == "lane",
                    cut_off=self.cut_off,
                )
                self._begin_session()
                await self._client.live(self._run_sessions, self._client_failed)
        finally:
            self._client, self.is_tried = None, False
            self._slot.give_back()
            self._heads.give_back()
            if self._session is not None:
                self._end_session(self._session)
            if self.code == Code.CLIENT_STUCK:
                self._report(None)

    def _context(self) -> OutputContext:
        return OutputContext(
            self.key.output,
            self._aio,
            self._keyring.of(self.key.credentials),
            requests=self._requests,
            meters=self.meters,
            begins=self._note_reached,
            may_begin=self.may_begin,
            lane=self.id,
            lowest=lambda: self._backlogs.logs.lowest(),
            waits=lambda: self._spool.figures.waits(self.id),
            state=Routed(self._spool, self.id, self._sources, self._have_looked) if self.output.takes_state() else None,
            taken=self._note_taken,
            delivers=self._note_delivers,
            lineages=LaneLineages(self._spool, self.id),
            prove=self._spool.prove,
            beside=lambda: self._beside(self.key),
            notice=self._take_notice,
        )

    def _have_looked(self, lanes: Collection[int]) -> None:
        """Wakes lanes that may have something to do."""
        self._heads.wake()
        self._on_moved(lanes)

    def principal(self) -> Principal | None:
        """Returns the shipper that its sender relays to, while the sender is open."""
        if self._client is None or self._says_no_principal:
            return None
        try:
            with contained():
                return self._client.principal()
        except Exception as error:
            self._says_no_principal = True
            _log.error("an output cannot say whom it relays to", output=self.key.output, error=raised_at(error))
            return None

    def relayed_to(self) -> Principal | None:
        """Returns the shipper that it relays to; that of the client before, while this one has reached none."""
        there = self.principal()
        return self._relayed_to if there is None or there.confirms is None else there

    @property
    def confirms(self) -> Confirms:
        """Returns what a confirmation of its destination is worth."""
        if not self.output.relays:
            return "delivered"
        there = self.principal()
        return self._confirmed.weakest(None if there is None else there.confirms)

    def _note_taken(self) -> None:
        if self._session is not None:
            self._session.taken()

    def _tell_ending(self) -> None:
        if self._client is not None:
            self._client.ending()

    def _note_delivers(self, delivers: bool) -> None:
        self.delivers = delivers

    async def _run_sessions(self, sender: Sender) -> None:
        """Ends the last session when the client is closed: an error of closing is trouble too."""
        session = self._session
        try:
            while session is not None:
                await session.run(sender, self._trouble, asks=not (self.active or self._answers))
                session = await self._next_session(session)
        finally:
            if (there := self.relayed_to()) is not None:
                self._relayed_to = there._replace(connected_seconds=None)

    async def _next_session(self, last: Session) -> Session | None:
        """Waits with an open client for the next session; returns None if the client must be closed instead."""
        assert self._client is not None
        self._client.is_stale |= last.is_client_suspect
        if last.trouble is None or not self._client.lives_on or self._is_client_in_vain():
            return None
        self._end_session(last)
        self._heads.give_back()
        await self._wait_out(last.trouble)
        if not await self._spool.window(self.id, 0, 1):
            return None
        if self._suspended or self._is_client_in_vain() or not self.may_begin():
            return None
        return self._begin_session()

    def _is_client_in_vain(self) -> bool:
        """Whether the client must not stay open while nothing is sent."""
        return self._client is not None and (self._client.is_stale or not self.active)

    def _retire_client(self) -> None:
        """Begins no further session with the present client: there are new settings or credentials."""
        if self._client is not None:
            self._client.is_stale = True
            if self._client.lives_on and self._session is not None:
                self._session.end()

    def _client_failed(self, error: Exception) -> None:
        trouble = failed(self.key.output, error)
        if self._session is not None:
            self._session.end(trouble)
        else:
            self._trouble = trouble
            self._put_off(trouble)

    async def _note_reached(self) -> None:
        """Somebody may receive events of this lane: from now on none of them goes elsewhere, unless it is ordered.

        Returns when that is durable. Raises NotBegun if it cannot be stored.
        """
        if not self._is_reached:
            try:
                await self._spool.note_reached(self.id)
            except StoreFailed:
                raise NotBegun("the state directory takes nothing") from None
            self._is_reached = True

    def _note_answer(self) -> None:
        """Of an output that does not say when its requests begin, or not always."""
        if not self._is_reached:
            self._is_reached = True
            self._spool.note_answered(self.id)

    def _tell(self, trouble: Trouble) -> None:
        text = f"{trouble.reason}, events held" if trouble.held else trouble.reason
        self._report(text, trouble.code, held=trouble.held)

    def _report(self, problem: str | None, code: str = Code.OK, *, held: bool = False) -> None:
        self.is_held, self.hold = held, None
        self._own = None if problem is None else Why(problem, code)
        self._ill_since = None if problem is None else self._ill_since or trio.current_time()
        self._show()

    def _take_notice(self, text: str | None, code: str) -> None:
        self._notice = None if text is None else Why(log.redacted(text), checked(code))
        self._show()

    def _show(self) -> None:
        problem, code = self._own or self._notice or (None, Code.OK)
        if (problem, code) != (self.problem, self.code):
            self.problem, self.code = problem, code
            self._on_change()
