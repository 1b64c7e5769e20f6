"""A session of a lane: its output is open, some workers send, and answers are noted in the spool.

    feed: entries in order ──> work: attempt ──> note: settle
            │ small ones together (`parcels`), as far as there is memory for them (`loading`)
            │ a barrier: kept, until everything taken before it is settled

What happens in a session is in memory only, so it may end at any moment. What the destination does not take now is
left behind, as a small row if the others of its batch were taken, and the rest goes on (`backlog` says how it comes
again): single events that are put off, and those of a target that refuses them, which are not even sent. Trouble with
the whole destination ends the session, once the requests under way have their answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, groupby, takewhile

import trio

from shipper.pipeline import parcels
from shipper.pipeline.attempt import Attempt, Trouble
from shipper.pipeline.backlog import Backlog, Question
from shipper.pipeline.loading import Loading
from shipper.pipeline.loans import Borrower, Loan
from shipper.pipeline.parcels import Parcel
from shipper.pipeline.recent import Recent
from shipper.pipeline.settling import Settling
from shipper.pipeline.slots import Slot
from shipper.pipeline.suspects import WITNESSES, blames_event, code_of, said
from shipper.pipeline.tap import Taps
from shipper.plugin import Sender
from shipper.process import log
from shipper.process.environment import InThread
from shipper.process.signal import Signal
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
"""Attempts in a row without a final answer, after which each next one waits."""
NOTING = 4
"""Attempts whose answers wait to be noted, at most: while the disk hangs, no more is sent."""
SLOW_SECONDS = 10.0
"""Without an answer, after which a request is reported."""
LETTERS_FULL = "the dead-letter store is full, rejected events are held"


Sent = tuple[Attempt, list[tuple[Entry, range]]]
"""An attempt, and which of its events are those of which entry."""


class Session:
    """`lane` is the id; `news` is set when there may be something to do; `report` takes what is wrong,
    or None, and its code.

    `targets` is that of the output, `backlog` the lane's: it goes on from one session to the next. A retired lane holds
    `slot` while it sends; memory for what it sends is borrowed by `loans`. `settle_barrier` is called for a barrier
    that an active lane has passed; a lane that is not ends its session there, also if it learns of that by the False
    that is returned. `on_answer` is called when the destination has answered for events, before that is noted;
    `on_success` when the first event has its final answer, `on_moved` with lanes that were given something to do.
    `lingers` says whether entries may wait for more.
    """

    def __init__(
        self,
        *,
        lane: int,
        output: str,
        targets: Callable[[Batch], Sequence[str]],
        backlog: Backlog,
        spool: Spool,
        recent: Recent,
        taps: Taps,
        news: Signal,
        counters: Counter[str],
        report: Callable[[str | None, str], None],
        slot: Slot,
        loans: Borrower,
        is_active: Callable[[], bool],
        settle_barrier: Callable[[int], Awaitable[bool]],
        on_answer: Callable[[], None],
        on_success: Callable[[], None],
        on_moved: Callable[[Collection[int]], None],
        feeding: Feeding,
        lingers: Callable[[], bool],
        backoff: Callable[[], Iterator[float]],
        in_thread: InThread,
    ) -> None:
        self.trouble: Trouble | None = None
        self.progressed = False
        """Whether a final answer was noted; to be refused for ever again, without room for dead letters, is none."""
        self.backlog = backlog
        self.answered = -math.inf
        """When a request had its answer last, or failed."""
        self.is_client_suspect = False
        """Whether the output failed by a bug, so that what is open may not work any more."""
        self._lane, self._output, self._targets, self._spool = lane, output, targets, spool
        self._taps, self._news = taps, news
        self._report, self._slot, self._loans = report, slot, loans
        self._is_active, self._settle_barrier = is_active, settle_barrier
        self._on_answer, self._on_success = on_answer, on_success
        self._feeding, self._lingers, self._backoff = feeding, lingers, backoff
        self._in_thread = in_thread
        self._refused = 0
        self._refused_waits = backoff()
        self._over = trio.Event()
        self._gathered: list[Entry] = []
        """Entries above the front that wait for more to be sent with them."""
        self._handed = -math.inf
        """When the front handed out entries last."""
        self._loading = Loading(
            lane=lane,
            spool=spool,
            recent=recent,
            loans=loans,
            most_bytes=feeding.bytes,
            is_ending=lambda: self._ending,
            on_damage=self._note_damage,
            on_gone=self._note_gone,
        )
        self._settling = Settling(
            lane=lane, output=output, spool=spool, counters=counters, is_quiet=self._is_quiet, on_moved=on_moved
        )
        self._noting = trio.Semaphore(NOTING)
        self._ending = False

    def end(self, trouble: Trouble | None = None) -> None:
        """Hand out no more entries; the session is over when what is under way has its answers.

        The first trouble counts, and the longest wait that any answer asked for.
        """
        if self.trouble is None:
            self.trouble = trouble
        elif trouble is not None and trouble.retry_after is not None:
            self.trouble.retry_after = max(self.trouble.retry_after or 0.0, trouble.retry_after)
        self._ending = True
        self._over.set()
        self._slot.leave_queue()
        self._loans.leave_queue()
        self._news.set()

    def overdue(self) -> str | None:
        """What to report if a request has had no answer for long, whatever became of others."""
        waits = self.waiting_seconds()
        return f"no answer for {waits // 5 * 5:.0f} s" if waits > SLOW_SECONDS else None

    def waiting_seconds(self) -> float:
        """For how long the request that was sent first has had no answer."""
        return max(0.0, trio.current_time() - min(self.backlog.outstanding.values(), default=math.inf))

    async def run(self, sender: Sender, last: Trouble | None, *, asks: bool) -> None:
        """Deliver until trouble, or until a retired lane has passed its barrier.

        After trouble, or if it `asks` whether the destination answers, it sends one request first.
        """
        self.backlog.rewind()
        if (last is None and not asks) or await self._probe(sender, last):
            await self._deliver(sender)

    async def _deliver(self, sender: Sender) -> None:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Parcel](0)
            async with receive:
                for _ in range(self._feeding.in_flight):
                    nursery.start_soon(self._work, sender, receive.clone(), nursery)
            async with send:
                await self._feed(send)
                self._over.set()

    async def _probe(self, sender: Sender, last: Trouble | None) -> bool:
        """One request, and after a refusal a small one; true if the destination answers again."""
        backlog = self.backlog
        first = await self._spool.window(self._lane, backlog.front, 1)
        if not first or first[0].is_barrier:
            first = await self._spool.window(self._lane, 0, 1)
        if first and not first[0].is_barrier:
            if backlog.suspects.are_known([first[0].seq]) and not self._feeding.ordered:
                await self._ask_witness(sender, first[0])
            if self.trouble is None:
                few = PROBE_EVENTS if last is not None and last.held else None
                await self._ask_with(sender, first[0], few)
        backlog.rewind()
        return self.trouble is None

    async def _ask_witness(self, sender: Sender, suspect: Entry) -> None:
        """Send a later entry on which the output has not failed yet, to see whether it works at all."""
        above = await self._spool.window(self._lane, suspect.seq, parcels.WINDOW)
        before_barrier = takewhile(lambda entry: not entry.is_barrier, above)
        fresh = [entry for entry in before_barrier if entry.seq not in self.backlog.suspects]
        for witness in fresh[:WITNESSES]:
            if self.trouble is None and not self.progressed:
                await self._ask_with(sender, witness, None, is_witness=True)
        if self.progressed:
            self.backlog.suspects.output_works()

    async def _ask_with(self, sender: Sender, entry: Entry, few: int | None, *, is_witness: bool = False) -> None:
        """Send one entry, or a few events of it, before all others."""
        loan, sent, _ = await self._attempt(sender, Parcel([entry]), few, is_witness=is_witness)
        await self._note(sent, loan)
        if entry.seq <= self.backlog.front:  # it was left behind before
            self.backlog.outstanding.pop(entry.seq, None)

    # -- entries, in order ---------------------------------------------------------------------------------------------

    async def _feed(self, send: trio.MemorySendChannel[Parcel]) -> None:
        """Hand out entries until the session ends; see to barriers that everything below has passed."""
        backlog = self.backlog
        while not self._ending:
            if backlog.barrier_is_reached() and not (
                self._is_active() and await self._settle_barrier(backlog.barriers.pop(0))
            ):
                return None
            more = await self._feed_front(send)
            more |= await self._feed_pass(send)
            more |= await self._ask_target(send)
            if more or self._ending or backlog.barrier_is_reached():
                continue
            if not self._is_active() and backlog.has_left and not backlog.is_worth_a_slot(trio.current_time()):
                return self.end(self._left_behind())
            with trio.move_on_at(min(backlog.next_due(), self._gathers_until())):
                await self._news.wait()
        return None

    async def _feed_front(self, send: trio.MemorySendChannel[Parcel]) -> bool:
        """Hand out the next entries, unless they wait for more; returns whether there may be more."""
        newest = self._gathered[-1].seq if self._gathered else self.backlog.front
        more = await self._spool.window(self._lane, newest, parcels.WINDOW - len(self._gathered))
        self._gathered += more
        if self._gathers_until() > trio.current_time():
            return False
        entries, self._gathered = self._gathered, []
        for parcel in parcels.of(entries, self._feeding):
            for entry in parcel:
                self.backlog.at_front(entry)
            if not parcel[0].is_barrier and not await self._hand_out(send, Parcel(parcel)):
                return False
            self._handed = trio.current_time()
        return len(entries) == parcels.WINDOW

    def _gathers_until(self) -> float:
        lingers = self._lingers() and self._is_quiet()
        feeding = self._feeding if lingers else replace(self._feeding, linger=0.0)
        return parcels.gathers_until(self._gathered, self._handed, feeding)

    async def _feed_pass(self, send: trio.MemorySendChannel[Parcel]) -> bool:
        """Hand out again what was left behind and may be taken now; returns whether there may be more."""
        now = trio.current_time()
        self.backlog.begin_due(now)
        after = self.backlog.passing_after(now)
        if after is None:
            return False
        under_way = frozenset(self.backlog.outstanding)
        found = await self._spool.window(self._lane, after, parcels.WINDOW)
        entries = self.backlog.passed(after, found, under_way)
        self.backlog.hand_out(
            entries
        )  # all of them: the pass has gone by, also if the session ends before they are sent
        for parcel in parcels.of(entries, self._feeding):
            if not await self._hand_out(send, Parcel(parcel)):
                return False
        return self.backlog.is_passing

    async def _ask_target(self, send: trio.MemorySendChannel[Parcel]) -> bool:
        """Ask a target that refused events whether it takes them now, if one is due."""
        question = self.backlog.ask(trio.current_time())
        if question is None:
            return False
        front, under_way = self.backlog.front, frozenset(self.backlog.outstanding)
        found = await self._spool.window(self._lane, question.first - 1, 1)
        if not found or found[0].seq > front:
            self._nothing_asked(question, front)
        elif found[0].is_barrier:
            self._nothing_asked(question, found[0].seq)
        elif found[0].seq in under_way:
            self._nothing_asked(question, found[0].seq - 1)
        elif not await self._hand_out(send, Parcel(found, question)):
            self.backlog.left(found[0].seq, {question.target}, trio.current_time(), None, 0.0)
        return True

    def _nothing_asked(self, question: Question, upto: int) -> None:
        self.backlog.nothing_asked(question, upto)
        if self.trouble is None:  # perhaps nothing is held any more
            self._report(*self._problem())

    async def _hand_out(self, send: trio.MemorySendChannel[Parcel], parcel: Parcel) -> bool:
        """Give it to a worker that has time; false if the session ends instead."""
        self.backlog.hand_out(parcel.entries)
        if not self._ending:
            await self._slot.take_to_drain()
        with suppress(trio.BrokenResourceError):  # all workers have stopped, for trouble
            if not self._ending:
                await send.send(parcel)
                return True
        return False

    def _left_behind(self) -> Trouble:
        """The destination answers, so its targets are asked when they are due: nothing else is waited for."""
        reason = self.backlog.problem() or "events were put off"
        backlog = self.backlog
        return Trouble(reason, held=bool(backlog.closed), due=backlog.next_due(), code=backlog.code())

    async def _work(self, sender: Sender, entries: trio.MemoryReceiveChannel[Parcel], nursery: trio.Nursery) -> None:
        async with entries:
            async for parcel in entries:
                left: Sequence[Entry] = parcel.entries
                while left:
                    await self._noting.acquire()
                    loan, sent, left = await self._attempt(sender, Parcel(left, parcel.question))
                    if self._feeding.ordered and any(attempt.has_rejected for attempt, _ in sent):
                        await self._note_beside(sent, loan)  # there may be no room for them as dead letters
                    else:
                        nursery.start_soon(self._note_beside, sent, loan)
                    await self._slow_down_if_refused(sent)
                    if self._ending:
                        return

    async def _slow_down_if_refused(self, sent: list[Sent]) -> None:
        """Batch after batch refused event by event: the others still get their turn, but no storm of requests."""
        if any(attempt.progress for attempt, _ in sent):
            self._refused, self._refused_waits = 0, self._backoff()
            return
        if not any(attempt.is_singly_put_off and attempt.asked_place is None for attempt, _ in sent):
            return
        self._refused += 1
        if self._refused >= REFUSED and not self._ending:
            with trio.move_on_after(next(self._refused_waits)):
                await self._over.wait()

    async def _note_beside(self, sent: list[Sent], loan: Loan | None) -> None:
        try:
            await self._note(sent, loan)
        finally:
            self._noting.release()

    # -- a parcel ------------------------------------------------------------------------------------------------------

    async def _attempt(
        self, sender: Sender, parcel: Parcel, few: int | None = None, *, is_witness: bool = False
    ) -> tuple[Loan | None, list[Sent], Sequence[Entry]]:
        """Send what entries hold (the first `few` events), as far as memory goes; the loan, and the entries left.

        Notes what was answered if it is cancelled.
        """
        outstanding = self.backlog.outstanding
        question = parcel.question
        target = None if question is None else question.target
        loan, loaded, left = await self._loading.load(parcel.entries)
        outstanding.update((entry.seq, trio.current_time()) for entry, _ in loaded)
        ways = groupby(loaded, key=lambda pair: pair[1].way(self._feeding.grouping))
        sent = [await self._prepared(list(group), target, few) for _, group in ways]
        if question is not None and not left and not any(attempt.is_asked for attempt, _ in sent):
            self._nothing_asked(question, parcel.entries[0].seq)  # also if it was damaged
        is_suspect = self.backlog.suspects.are_known([entry.seq for entry, _ in loaded])
        try:
            for attempt, parts in sent:
                if self.trouble is not None:
                    break
                works = self.progressed or self.backlog.suspects.is_witnessed(parts[0][0].seq)
                await self._send(sender, attempt, in_halves=is_suspect, works_otherwise=works)
                await self._close_targets(attempt)
                works = works or attempt.progress > 0
                trouble = self._trouble_of(attempt, parts[0][0], works=works, is_witness=is_witness)
                if trouble is not None:
                    if attempt.blames_events:
                        trouble.batch = next((entry.seq for entry, part in parts if attempt.is_open(part)), None)
                    self.end(trouble)
            outstanding.update((entry.seq, math.inf) for entry, _ in loaded if entry.seq in outstanding)
        except trio.Cancelled:
            await self._note(sent, loan)
            raise
        return loan, sent, left

    def _trouble_of(self, attempt: Attempt, first: Entry, *, works: bool, is_witness: bool) -> Trouble | None:
        """What ends the session after an attempt; gives up its events that the output cannot handle (`suspects`)."""
        if attempt.doubt is None:
            return attempt.overloaded()
        suspects = self.backlog.suspects
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

    async def _prepared(self, group: Sequence[tuple[Entry, Batch]], target: str | None, few: int | None) -> Sent:
        """One attempt for all that goes the same way, without what goes to targets that refuse it."""
        attempt, parts = await self._sent(group, few)
        attempt.ordered = self._feeding.ordered
        if target is not None or self.backlog.closed:
            attempt.targets = await self._targets_of(attempt.batch)
        if attempt.targets is None:
            attempt.asked_place = target
        elif target is not None:
            attempt.ask_target(target, PROBE_EVENTS)
        elif few is None and self.backlog.closed:
            attempt.leave_out(self.backlog.closed)
        return attempt, parts

    async def _targets_of(self, batch: Batch) -> Sequence[str] | None:
        """None if the output cannot say: then all of it is sent, and the output may fail on the event that is why."""
        try:
            inline = len(batch.body) <= INLINE_BYTES
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

    async def _close_targets(self, attempt: Attempt) -> None:
        """From now on nothing is sent to targets that refused events of this attempt."""
        if attempt.ordered or not attempt.refusals():
            return
        if attempt.targets is None:
            attempt.targets = await self._targets_of(attempt.batch)
        now, wait = trio.current_time(), attempt.retry_after or 0.0
        for name, answer in attempt.refused_targets().items():
            self.backlog.refuse(name, answer.reason, now, wait, answer.code)

    async def _note_damage(self, entry: Entry) -> None:
        with trio.CancelScope(shield=True):
            await self._settling.damaged(entry)
        self.backlog.settled(entry.seq)
        self._news.set()

    def _note_gone(self, entry: Entry) -> None:
        self.backlog.settled(entry.seq)
        self._news.set()

    async def _send(self, sender: Sender, attempt: Attempt, *, in_halves: bool, works_otherwise: bool) -> None:
        """Send all of an attempt; `in_halves`, to find single events, where the output fails unexpectedly."""
        while (piece := attempt.next_piece()) is not None:
            positions, events = piece
            self._taps.offer(f"outputs.{self._output}", events)
            try:
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

    async def _note(self, sent: list[Sent], loan: Loan | None) -> None:
        """Settle what was answered, and see to what is left. Not cancelled: the destination has said yes."""
        with trio.CancelScope(shield=True):
            for attempt, parts in sent:
                await self._note_answers(attempt, parts)
        if loan is not None:
            loan.give_back()
        if self.backlog.has_left or self.backlog.is_passing or not self._is_quiet():
            self._news.set()

    def _is_quiet(self) -> bool:
        """Whether nobody waits for answers to be noted: no barrier, and no end."""
        return not self.backlog.barriers and not self._ending and self._is_active()

    async def _note_answers(self, attempt: Attempt, parts: Sequence[tuple[Entry, range]]) -> None:
        worst, freed = attempt.worst(), self._spool.letters_freed
        settlements, renewed = await self._settling.settle(attempt, parts)
        if not self.progressed and any(settlement is not None for settlement in settlements.values()):
            self.progressed = True
            self._on_success()
        now, wait = trio.current_time(), attempt.retry_after or 0.0
        for entry, part in parts:
            settlement = settlements[entry.seq]
            lacks_room = attempt.rejected(part) > (0 if settlement is None else len(settlement.letters))
            if entry.seq in renewed:
                self.backlog.renewed(entry.seq)
                self._news.set()
            elif settlement is not None and settlement.rest is None:
                self.backlog.settled(entry.seq)
            elif lacks_room and attempt.ordered:
                self.end(Trouble(LETTERS_FULL, code=Code.DEAD_LETTERS_FULL))
            elif (keys := attempt.keeps(part)) is not None:
                self.backlog.left(entry.seq, keys, now, worst.reason, wait, worst.code)
                if lacks_room:
                    self.backlog.left_for_room(entry.seq, now, LETTERS_FULL)
        if freed != self._spool.letters_freed:
            self.backlog.has_room(now)
        self._open_targets(attempt)
        if self.trouble is None:
            self._report(*self._problem())

    def _open_targets(self, attempt: Attempt) -> None:
        """What was left behind for targets that took events is sent again."""
        now, asked = trio.current_time(), attempt.asked_place
        takes = attempt.taking_targets().intersection(self.backlog.closed)
        if asked is not None and attempt.is_asked and asked not in takes:
            put_off_singly = attempt.is_singly_put_off and attempt.trouble is None
            self.backlog.answered(asked, now, takes=put_off_singly and asked not in attempt.refused_targets())
        for name in takes:
            self.backlog.answered(name, now, takes=True)

    def _problem(self) -> tuple[str | None, str]:
        """What is wrong, and its code."""
        if left := self.backlog.problem():
            return (f"{left}, events held" if self.backlog.closed else left), self.backlog.code()
        if overdue := self.overdue():
            return overdue, Code.NO_ANSWER
        return self._settling.rejected_reason, Code.REJECTED


def failed(output: str, error: Exception) -> Trouble:
    """An error that no contract knows; a plugin that cannot start says why."""
    if isinstance(error, StartFailed):
        return Trouble(str(error), held=True, code=error.code)
    _log.error("an output failed", output=output, error=said(error))
    return Trouble(said(error), code=code_of(error))
