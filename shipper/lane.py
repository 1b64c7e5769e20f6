"""A lane: the batches of one destination identity, sent until each event has its final answer.

    spool ── todos, in order ──> workers ── output.send ──> answers ──> spool.settle
                 │ a barrier: arrived; settled when everything taken before it is

A lane lives in sessions. In a session its output is open and some workers send; what happens in it is in memory only,
so a session may end at any moment and the next one begins again at the lane's first todo. Trouble with the
destination (no answer, or a refusal) ends the session once the requests under way have theirs: the lane gives up
connections, memory and, if it is retired, its slot among those that drain, and owns only the time at which it will try
again, with one request. So hundreds of lanes of a dead destination cost nothing, and nobody is asked more often than
once a backoff.

Single events that are put off or refused are parked: what is left of their batch is written as a small row, and comes
again after a while; the others go on.

The barrier of a lane that is still retired is settled outside of any session: by then its connections are closed.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import trio

from shipper import log
from shipper.aio import Asyncio
from shipper.attempt import Attempt, Trouble
from shipper.errors import Held, Later, StartFailed, TooLarge, place
from shipper.event import Batch
from shipper.keyring import Keyring
from shipper.messages import Counts
from shipper.plugin import Output, OutputContext, Sender
from shipper.recent import Recent
from shipper.retry import backoff
from shipper.signal import Signal
from shipper.spool.letters import Full
from shipper.spool.queue import Todo, Verdict
from shipper.spool.revisions import LaneRow
from shipper.spool.schema import BATCH, REST
from shipper.spool.seal import Damaged
from shipper.spool.spool import Spool
from shipper.tap import Taps

_log = log.get(__name__)

PROBE_EVENTS = 8
PARKED = 512
NOTING = 8
"""Answers that wait to be noted, at most: while the disk hangs, no more is sent."""
SLOW_SECONDS = 10.0


class Lane:
    """One destination identity. `on_change` is called when its problem changes, `on_barrier` when one was settled."""

    def __init__(
        self,
        row: LaneRow,
        output: Output,
        *,
        spool: Spool,
        keyring: Keyring,
        aio: Asyncio,
        slots: trio.Semaphore,
        recent: Recent,
        taps: Taps,
        on_change: Callable[[], None],
        on_barrier: Callable[[], None],
    ) -> None:
        self.id, self.key, self.active = row.id, row.key, row.active
        self.output = output
        self.problem: str | None = None
        self.counters: Counter[str] = Counter()
        self._spool, self._keyring, self._aio, self._slots = spool, keyring, aio, slots
        self._recent, self._taps = recent, taps
        self._on_change, self._on_barrier = on_change, on_barrier
        self._news = Signal()
        self._gone = False
        self._suspended = 0
        self._idle = trio.Event()
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._waits = self._backoff()
        self._parked_waits = self._backoff()
        self._queued = False
        self._noting = trio.Semaphore(NOTING)
        self._begin()

    # -- what others say to it -----------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Something may have changed for the better: look at once."""
        self._waits = self._backoff()
        self._news.set()

    def arrived(self, seq: int, batch: Batch) -> None:
        """A batch was stored for this lane; it may be kept in memory until it is sent."""
        if seq > self._taken:
            self._recent.keep(self.id, seq, batch)
        self._news.set()

    def adopt(self, output: Output, *, active: bool) -> None:
        """The settings of a newer revision; a session under other ones ends when its requests have their answers."""
        self.active = active
        if active and self._queued:
            self._scope.cancel("the lane is active again, and needs no slot")
        if output != self.output:
            self.output = output
            self._ending = True
        self.poke()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """No request is under way within this block: answers that were received count, the rest is aborted."""
        self._suspended += 1
        self._scope.cancel("an order ends what is under way")
        self._news.set()
        try:
            await self._idle.wait()
            self._recent.forget(self.id)
            yield
        finally:
            self._suspended -= 1
            self._news.set()

    async def ended_or_active(self) -> None:
        """Wait until the lane is gone, unless it takes new events again."""
        if not self.active:
            await self._ended.wait()

    # -- its life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until the lane is retired and empty. On cancel, requests under way are aborted."""
        trouble: Trouble | None = None
        while not self._gone:
            if self._suspended:
                await self._rest()
                continue
            first = await self._window(0, 1)
            if not first:
                self._report(None)
                await self._news.wait()
            elif first[0].is_barrier:
                await self._settle_barrier(first[0].seq)
            elif self.key.credential is not None and self.key.credential not in self._keyring:
                self._report(f"credential {self.key.credential} is missing, events held")
                await self._news.wait()
            else:
                trouble = await self._session(trouble)
                if trouble is not None:
                    await self._wait_out(trouble)
        self._recent.forget(self.id)
        self._idle.set()
        self._ended.set()

    async def _rest(self) -> None:
        self._idle.set()
        await self._news.wait()
        if not self._suspended:
            self._idle = trio.Event()

    async def _wait_out(self, trouble: Trouble) -> None:
        self._recent.forget(self.id)
        self.counters["retries"] += 1
        self._report(f"{trouble.reason}, events held" if trouble.held else trouble.reason)
        wait = max(next(self._waits), trouble.retry_after or 0.0)
        with trio.move_on_after(wait):
            while True:
                before = self._waits
                await self._news.wait()
                if self._waits is not before or self._suspended:
                    return

    def _backoff(self) -> Iterator[float]:
        pace = getattr(self.output, "backoff", None)
        return backoff(getattr(pace, "first", 1.0), getattr(pace, "longest", 60.0))

    async def _settle_barrier(self, seq: int) -> None:
        end = await self._spool.settle_barrier(self.id, seq)
        self._gone = end == "gone"
        if end == "waits":
            await self._news.wait()
        else:
            self._on_barrier()

    async def _window(self, after: int, limit: int = 64) -> list[Todo]:
        """The next todos; a page that cannot be read is repaired first, so that intact rows are found again."""
        try:
            return await self._spool.window(self.id, after, limit)
        except Damaged:
            await self._spool.store.repair()
            return await self._spool.window(self.id, after, limit)

    # -- a session -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._taken = 0
        self._outstanding: dict[int, float] = {}
        self._parked: list[tuple[float, Todo]] = []
        self._parked_reason: str | None = None
        self._barriers: list[int] = []
        self._ending = False
        self._trouble: Trouble | None = None

    async def _session(self, last: Trouble | None) -> Trouble | None:
        """Deliver with the output open; after trouble, with one request first. Returns the trouble that ended it."""
        self._begin()
        with trio.CancelScope() as self._scope:
            if self._suspended:
                self._scope.cancel()
            async with self._slot(), self._open() as sender, trio.open_nursery() as nursery:
                if sender is not None:
                    nursery.start_soon(self._watch)
                    await self._deliver(sender, last)
                nursery.cancel_scope.cancel("the session is over")
        return self._trouble

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Retired lanes drain a few at a time."""
        if self.active:
            yield
            return
        self._queued = True
        try:
            await self._slots.acquire()
        finally:
            self._queued = False
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Sender | None]:
        """The open output; None, and trouble, if it cannot be opened. What goes wrong in closing it is trouble too."""
        context = OutputContext(self.key.output, self._aio, self._keyring.get(self.key.credential))
        opened = self.output.open(context)
        try:
            sender = await opened.__aenter__()
        except Exception as error:
            self._trouble = self._failed(error)
            yield None
            return
        try:
            yield sender
        finally:
            try:
                await opened.__aexit__(None, None, None)
            except Exception as error:
                self._trouble = self._trouble or self._failed(error)

    def _failed(self, error: Exception) -> Trouble:
        """An error that no contract knows; a plugin that cannot start says why."""
        if isinstance(error, StartFailed):
            return Trouble(str(error), held=True)
        _log.error("an output failed", output=self.key.output, error=place(error))
        return Trouble(f"the output failed: {type(error).__name__}")

    async def _deliver(self, sender: Sender, last: Trouble | None) -> None:
        if last is not None and not await self._probe(sender, last):
            return
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Todo](0)
            async with receive:
                for _ in range(self.output.workers):
                    nursery.start_soon(self._work, sender, receive.clone(), nursery)
            async with send:
                with suppress(trio.BrokenResourceError):  # all workers have stopped, for trouble
                    await self._feed(send)

    async def _probe(self, sender: Sender, last: Trouble) -> bool:
        """One request, and after a refusal a small one; true if the destination answers again."""
        first = await self._window(0, 1)
        if first and not first[0].is_barrier:
            attempt = await self._attempt(sender, first[0], PROBE_EVENTS if last.held else None)
            await self._note(first[0], attempt)
        trouble = self._trouble
        self._begin()
        self._trouble = trouble
        return trouble is None

    async def _feed(self, send: trio.MemorySendChannel[Todo]) -> None:
        """Hand out todos in their order until the session ends; see to barriers that everything below has passed."""
        while not self._ending:
            if self._barrier_is_reached():
                if not self.active:
                    return
                await self._settle_barrier(self._barriers.pop(0))
            todos = self._due() or await self._window(self._taken)
            for todo in todos:
                self._taken = max(self._taken, todo.seq)
                if todo.is_barrier:
                    self._barriers.append(todo.seq)
                    continue
                self._outstanding[todo.seq] = math.inf
                await send.send(todo)
            if not todos and not self._barrier_is_reached():
                if not self.active and self._parked and len(self._parked) == len(self._outstanding):
                    self._trouble = Trouble(self._parked_reason or "events were put off")
                    return  # a retired lane that only waits gives back its slot and its connections
                with trio.move_on_at(self._parked[0][0] if self._parked else math.inf):
                    await self._news.wait()

    def _barrier_is_reached(self) -> bool:
        return bool(self._barriers) and min(self._outstanding, default=math.inf) > self._barriers[0]

    def _due(self) -> list[Todo]:
        now = trio.current_time()
        due = []
        while self._parked and self._parked[0][0] <= now:
            due.append(heapq.heappop(self._parked)[1])
        return due

    async def _work(self, sender: Sender, todos: trio.MemoryReceiveChannel[Todo], nursery: trio.Nursery) -> None:
        async with todos:
            async for todo in todos:
                attempt = await self._attempt(sender, todo)
                await self._noting.acquire()
                nursery.start_soon(self._note_beside, todo, attempt)
                if self._ending:
                    return

    async def _note_beside(self, todo: Todo, attempt: Attempt | Damaged) -> None:
        try:
            await self._note(todo, attempt)
        finally:
            self._noting.release()

    # -- one todo ------------------------------------------------------------------------------------------------------

    async def _attempt(self, sender: Sender, todo: Todo, only: int | None = None) -> Attempt | Damaged:
        """Send what a todo holds (`only` the first few events); notes what was answered if it is cancelled."""
        self._outstanding[todo.seq] = trio.current_time()
        try:
            batch = self._recent.take(self.id, todo.seq) if todo.kind == BATCH else None
            batch = batch or await self._load(todo)
        except Damaged as damage:
            return damage
        attempt = Attempt.probe(batch, only) if only is not None else Attempt(batch)
        try:
            await self._send(sender, attempt)
        except trio.Cancelled:
            await self._note(todo, attempt)
            raise
        trouble = attempt.overloaded()
        if trouble is not None and self._trouble is None:
            self._trouble, self._ending = trouble, True
        return attempt

    async def _load(self, todo: Todo) -> Batch:
        """From disk; what cannot be read is repaired first, so that only damage which stays counts as damage."""
        try:
            return await self._spool.load(self.id, todo)
        except Damaged:
            await self._spool.store.repair()
            return await self._spool.load(self.id, todo)

    async def _send(self, sender: Sender, attempt: Attempt) -> None:
        while (piece := attempt.next_piece()) is not None:
            positions, events = piece
            self._taps.offer(f"outputs.{self.key.output}", events)
            try:
                attempt.answered(positions, await sender.send(events))
            except TooLarge as error:
                attempt.too_large(positions, str(error))
            except Held as error:
                attempt.failed(positions, Trouble(str(error), held=True))
            except Later as error:
                attempt.failed(positions, Trouble(str(error), retry_after=error.retry_after))
            except trio.Cancelled:
                attempt.failed(positions, Trouble("the session was cancelled"))
                raise
            except Exception as error:
                attempt.failed(positions, self._failed(error))

    async def _note(self, todo: Todo, attempt: Attempt | Damaged) -> None:
        """Settle what was answered, and see to what is left. Not cancelled: the destination has said yes."""
        with trio.CancelScope(shield=True):
            if isinstance(attempt, Damaged):
                _log.error("stored events are damaged", output=self.key.output, events=todo.events, cause=str(attempt))
                await self._settle(todo, Verdict(Counts(damaged=todo.events)))
                del self._outstanding[todo.seq]
            else:
                await self._note_answers(todo, attempt)
        self._news.set()

    async def _note_answers(self, todo: Todo, attempt: Attempt) -> None:
        problem = attempt.problem()
        verdict = attempt.verdict(self.key.output)
        try:
            await self._settle(todo, verdict)
        except Full:
            problem = "the dead-letter store is full, rejected events are held"
            verdict = attempt.verdict(self.key.output, keep_rejected=True)
            await self._settle(todo, verdict)
        if attempt.progress:
            self._waits = self._backoff()
        left = verdict is None or verdict.rest is not None
        if left:
            rest = verdict.rest if verdict is not None else None
            self._park(todo if rest is None else todo._replace(kind=REST, events=rest.count), problem, attempt)
        else:
            del self._outstanding[todo.seq]
        if not self._parked:
            self._parked_reason = None
            self._parked_waits = self._backoff()
        if self._trouble is None:
            self._report(self._parked_reason)

    async def _settle(self, todo: Todo, verdict: Verdict | None) -> None:
        if verdict is None:
            return
        self.counters["letters_dropped"] += await self._spool.settle(self.id, todo.seq, verdict)
        for name in ("delivered", "duplicate", "dead_letter", "damaged"):
            self.counters[name] += getattr(verdict.counts, name)

    def _park(self, todo: Todo, problem: str | None, attempt: Attempt) -> None:
        """What is left of a batch comes again after a while; the others go on, unless there are too many such."""
        wait = max(next(self._parked_waits), attempt.retry_after or 0.0)
        heapq.heappush(self._parked, (trio.current_time() + wait, todo))
        self._outstanding[todo.seq] = math.inf
        self._parked_reason = problem or "some events were put off"
        if len(self._parked) > PARKED and self._trouble is None:
            self._trouble, self._ending = Trouble(self._parked_reason), True

    # -- how it is doing -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """A destination that takes a request and says nothing must not look healthy until the time-out."""
        while True:
            await trio.sleep(SLOW_SECONDS / 2)
            waited = trio.current_time() - min(self._outstanding.values(), default=math.inf)
            if waited > SLOW_SECONDS:
                self._report(f"no answer for {waited:.0f} s")

    def _report(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._on_change()
