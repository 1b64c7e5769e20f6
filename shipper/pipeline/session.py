"""A session of a lane: its output is open, workers send, and answers are noted in the spool.

    feed: entries in order ──> work: attempt ──> note: settle
            │ small ones together (`parcels`), as far as there is memory for them (`loading`)
            │ a barrier: kept, until everything taken before it is settled

All of this exists twice, for the lane's log events and for its keyed state (`heads`), which share the client and its
trouble. Each may have as many requests under way as the output wants, and both together one more, so that neither shuts
the other out. Where answers come later (`Feeding.answers_later`), each has all its places.

A session keeps its state in memory only, so it may end at any moment. The session leaves behind what the destination
does not take now, and goes on; `backlog` brings it again. That is single events that are put off, and all events of a
target that refuses, which are not even sent. If the rest of a batch was taken, a small row keeps the events that were
left. Trouble with the whole destination ends the session, once the requests under way have their answers. Requests that
a destination has taken and will answer later are given up, and sent again in the next session (`Sender.ending`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter

import trio

from shipper.pipeline.attempt import Attempt, Trouble
from shipper.pipeline.backlog import Backlog
from shipper.pipeline.confirmed import Confirmations
from shipper.pipeline.feed import Feed, HandOut
from shipper.pipeline.heads import Backlogs, Head, Heads
from shipper.pipeline.loading import Loaded, Loading
from shipper.pipeline.loans import Loan
from shipper.pipeline.parcels import Parcel
from shipper.pipeline.recent import Recent
from shipper.pipeline.settling import Settling
from shipper.pipeline.slots import Slot
from shipper.pipeline.suspects import WITNESSES, Suspects, blames_event, code_of, said
from shipper.pipeline.tap import Taps
from shipper.plugin import Sender
from shipper.process import log
from shipper.process.environment import InThread
from shipper.process.groups import contained
from shipper.sdk.codes import Code
from shipper.sdk.errors import Held, Later, StartFailed, TooLarge, raised_at
from shipper.sdk.event import Batch, together
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry
from shipper.spool.spool import Spool

_log = log.get(__name__)

PROBE_EVENTS = 8
INLINE_BYTES = 64 << 10
REFUSED = 4
"""After so many attempts in a row without a final answer, each next one waits."""
NOTING = 4
"""The most attempts that are under way or wait to be noted, unless the output wants more requests at once: while the
disk hangs, no more is sent."""
SLOW_SECONDS = 10.0
"""Seconds without an answer after which a request is reported."""
LETTERS_FULL = "the dead-letter store is full, rejected events are held"


Sent = tuple[Attempt, list[tuple[Entry, range]]]
"""An attempt, and which of its events belong to which entry."""


class _Side:
    """A head of the lane, in one session."""

    def __init__(self, feed: Feed, loading: Loading, in_flight: int, waits: Iterator[float]) -> None:
        self.feed, self.backlog, self.loading = feed, feed.backlog, loading
        self.noting = trio.Semaphore(max(NOTING, in_flight))
        self.is_working = False
        """Whether it has workers."""
        self.progressed = False
        """Whether a final answer was noted; a rejection for which dead letters have no room is none."""
        self.refused, self.refused_waits = 0, waits
        """Attempts in a row without a final answer."""


class Session:
    """`lane` is the id; `report` takes a problem, or None, and its code.

    `targets` is that of the output, `heads` and `backlogs` those of the lane, which go on from one session to the next.
    A retired lane holds `slot` while it sends. `settle_barrier` is called for a barrier that an active lane has passed;
    if it returns False, the lane is not active, and ends its session there. `on_end` is called when nothing more is
    handed out. `on_answer` is called when the destination has answered for events, before the answer is noted;
    `on_success` when the first event has its final answer; `on_moved` with the lanes that have something to do now.
    `lingers`: whether entries may wait for more.
    """

    def __init__(
        self,
        *,
        lane: int,
        output: str,
        targets: Callable[[Batch], Sequence[str]],
        heads: Heads,
        backlogs: Backlogs,
        spool: Spool,
        recent: Recent,
        taps: Taps,
        counters: Counter[str],
        confirmed: Confirmations,
        report: Callable[[str | None, str], None],
        slot: Slot,
        is_active: Callable[[], bool],
        settle_barrier: Callable[[int], Awaitable[bool]],
        on_end: Callable[[], None],
        on_answer: Callable[[], None],
        on_success: Callable[[], None],
        on_moved: Callable[[Collection[int]], None],
        feeding: Feeding,
        lingers: Callable[[], bool],
        backoff: Callable[[], Iterator[float]],
        in_thread: InThread,
    ) -> None:
        self.trouble: Trouble | None = None
        self.backlogs = backlogs
        self.answered = -math.inf
        """When a request was last answered, or failed."""
        self.is_client_suspect = False
        """Whether the output failed by a bug, so that what it has open may not work any more."""
        self._lane, self._output, self._targets, self._spool = lane, output, targets, spool
        self._taps, self._heads = taps, heads
        self._report, self._slot = report, slot
        self._is_active, self._settle_barrier = is_active, settle_barrier
        self._on_end, self._on_answer, self._on_success = on_end, on_answer, on_success
        self._feeding, self._lingers, self._backoff = feeding, lingers, backoff
        self._in_thread = in_thread
        self._over = trio.Event()
        self._turn = trio.Lock()
        """Waits for the slot."""
        self._places = trio.Semaphore(feeding.in_flight + (feeding.in_flight if feeding.answers_later else 1))
        self._recent = recent
        self._logs, self._state = self._side(heads.logs, backlogs.logs), self._side(heads.state, backlogs.state)
        self._sides = self._logs, self._state
        self._settling = Settling(
            lane=lane,
            output=output,
            spool=spool,
            counters=counters,
            confirmed=confirmed,
            is_quiet=self._is_quiet,
            on_moved=on_moved,
        )
        self._ending = False
        self._probing: Callable[[], None] | None = None
        """Called when the oldest request is taken, and will be answered later."""
        self._has_gone_on = False
        """Whether it was taken."""

    def _side(self, head: Head, backlog: Backlog) -> _Side:
        feed = Feed(
            head,
            backlog,
            self._feeding,
            lingers=lambda: self._lingers() and self._is_quiet(),
            on_nothing_asked=self._tell_problem,
        )
        loading = Loading(
            lane=self._lane,
            spool=self._spool,
            recent=self._recent,
            loans=head.loans,
            most_bytes=self._feeding.bytes,
            is_ending=lambda: self._ending,
            on_damage=partial(self._note_damage, backlog),
            on_gone=partial(self._note_gone, backlog),
        )
        return _Side(feed, loading, self._feeding.in_flight, self._backoff())

    @property
    def progressed(self) -> bool:
        """Whether a final answer was noted."""
        return any(side.progressed for side in self._sides)

    def end(self, trouble: Trouble | None = None) -> None:
        """Hands out no more entries; the session ends when what is under way has its answers.

        The first trouble counts, with the longest wait that any answer asked for.
        """
        if self.trouble is None:
            self.trouble = trouble
        elif trouble is not None and trouble.retry_after is not None:
            self.trouble.retry_after = max(self.trouble.retry_after or 0.0, trouble.retry_after)
        self._ending = True
        self._over.set()
        self._slot.leave_queue()
        for head in self._heads:
            head.loans.leave_queue()
        self._heads.wake()
        self._on_end()

    def taken(self) -> None:
        """The destination has taken the question, and will answer later: the others need not wait for that."""
        if self._probing is not None:
            go_on, self._probing = self._probing, None
            go_on()

    def overdue(self) -> str | None:
        """Returns what to report if one request has had no answer for long, whatever became of others."""
        waits = self.waiting_seconds()
        return f"no answer for {waits // 5 * 5:.0f} s" if waits > SLOW_SECONDS else None

    def waiting_seconds(self) -> float:
        """Returns for how long the oldest request has had no answer."""
        now = trio.current_time()
        return max(backlog.waiting_seconds(now) for backlog in self.backlogs)

    async def run(self, sender: Sender, last: Trouble | None, *, asks: bool) -> None:
        """Delivers until trouble, or until a retired lane has passed its barrier.

        After trouble, or if it `asks` whether the destination answers, it sends one request first.
        """
        self.backlogs.rewind()
        async with trio.open_nursery() as nursery:
            if (last is None and not asks) or await nursery.start(self._probe, sender, last):
                await self._deliver(sender)

    async def _deliver(self, sender: Sender) -> None:
        async with trio.open_nursery() as nursery:
            for side in self._sides:
                nursery.start_soon(self._deliver_side, side, sender)

    async def _deliver_side(self, side: _Side, sender: Sender) -> None:
        """Starts the workers of a head with its first entry: most lanes have no state."""
        send, receive = trio.open_memory_channel[Parcel](0)
        async with trio.open_nursery() as nursery, send, receive:

            async def hand_out(parcel: Parcel) -> bool:
                if not side.is_working:
                    side.is_working = True
                    for _ in range(self._feeding.in_flight):
                        nursery.start_soon(self._work, side, sender, receive.clone(), nursery)
                    await receive.aclose()
                return await self._hand_out(side, send, parcel)

            await self._feed(side, hand_out)

    async def _probe(self, sender: Sender, last: Trouble | None, task_status: trio.TaskStatus[bool]) -> None:
        """Sends one request, a small one after a refusal; tells the starter whether the destination answers again."""
        is_small = last is not None and last.held and not self._feeding.answers_later
        for side in self._sides_to_ask(last):
            if first := await side.feed.first():
                if not (is_small or side.backlog.suspects.are_known([first.seq])):
                    self._probing = partial(self._go_on, side.backlog, first, task_status)
                await self._ask(side, sender, first, PROBE_EVENTS if is_small else None)
                break
        self._probing = None
        if not self._has_gone_on:
            self.backlogs.rewind()
            task_status.started(self.trouble is None)

    def _go_on(self, backlog: Backlog, first: Entry, task_status: trio.TaskStatus[bool]) -> None:
        """Counts the first request among those under way from now on."""
        backlog.at_front(first)
        self._has_gone_on = True
        task_status.started(True)

    def _sides_to_ask(self, last: Trouble | None) -> Sequence[_Side]:
        """Returns the heads, first the one that had no trouble: the trouble may concern only the other."""
        return self._sides if last is None or last.is_of_state else self._sides[::-1]

    async def _ask(self, side: _Side, sender: Sender, entry: Entry, few: int | None) -> None:
        if side.backlog.suspects.are_known([entry.seq]) and not self._feeding.ordered:
            await self._ask_witness(side, sender, entry)
        if self.trouble is None:
            await self._ask_with(side, sender, entry, few)

    async def _ask_witness(self, side: _Side, sender: Sender, suspect: Entry) -> None:
        """Sends a later entry on which the output has not failed yet, to see whether the output works at all."""
        above = await side.feed.above(suspect.seq)
        fresh = [entry for entry in above if entry.seq not in side.backlog.suspects]
        for witness in fresh[:WITNESSES]:
            if self.trouble is None and not side.progressed:
                await self._ask_with(side, sender, witness, None, is_witness=True)
        if side.progressed:
            side.backlog.suspects.output_works()

    async def _ask_with(
        self, side: _Side, sender: Sender, entry: Entry, few: int | None, *, is_witness: bool = False
    ) -> None:
        """Sends one entry, or a few events of it, before all others."""
        was_left = entry.seq <= side.backlog.front
        loan, sent, _ = await self._attempt(side, sender, Parcel([entry]), few, is_witness=is_witness)
        await self._note(side, sent, loan)
        if was_left:
            side.backlog.outstanding.pop(entry.seq, None)

    # -- entries, in order ---------------------------------------------------------------------------------------------

    async def _feed(self, side: _Side, hand_out: HandOut) -> None:
        """Hands out the entries of a head until the session ends, and settles barriers when everything below is
        settled."""
        while not self._ending:
            if side is self._logs and self.backlogs.barrier_is_reached():
                barrier = self.backlogs.logs.barriers.pop(0)
                if not (self._is_active() and await self._settle_barrier(barrier)):
                    return self.end()
            more = await side.feed.next(hand_out)
            self._tell_of_barrier()
            if more or self._ending:
                continue
            side.feed.is_idle = True
            if not self._is_active() and self._is_in_vain():
                return self.end(self._left_behind())
            await side.feed.wait()
        return None

    def _tell_of_barrier(self) -> None:
        """Lets the state pass a barrier that the log events have passed, or settles it."""
        barrier = self.backlogs.barrier
        if barrier is not None and self.backlogs.state.front < barrier:
            self._state.feed.news.set()
        elif self.backlogs.barrier_is_reached():
            self._logs.feed.news.set()

    def _is_in_vain(self) -> bool:
        """Whether all that remains was left behind, and is not due soon."""
        now = trio.current_time()
        if not any(backlog.has_left for backlog in self.backlogs) or self.backlogs.barrier_is_reached():
            return False
        return all(side.feed.is_idle and not side.backlog.is_worth_a_slot(now) for side in self._sides)

    async def _hand_out(self, side: _Side, send: trio.MemorySendChannel[Parcel], parcel: Parcel) -> bool:
        """Gives entries to a free worker; returns False if the session ends instead."""
        side.backlog.hand_out(parcel.entries)
        if self._slot.is_needed:
            async with self._turn:
                if not self._ending:
                    await self._slot.take_to_drain()
        with suppress(trio.BrokenResourceError):  # all workers have stopped, for trouble
            if not self._ending:
                await send.send(parcel)
                return True
        return False

    def _left_behind(self) -> Trouble:
        """The destination answers: its targets are asked when they are due, without another wait."""
        problem, code = self.backlogs.problem()
        held = any(backlog.closed for backlog in self.backlogs)
        return Trouble(problem or "events were put off", held=held, due=self.backlogs.next_due(), code=code)

    async def _work(
        self, side: _Side, sender: Sender, entries: trio.MemoryReceiveChannel[Parcel], nursery: trio.Nursery
    ) -> None:
        async with entries:
            async for parcel in entries:
                left: Sequence[Entry] = parcel.entries
                while left:
                    await side.noting.acquire()
                    async with self._place():
                        loan, sent, left = await self._attempt(side, sender, Parcel(left, parcel.question))
                    if self._feeding.ordered and any(attempt.has_rejected for attempt, _ in sent):
                        await self._note_beside(side, sent, loan)  # there may be no room for them as dead letters
                    else:
                        nursery.start_soon(self._note_beside, side, sent, loan)
                    await self._slow_down_if_refused(side, sent)
                    if self._ending:
                        return

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    async def _slow_down_if_refused(self, side: _Side, sent: list[Sent]) -> None:
        """Limits the rate while batch after batch is put off singly: others get their turn, without a storm of
        requests."""
        if any(attempt.progress for attempt, _ in sent):
            side.refused, side.refused_waits = 0, self._backoff()
            return
        if not any(attempt.is_singly_put_off and attempt.asked_place is None for attempt, _ in sent):
            return
        side.refused += 1
        if side.refused >= REFUSED and not self._ending:
            with trio.move_on_after(next(side.refused_waits)):
                await self._over.wait()

    async def _note_beside(self, side: _Side, sent: list[Sent], loan: Loan | None) -> None:
        try:
            await self._note(side, sent, loan)
        finally:
            side.noting.release()

    # -- a parcel ------------------------------------------------------------------------------------------------------

    async def _attempt(
        self, side: _Side, sender: Sender, parcel: Parcel, few: int | None = None, *, is_witness: bool = False
    ) -> tuple[Loan | None, list[Sent], Sequence[Entry]]:
        """Sends what entries hold (the first `few` events), as far as memory goes; returns the loan and the remaining
        entries.

        Notes received answers if it is cancelled.
        """
        outstanding = side.backlog.outstanding
        question = parcel.question
        target = None if question is None else question.target
        loan, loaded, left = await side.loading.load(parcel.entries)
        side.backlog.hand_out([entry for entry, _ in loaded])
        sent = [await self._prepared(side.backlog, group, target, few) for group in self._grouped(loaded)]
        if question is not None and not left and not any(attempt.is_asked for attempt, _ in sent):
            side.feed.nothing_asked(question, parcel.entries[0].seq)  # also if it was damaged
        is_suspect = side.backlog.suspects.are_known([entry.seq for entry, _ in loaded])
        try:
            for attempt, parts in sent:
                if self.trouble is not None:
                    break
                works = side.progressed or side.backlog.suspects.is_witnessed(parts[0][0].seq)
                under_way = partial(_under_way, outstanding, [entry.seq for entry, _ in parts])
                await self._send(sender, attempt, under_way, in_halves=is_suspect, works_otherwise=works)
                await self._close_targets(side.backlog, attempt)
                works = works or attempt.progress > 0
                trouble = self._trouble_of(
                    side.backlog.suspects, attempt, parts[0][0], works=works, is_witness=is_witness
                )
                if trouble is not None:
                    trouble.is_of_state = side is self._state
                    if attempt.blames_events:
                        trouble.batch = next((entry.seq for entry, part in parts if attempt.is_open(part)), None)
                    self.end(trouble)
        except trio.Cancelled:
            await self._note(side, sent, loan)
            raise
        return loan, sent, left

    def _trouble_of(
        self, suspects: Suspects, attempt: Attempt, first: Entry, *, works: bool, is_witness: bool
    ) -> Trouble | None:
        """Returns what ends the session after an attempt; gives up events that break the output (`suspects`)."""
        if attempt.doubt is None:
            return attempt.overloaded()
        suspects.failed(first.seq)
        if is_witness:
            return None
        if attempt.trouble is None:
            is_new = attempt.progress > 0 and not suspects.is_isolated(first.seq)
            if is_new:
                suspects.isolated(first.seq)
            if works and not is_new:
                attempt.give_up_doubted()
            else:
                attempt.failed(attempt.doubt)
        return attempt.overloaded()

    def _grouped(self, loaded: Loaded) -> list[Loaded]:
        """Returns the entries of each request: those that go the same way, in their order; in strict order, only
        neighbours."""
        ways = [batch.way(self._feeding.grouping, mixes=self._feeding.mixes) for _, batch in loaded]
        pairs = list(zip(ways, loaded, strict=True))
        if self._feeding.ordered:
            return [[one for _, one in those] for _, those in groupby(pairs, key=itemgetter(0))]
        groups = dict[object, Loaded]()
        for way, one in pairs:
            groups.setdefault(way, []).append(one)
        return list(groups.values())

    async def _prepared(
        self, backlog: Backlog, group: Sequence[tuple[Entry, Batch]], target: str | None, few: int | None
    ) -> Sent:
        """Returns one attempt for all events that go the same way, without those of targets that refuse."""
        attempt, parts = await self._sent(group, few)
        attempt.ordered, attempt.fences = self._feeding.ordered, backlog.fences
        if target is not None or backlog.closed:
            attempt.targets = await self._targets_of(attempt.batch)
        if attempt.targets is None:
            attempt.asked_place = target
        elif target is not None:
            attempt.ask_target(target, PROBE_EVENTS)
        elif few is None and backlog.closed:
            attempt.leave_out(backlog.closed)
        return attempt, parts

    async def _targets_of(self, batch: Batch) -> Sequence[str] | None:
        """Returns the targets; None if the output fails to name them. Then everything is sent, and the output may fail
        on the event that is the cause."""
        try:
            inline = len(batch.body) <= INLINE_BYTES
            with contained():
                targets = self._targets(batch) if inline else await self._in_thread(self._targets, batch)
            if len(targets) == batch.count and set(map(type, targets)) <= {str}:
                return targets
            error = f"{len(targets)} targets for {batch.count} events, or targets that are no texts"
        except Exception as failure:
            error = raised_at(failure)
        _log.error("an output cannot say where events go", output=self._output, error=error)
        return None

    async def _sent(self, group: Sequence[tuple[Entry, Batch]], only: int | None) -> Sent:
        batches, grouping = [batch for _, batch in group], self._feeding.grouping
        inline = len(batches) == 1 or sum(len(batch.body) for batch in batches) <= INLINE_BYTES
        batch = together(batches, grouping) if inline else await self._in_thread(together, batches, grouping)
        ends = list(accumulate(batch.count for _, batch in group))
        parts = [(entry, range(end - batch.count, end)) for (entry, batch), end in zip(group, ends, strict=True)]
        return (Attempt.probe(batch, only) if only is not None else Attempt(batch)), parts

    async def _close_targets(self, backlog: Backlog, attempt: Attempt) -> None:
        """Sends nothing more to the targets that refused events of this attempt."""
        if attempt.ordered or not attempt.refusals():
            return
        if attempt.targets is None:
            attempt.targets = await self._targets_of(attempt.batch)
        now, wait = trio.current_time(), attempt.retry_after or 0.0
        for name, answer in attempt.refused_targets().items():
            backlog.refuse(name, answer.reason, now, wait, answer.code)

    async def _note_damage(self, backlog: Backlog, entry: Entry) -> None:
        with trio.CancelScope(shield=True):
            await self._settling.damaged(entry)
        self._note_gone(backlog, entry)

    def _note_gone(self, backlog: Backlog, entry: Entry) -> None:
        backlog.settled(entry.seq)
        self._heads.wake()

    async def _send(
        self,
        sender: Sender,
        attempt: Attempt,
        under_way: Callable[[], AbstractContextManager[None]],
        *,
        in_halves: bool,
        works_otherwise: bool,
    ) -> None:
        """Sends all of an attempt; `in_halves` finds single events on which the output fails unexpectedly. Each request
        is in a block of `under_way`."""
        while (piece := attempt.next_piece()) is not None:
            positions, events = piece
            self._taps.offer(f"outputs.{self._output}", events)
            try:
                with under_way(), contained():
                    answers = await sender.send(events)
                self._on_answer()
                attempt.answered(positions, answers)
            except TooLarge as error:
                attempt.too_large(positions, str(error), error.code)
            except Held as error:
                attempt.failed(Trouble(str(error), held=True, code=error.code))
            except Later as error:
                attempt.put_off(error)
            except trio.Cancelled:
                attempt.failed(Trouble("the session was cancelled"))
                raise
            except Exception as error:
                self.is_client_suspect |= not isinstance(error, OSError)
                if in_halves and blames_event(error):
                    attempt.broke(positions, said(error), works_otherwise=works_otherwise, code=code_of(error))
                else:
                    attempt.failed(failed(self._output, error))
                    attempt.doubt = attempt.trouble if blames_event(error) else None
            self.answered = trio.current_time()

    async def _note(self, side: _Side, sent: list[Sent], loan: Loan | None) -> None:
        """Settles what was answered, and notes what is left. Not cancelled: the destination has the events."""
        with trio.CancelScope(shield=True):
            for attempt, parts in sent:
                await self._note_answers(side, attempt, parts)
        if loan is not None:
            loan.give_back()
        if side.backlog.has_left or side.backlog.is_passing or not self._is_quiet():
            self._heads.wake()

    def _is_quiet(self) -> bool:
        """Whether nobody waits for answers to be noted: no barrier, and no end."""
        return self.backlogs.barrier is None and not self._ending and self._is_active()

    async def _note_answers(self, side: _Side, attempt: Attempt, parts: Sequence[tuple[Entry, range]]) -> None:
        backlog = side.backlog
        worst, freed = attempt.worst(), self._spool.letters_freed
        settlements, renewed = await self._settling.settle(attempt, parts)
        if any(settlement is not None for settlement in settlements.values()):
            is_first, side.progressed = not self.progressed, True
            if is_first:
                self._on_success()
        now, wait = trio.current_time(), attempt.retry_after or 0.0
        for entry, part in parts:
            settlement = settlements[entry.seq]
            lacks_room = attempt.rejected(part) > (0 if settlement is None else len(settlement.letters))
            if entry.seq in renewed:
                backlog.renewed(entry.seq)
                side.feed.news.set()
            elif settlement is not None and settlement.rest is None:
                backlog.settled(entry.seq)
            elif lacks_room and attempt.ordered:
                self.end(Trouble(LETTERS_FULL, code=Code.DEAD_LETTERS_FULL))
            elif (keys := attempt.keeps(part)) is not None:
                backlog.left(entry.seq, keys, now, worst.reason, wait, worst.code)
                if lacks_room:
                    backlog.left_for_room(entry.seq, now, LETTERS_FULL)
        if freed != self._spool.letters_freed:
            backlog.has_room(now)
        self._open_targets(backlog, attempt)
        self._tell_problem()

    def _tell_problem(self) -> None:
        """Reports what is wrong now, or that nothing is."""
        if self.trouble is None:
            self._report(*self._problem())

    def _open_targets(self, backlog: Backlog, attempt: Attempt) -> None:
        """Sends again what was left behind for targets that took events."""
        now, asked = trio.current_time(), attempt.asked_place
        takes = attempt.taking_targets().intersection(backlog.closed)
        if asked is not None and attempt.is_asked and asked not in takes:
            put_off_singly = attempt.is_singly_put_off and attempt.trouble is None
            backlog.answered(asked, now, takes=put_off_singly and asked not in attempt.refused_targets())
        for name in takes:
            backlog.answered(name, now, takes=True)

    def _problem(self) -> tuple[str | None, str]:
        """Returns the problem and its code."""
        left, code = self.backlogs.problem()
        if left:
            return (f"{left}, events held" if any(backlog.closed for backlog in self.backlogs) else left), code
        if overdue := self.overdue():
            return overdue, Code.NO_ANSWER
        return self._settling.rejected_reason, Code.REJECTED


@contextmanager
def _under_way(outstanding: dict[int, float], seqs: Sequence[int]) -> Iterator[None]:
    """Notes that a request for these entries waits for its answer, as long as the block lasts."""
    now = trio.current_time()
    outstanding.update(dict.fromkeys(seqs, now))
    try:
        yield
    finally:
        outstanding.update({seq: math.inf for seq in seqs if seq in outstanding})


def failed(output: str, error: Exception) -> Trouble:
    """Returns the trouble for an error outside the contract; a plugin that cannot start gives its own reason."""
    if isinstance(error, StartFailed):
        return Trouble(str(error), held=True, code=error.code)
    _log.error("an output failed", output=output, error=said(error))
    return Trouble(said(error), code=code_of(error))
