"""A session of a lane: its output is open, some workers send, and answers are noted in the spool.

    feed: todos in order ──> work: attempt ──> note: settle
            │ small ones together: a log that trickled into the spool leaves it in few requests
            │ a barrier: kept, until everything taken before it is settled

What happens in a session is in memory only, so it may end at any moment, and the next one begins at the lane's first
todo. Single events that are put off or refused are parked: what is left of their batch is written as a small row and
comes again after a while; the others go on. Trouble with the whole destination ends the session, once the requests
under way have their answers.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, groupby

import trio

from shipper import log
from shipper.attempt import Attempt, Trouble
from shipper.errors import Held, Later, StartFailed, TooLarge, place
from shipper.event import Batch, together
from shipper.messages import Counts
from shipper.plugin import Sender
from shipper.recent import Recent
from shipper.signal import Signal
from shipper.slots import Slot
from shipper.spool.letters import Full
from shipper.spool.queue import Todo, Verdict
from shipper.spool.schema import BATCH, REST
from shipper.spool.spool import Spool
from shipper.tap import Taps
from shipper.units import events_in_words

_log = log.get(__name__)

PROBE_EVENTS = 8
PARKED = 512
WINDOW = 512
TOGETHER_EVENTS = 4000
TOGETHER_BYTES = 256 << 10
"""Of sealed bodies. What is sent in one request though it entered in several batches (with 500 events at most, ten
thousand files of 200 lines took 1.5 times the CPU)."""
INLINE_BYTES = 64 << 10
REFUSED = 4
"""Attempts in a row without a final answer, after which each next one waits."""
NOTING = 4
"""Attempts whose answers wait to be noted, at most: while the disk hangs, no more is sent."""
SLOW_SECONDS = 10.0
"""Without an answer, after which a request is reported."""
QUIET_SECONDS = 10.0
"""Between two lines of the log about dead letters."""


Sent = tuple[Attempt, list[tuple[Todo, range]]]
"""An attempt, and which of its events are those of which todo."""


class Session:
    """`lane` is the id; `news` is set when there may be something to do; `report` takes what is wrong, or None.

    A retired lane holds `slot` while it sends. `settle_barrier` is called for a barrier that an active lane has passed;
    a lane that is not ends its session there, also if it learns of that by the False that is returned.
    """

    def __init__(
        self,
        *,
        lane: int,
        output: str,
        spool: Spool,
        recent: Recent,
        taps: Taps,
        news: Signal,
        counters: Counter[str],
        report: Callable[[str | None], None],
        slot: Slot,
        is_active: Callable[[], bool],
        settle_barrier: Callable[[int], Awaitable[bool]],
        backoff: Callable[[], Iterator[float]],
    ) -> None:
        self.trouble: Trouble | None = None
        self.progressed = False
        """Whether an event had its final answer."""
        self.taken = 0
        """The place of the newest todo that was handed out."""
        self.answered = -math.inf
        """When a request had its answer last, or failed."""
        self._lane, self._output, self._spool = lane, output, spool
        self._recent, self._taps, self._news, self._counters = recent, taps, news, counters
        self._report, self._slot, self._is_active, self._settle_barrier = report, slot, is_active, settle_barrier
        self._backoff = backoff
        self._parked_waits = backoff()
        self._refused = 0
        self._refused_waits = backoff()
        self._rejected = 0
        self._rejected_reason: str | None = None
        self._quiet_until = 0.0
        self._over = trio.Event()
        self._parked: list[tuple[float, Todo]] = []
        self._put_off: set[int] = set()
        """Todos that were parked and are not settled, though they may be on their way again."""
        self._parked_reason: str | None = None
        self._outstanding: dict[int, float] = {}
        self._barriers: list[int] = []
        self._noting = trio.Semaphore(NOTING)
        self._ending = False

    def end(self, trouble: Trouble | None = None) -> None:
        """Hand out no more todos; the session is over when what is under way has its answers.

        The first trouble counts, and the longest wait that any answer asked for.
        """
        if self.trouble is None:
            self.trouble = trouble
        elif trouble is not None and trouble.retry_after is not None:
            self.trouble.retry_after = max(self.trouble.retry_after or 0.0, trouble.retry_after)
        self._ending = True
        self._over.set()
        self._slot.leave_queue()
        self._news.set()

    def overdue(self) -> str | None:
        """What to report if a request has had no answer for long, whatever became of others."""
        waits = self.waiting_seconds()
        return f"no answer for {waits // 5 * 5:.0f} s" if waits > SLOW_SECONDS else None

    def waiting_seconds(self) -> float:
        """For how long the request that was sent first has had no answer."""
        return max(0.0, trio.current_time() - min(self._outstanding.values(), default=math.inf))

    async def run(self, sender: Sender, workers: int, last: Trouble | None, *, asks: bool) -> None:
        """Deliver until trouble, or until a retired lane has passed its barrier.

        After trouble, or if it `asks` whether the destination answers, it sends one request first.
        """
        if (last is None and not asks) or await self._probe(sender, last):
            await self._deliver(sender, workers)

    async def _deliver(self, sender: Sender, workers: int) -> None:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[list[Todo]](0)
            async with receive:
                for _ in range(workers):
                    nursery.start_soon(self._work, sender, receive.clone(), nursery)
            async with send:
                with suppress(trio.BrokenResourceError):  # all workers have stopped, for trouble
                    await self._feed(send)
                self._over.set()

    async def _probe(self, sender: Sender, last: Trouble | None) -> bool:
        """One request, and after a refusal a small one; true if the destination answers again."""
        first = await self._spool.window(self._lane, 0, 1)
        if first and not first[0].is_barrier:
            few = PROBE_EVENTS if last is not None and last.held else None
            await self._note(await self._attempt(sender, first, few))
        self._parked.clear()
        self._put_off.clear()
        self._outstanding.clear()
        return self.trouble is None

    # -- todos, in order -----------------------------------------------------------------------------------------------

    async def _feed(self, send: trio.MemorySendChannel[list[Todo]]) -> None:
        """Hand out todos until the session ends; see to barriers that everything below has passed."""
        while not self._ending:
            if self._barrier_is_reached() and not (
                self._is_active() and await self._settle_barrier(self._barriers.pop(0))
            ):
                return None
            due = self._due()
            todos = due or await self._spool.window(self._lane, self.taken, WINDOW)
            for parcel in parcels(todos):
                self.taken = max(self.taken, parcel[-1].seq)
                if parcel[0].is_barrier:
                    self._barriers.append(parcel[0].seq)
                    continue
                if not self._ending:
                    await self._slot.take_to_drain()
                if self._ending:
                    return None
                self._outstanding.update((todo.seq, math.inf) for todo in parcel)
                await send.send(parcel)
            if not due and len(todos) < WINDOW and not self._barrier_is_reached():
                if not self._is_active() and self._parked and len(self._parked) == len(self._outstanding):
                    return self.end(Trouble(self._parked_reason or "events were put off"))  # gives back its slot
                with trio.move_on_at(self._parked[0][0] if self._parked else math.inf):
                    await self._news.wait()
        return None

    def _barrier_is_reached(self) -> bool:
        return bool(self._barriers) and min(self._outstanding, default=math.inf) > self._barriers[0]

    def _due(self) -> list[Todo]:
        now = trio.current_time()
        due = []
        while self._parked and self._parked[0][0] <= now:
            due.append(heapq.heappop(self._parked)[1])
        return due

    async def _work(self, sender: Sender, todos: trio.MemoryReceiveChannel[list[Todo]], nursery: trio.Nursery) -> None:
        async with todos:
            async for parcel in todos:
                await self._noting.acquire()
                sent = await self._attempt(sender, parcel)
                nursery.start_soon(self._note_beside, sent)
                await self._slow_down_if_refused(sent)
                if self._ending:
                    return

    async def _slow_down_if_refused(self, sent: list[Sent]) -> None:
        """Batch after batch refused event by event: the others still get their turn, but no storm of requests."""
        if any(attempt.progress for attempt, _ in sent) or not sent:
            self._refused, self._refused_waits = 0, self._backoff()
            return
        self._refused += 1
        if self._refused >= REFUSED and not self._ending:
            with trio.move_on_after(next(self._refused_waits)):
                await self._over.wait()

    async def _note_beside(self, sent: list[Sent]) -> None:
        try:
            await self._note(sent)
        finally:
            self._noting.release()

    # -- a parcel ------------------------------------------------------------------------------------------------------

    async def _attempt(self, sender: Sender, parcel: Sequence[Todo], only: int | None = None) -> list[Sent]:
        """Send what todos hold (`only` the first few events); notes what was answered if it is cancelled."""
        self._outstanding.update((todo.seq, trio.current_time()) for todo in parcel)
        sent = [await _sent(group, only) for group in _by_way(await self._load(parcel))]
        try:
            for attempt, _ in sent:
                if self.trouble is not None:
                    break
                await self._send(sender, attempt)
                if (trouble := attempt.overloaded()) is not None:
                    self.end(trouble)
            self._outstanding.update((todo.seq, math.inf) for todo in parcel if todo.seq in self._outstanding)
        except trio.Cancelled:
            await self._note(sent)
            raise
        return sent

    async def _load(self, parcel: Sequence[Todo]) -> list[tuple[Todo, Batch]]:
        """From memory or disk; what cannot be read is repaired first, and only what stays damaged counts as that."""
        found = {todo.seq: batch for todo in parcel if (batch := self._recently(todo)) is not None}
        for repaired in (False, True):
            missing = [todo for todo in parcel if todo.seq not in found]
            if not missing:
                break
            if repaired:
                await self._spool.repair_once()
            found |= await self._spool.load_all(self._lane, missing)
        for todo in parcel:
            if todo.seq not in found:
                await self._note_damage(todo)
        return [(await self._counted(todo, found[todo.seq]), found[todo.seq]) for todo in parcel if todo.seq in found]

    def _recently(self, todo: Todo) -> Batch | None:
        return self._recent.take(self._lane, todo.seq) if todo.kind == BATCH else None

    async def _counted(self, todo: Todo, batch: Batch) -> Todo:
        if batch.count == todo.events:
            return todo
        return await self._spool.recount(self._lane, todo, batch.count)

    async def _note_damage(self, todo: Todo) -> None:
        _log.error("stored events are damaged", output=self._output, events=todo.events)
        with trio.CancelScope(shield=True):
            await self._settle({todo.seq: Verdict(Counts(damaged=todo.events))})
        self._forget(todo)
        self._news.set()

    def _forget(self, todo: Todo) -> None:
        del self._outstanding[todo.seq]
        self._put_off.discard(todo.seq)

    async def _send(self, sender: Sender, attempt: Attempt) -> None:
        while (piece := attempt.next_piece()) is not None:
            positions, events = piece
            self._taps.offer(f"outputs.{self._output}", events)
            try:
                attempt.answered(positions, await sender.send(events))
            except TooLarge as error:
                attempt.too_large(positions, str(error))
            except Held as error:
                attempt.failed(Trouble(str(error), held=True))
            except Later as error:
                attempt.failed(Trouble(str(error), retry_after=error.retry_after))
            except trio.Cancelled:
                attempt.failed(Trouble("the session was cancelled"))
                raise
            except Exception as error:
                attempt.failed(failed(self._output, error))
            self.answered = trio.current_time()

    async def _note(self, sent: list[Sent]) -> None:
        """Settle what was answered, and see to what is left. Not cancelled: the destination has said yes."""
        with trio.CancelScope(shield=True):
            for attempt, parts in sent:
                await self._note_answers(attempt, parts)
        if self._parked or not self._is_quiet():
            self._news.set()

    def _is_quiet(self) -> bool:
        """Whether nobody waits for answers to be noted: no barrier, and no end."""
        return not self._barriers and not self._ending and self._is_active()

    async def _note_answers(self, attempt: Attempt, parts: Sequence[tuple[Todo, range]]) -> None:
        problem = attempt.problem()
        verdicts = {todo.seq: attempt.verdict(self._output, part) for todo, part in parts}
        try:
            await self._settle(verdicts)
        except Full:
            problem = "the dead-letter store is full, rejected events are held"
            verdicts = {todo.seq: attempt.verdict(self._output, part, keep_rejected=True) for todo, part in parts}
            await self._settle(verdicts)
        self.progressed = self.progressed or attempt.progress > 0
        for todo, _ in parts:
            verdict = verdicts[todo.seq]
            if verdict is None:
                self._park(todo, problem, attempt)
            elif verdict.rest is not None:
                self._park(todo._replace(kind=REST, events=verdict.rest.count), problem, attempt)
            else:
                self._forget(todo)
            self._see_to_letters(verdict)
        if not self._put_off:
            self._parked_reason, self._parked_waits = None, self._backoff()
        if self.trouble is None:
            self._report(self._parked_reason or self.overdue() or self._rejected_reason)

    def _see_to_letters(self, verdict: Verdict | None) -> None:
        """Dead letters are logged; an output that has nothing but dead letters is not doing its job."""
        if verdict is None:
            return
        if verdict.counts.delivered or verdict.counts.duplicate:
            self._rejected, self._rejected_reason = 0, None
        else:
            self._rejected += len(verdict.letters)
            reason = verdict.letters[-1].reason
            self._rejected_reason = f"{events_in_words(self._rejected)} refused for good in a row, the last: {reason}"
        if verdict.letters and trio.current_time() >= self._quiet_until:
            self._quiet_until = trio.current_time() + QUIET_SECONDS
            events, reason = len(verdict.letters), verdict.letters[-1].reason
            _log.warning("events became dead letters", output=self._output, events=events, reason=reason)

    async def _settle(self, verdicts: Mapping[int, Verdict | None]) -> None:
        changed = {seq: verdict for seq, verdict in verdicts.items() if verdict is not None}
        if not changed:
            return
        letters_dropped = await self._spool.settle(self._lane, changed, patient=self._is_quiet())
        self._counters["letters_dropped"] += letters_dropped
        for verdict in changed.values():
            for name in ("delivered", "duplicate", "dead_letter", "damaged"):
                self._counters[name] += getattr(verdict.counts, name)

    def _park(self, todo: Todo, problem: str | None, attempt: Attempt) -> None:
        """What is left of a batch comes again after a while; the others go on, unless there are too many such."""
        wait = max(next(self._parked_waits), attempt.retry_after or 0.0)
        heapq.heappush(self._parked, (trio.current_time() + wait, todo))
        self._outstanding[todo.seq] = math.inf
        self._put_off.add(todo.seq)
        self._parked_reason = problem or "some events were put off"
        if len(self._parked) > PARKED:
            self.end(Trouble(self._parked_reason))


def parcels(todos: Sequence[Todo]) -> Iterator[list[Todo]]:
    """Todos in their order, small ones together; a barrier stands alone."""
    parcel: list[Todo] = []
    events = size = 0
    for todo in todos:
        events, size = events + todo.events, size + todo.size
        alone = todo.is_barrier or (parcel and parcel[-1].is_barrier)
        if parcel and (alone or events > TOGETHER_EVENTS or size > TOGETHER_BYTES):
            yield parcel
            parcel, events, size = [], todo.events, todo.size
        parcel.append(todo)
    if parcel:
        yield parcel


def _by_way(loaded: Sequence[tuple[Todo, Batch]]) -> Iterator[list[tuple[Todo, Batch]]]:
    for _, group in groupby(loaded, key=lambda pair: pair[1].way()):
        yield list(group)


async def _sent(group: Sequence[tuple[Todo, Batch]], only: int | None) -> Sent:
    batches = [batch for _, batch in group]
    inline = len(batches) == 1 or sum(len(batch.body) for batch in batches) <= INLINE_BYTES
    batch = together(batches) if inline else await trio.to_thread.run_sync(together, batches)
    ends = list(accumulate(batch.count for _, batch in group))
    parts = [(todo, range(end - batch.count, end)) for (todo, batch), end in zip(group, ends, strict=True)]
    return (Attempt.probe(batch, only) if only is not None else Attempt(batch)), parts


def failed(output: str, error: Exception) -> Trouble:
    """An error that no contract knows; a plugin that cannot start says why."""
    if isinstance(error, StartFailed):
        return Trouble(str(error), held=True)
    _log.error("an output failed", output=output, error=place(error))
    return Trouble(f"the output failed: {type(error).__name__}")
