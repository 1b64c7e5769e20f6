"""The stages of one running input: what they hold and what they gave is stored in one transaction, or rolled back.

    emit ──> process ──> group ──┬── nothing is held: at once ──────────────┐
                                 └── until it is due, full, or flushed ─────┴──> flush, store ──> commit, or rollback

A lock serialises the calls; emits that wait for it form a group with the one that has it. A group is stored as a whole,
with all positions, under the route of that moment. Nothing is processed meanwhile, so rolling back a group rolls back
exactly everything since the last commit. Its emits then run again, as if they had never been processed.

An input that `rereads` does not wait for held events: its emit returns, and its position is pending like the events. If
they cannot be stored, the input is opened again, and nothing of it is accepted until then.

Around a cut (`settle` until `resume`) no emit is processed. If the cut changes the processors of an input, what its
stages hold is stored before the cut. A full queue or a hanging disk delays the cut for some seconds only: the spool
refuses what is stored later, and it is rolled back.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec
import trio

from shipper.pipeline import door
from shipper.pipeline.intake.chain import Chain, Rest
from shipper.plugin import Processor, Stage, StageContext
from shipper.process import log, stalls
from shipper.process.environment import REAL, Clock
from shipper.process.groups import contained, failures_apart
from shipper.sdk.codes import Code
from shipper.sdk.errors import Backpressure, Outdated, PluginFault, StartFailed, anew, raised_at
from shipper.sdk.event import Batch
from shipper.spool.queue import Packed

_log = log.get(__name__)

MOST_BYTES = 16 << 20
"""The most bytes of a group: of what is to be stored, and, where emits wait, of what they gave."""
MOST_BATCHES = 1000
"""The most batches of a group: a transaction of so many takes some tens of milliseconds."""
PATIENCE_SECONDS = 5.0
"""Seconds that a cancelled emit waits for a transaction that has begun; the store has as many."""

Place = tuple[str, int]


class Made(msgspec.Struct, frozen=True):
    """A batch to be stored, and the names of its outputs (None: all).

    `packed.source` is the number of the batch that the input gave, unless a stage made it.
    """

    batch: Batch
    packed: Packed
    outputs: frozenset[str] | None


class Emission(msgspec.Struct, eq=False):
    """One call of `emit`."""

    batches: Sequence[Batch]
    arrived: datetime
    positions: Mapping[str, bytes | None]
    wait: bool
    expect: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    ended: trio.Event = msgspec.field(default_factory=trio.Event)
    is_stored: bool = False
    error: BaseException | None = None

    @property
    def events(self) -> int:
        return sum(batch.count for batch in self.batches)

    @property
    def size(self) -> int:
        return sum(len(batch.body) for batch in self.batches)

    @property
    def weight(self) -> int:
        """The bytes of its events, each with all its fields."""
        return sum(batch.weight for batch in self.batches)

    def end(self, *, is_stored: bool = False, error: BaseException | None = None) -> None:
        self.is_stored, self.error = is_stored, None if error is None else anew(error)
        self.ended.set()


@dataclass(eq=False, slots=True)
class Group:
    """What is stored together."""

    stages: Sequence[Stage]
    made: list[Made] = field(init=False, default_factory=list)
    positions: dict[str, bytes | None] = field(init=False, default_factory=dict)
    expect: dict[str, bytes | None] = field(init=False, default_factory=dict)
    """The positions that must be stored before it."""
    waiting: list[Emission] = field(init=False, default_factory=list)
    events: int = field(init=False, default=0)
    """Bytes of all its emissions, as the input gave them."""
    bytes: int = field(init=False, default=0)
    failures: int = field(init=False, default=0)
    size: int = field(init=False, default=0)
    """Bytes that it takes in memory."""
    has_returned: bool = field(init=False, default=False)
    """Whether an emission was answered before it was stored."""
    is_storing: bool = field(init=False, default=False)
    is_void: bool = field(init=False, default=False)
    """Whether it must be rolled back."""
    due: float = field(init=False, default=-math.inf)
    """When it must be stored; in the past: at once."""
    ended: trio.Event = field(init=False, default_factory=trio.Event)

    @property
    def wait(self) -> bool:
        return all(emission.wait for emission in self.waiting)

    @property
    def is_full(self) -> bool:
        return self.size >= MOST_BYTES or len(self.made) >= MOST_BATCHES

    def add(self, made: Sequence[Made], failures: int) -> None:
        """Adds what was made of an emission."""
        self.made += made
        self.size += sum(len(one.packed.body) for one in made)
        self.failures += failures

    def check(self, emission: Emission) -> None:
        """Raises Outdated if the positions in this group are not those that the emission expects."""
        for key, expected in emission.expect.items():
            if key in self.positions and self.positions[key] != expected:
                raise Outdated(key)

    def take(self, emission: Emission) -> None:
        """Adds a processed emission."""
        self.expect.update({key: at for key, at in emission.expect.items() if key not in self.positions})
        self.positions.update(emission.positions)
        self.events += emission.events
        self.bytes += emission.size


class Owner(Protocol):
    """What stages need of the running input."""

    async def process(self, emission: Emission) -> tuple[Sequence[Made], int]:
        """Returns what its processors make of an emission, and how often one failed on an event."""

    async def flush(self) -> tuple[Sequence[Made], int]:
        """Returns what its stages still hold."""

    async def store(self, group: Group) -> bool:
        """Stores a group under the present route; returns False if that is no longer the active one."""

    def stored(self, group: Group) -> None:
        """Counts a stored emission."""

    def read_again(self) -> None:
        """Opens the input again: what it has emitted was not stored."""

    def stage_failed(self) -> None:
        """Shows that a stage has failed, see `Stages.fault`."""


class Stages:
    """The stages of one running input; `run` is their task, `clock` that of their `due`."""

    def __init__(self, owner: Owner, clock: Clock = REAL.monotonic, *, rereads: bool = False) -> None:
        self.opened: dict[Place, Opened] = {}
        self._owner, self._clock, self._rereads = owner, clock, rereads
        self._chain = Chain(())
        self._lock = trio.Lock()
        self._goes_on = trio.Event()
        self._goes_on.set()
        self._group: Group | None = None
        self._news = trio.Event()
        self._is_lost = False
        self._hurries = False
        self._retired: list[Opened] = []
        self._scope = trio.CancelScope()
        self._is_running = False

    @property
    def are_any(self) -> bool:
        """Whether events may be held."""
        return bool(self._chain.stages)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held or being stored."""
        return self._group is None and not self._is_lost and self._goes_on.is_set()

    @property
    def fault(self) -> str | None:
        """Returns why a stage is passed by, or was until it works again."""
        return next((one.rest.reason for one in self.opened.values() if one.rest.reason is not None), None)

    async def emit(self, emission: Emission) -> bool:
        """Processes an emission and waits until it is stored, or held; returns False if it must run again. See
        `Port.emit`."""
        async with self._turn():
            if not self._chain.stages:  # they were taken away meanwhile
                return False
            group = self._group = self._group or Group(self._chain.stages)
            group.check(emission)
            try:
                made, failures = await self._owner.process(emission)
            except BaseException:
                self._void(group)
                raise
            group.add(made, failures)
            group.take(emission)
            group.due = self._due(group)
            returns = self._rereads and group.due > -math.inf
            if returns:
                group.has_returned = True
            else:
                group.waiting.append(emission)
                group.size += emission.size
            self._tell()
        if returns:
            return True
        await self._ended(group, emission)
        if emission.error is not None:
            raise anew(emission.error)
        return emission.is_stored

    async def _ended(self, group: Group, emission: Emission) -> None:
        """Waits for its end. If cancelled, the emission is withdrawn, or its transaction has ended, or hangs in the
        disk."""
        try:
            await emission.ended.wait()
        except trio.Cancelled:
            if not group.is_storing:
                self._void(group)
            else:
                with trio.move_on_after(PATIENCE_SECONDS, shield=True):
                    await emission.ended.wait()
            raise

    async def free(self) -> None:
        """Waits until an emit that passes no stage may go on."""
        if not self.is_idle:
            async with self._turn():
                group = self._group
            if group is not None:
                await group.ended.wait()

    async def pending(self) -> dict[str, bytes | None]:
        """Returns the positions of what is held."""
        if self.is_idle:
            return {}
        async with self._turn():
            return {} if self._group is None else dict(self._group.positions)

    # -- around a cut, and at the end ----------------------------------------------------------------------------------

    async def settle(self, *, flush: bool) -> None:
        """Stops processing emits; waits for what is being stored, and if wanted stores what is held."""
        if not self._is_running:
            return
        self._goes_on = trio.Event()
        if flush:
            await self.flush()
        else:
            async with self._lock:
                pass

    def hurry(self) -> None:
        """Until `resume`, stages hold nothing: what they hold comes out at once, and new events pass."""
        self._hurries = True
        if self._group is not None:
            self._group.due = -math.inf
            self._tell()

    async def flush(self) -> None:
        """Stores what is held; returns when it is stored, or rolled back."""
        if not self._is_running:
            return
        async with self._lock:
            group = self._group
            if group is None:
                return
            group.due = -math.inf
            self._tell()
        await group.ended.wait()

    def switch(self, chain: Chain, opened: Mapping[Place, Opened], *, is_kept: bool) -> bool:
        """Uses these processors from now on; what is held went the same way, or is rolled back.

        Returns whether `run` must be started.
        """
        if self._group is not None and not is_kept and not self._group.is_storing:
            self._void(self._group)
        self._chain = chain
        self._retired += [one for one in self.opened.values() if one not in opened.values()]
        self.opened = dict(opened)
        self.resume()
        self._tell()
        is_first, self._is_running = bool(opened) and not self._is_running, self._is_running or bool(opened)
        return is_first

    def resume(self) -> None:
        """Lets emits go on."""
        self._hurries = False
        self._goes_on.set()

    def reopened(self) -> None:
        """The input begins from its positions again."""
        self._is_lost = False

    def close(self) -> None:
        """The input is closed; what is held is lost, and was never acknowledged."""
        self._scope.cancel("the input is closed")
        for one in (*self.opened.values(), *self._retired):
            one.close()

    # -- transactions --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stores groups when they are due."""
        with self._scope:
            while True:
                await self._until_due()
                async with self._lock:
                    self._tidy()
                    if self._group is not None and self._group.due <= self._clock():
                        await self._store(self._group)
                    self._close_retired()

    async def _until_due(self) -> None:
        while True:
            news, group = self._news, self._group
            if self._retired or (group is not None and (group.is_void or group.due <= self._clock())):
                return
            with trio.move_on_after(math.inf if group is None else group.due - self._clock()):
                await news.wait()

    async def _store(self, group: Group) -> None:
        """Stores the group. Raises only Cancelled, after a rollback.

        If a stage fails to give what it holds, the emits run again, and pass it by.
        """
        try:
            if not await self._flushed(group):
                return
            if group.is_void:
                self._take_back(group)
                return
            group.is_storing = True
            stored = await self._owner.store(group)
        except Exception as error:
            self._take_back(group, error)
        except BaseException:
            self._take_back(group)
            raise
        else:
            if stored:
                self._commit(group)
            else:
                self._take_back(group)

    async def _flushed(self, group: Group) -> bool:
        """Adds what the stages hold; if one fails, takes the group back and returns False."""
        try:
            group.add(*await self._owner.flush())
        except PluginFault:
            if not any(one.rest.is_on for one in self.opened.values()):  # it would be the same again
                raise
            self._take_back(group)
            self._owner.stage_failed()
            return False
        return True

    def _commit(self, group: Group) -> None:
        for stage in group.stages:
            self._call(stage, stage.commit)
        self._owner.stored(group)
        for emission in group.waiting:
            emission.end(is_stored=True)
        self._group = None
        group.ended.set()

    def _take_back(self, group: Group, error: Exception | None = None) -> None:
        for stage in group.stages:
            self._call(stage, stage.rollback)
        for emission in group.waiting:
            emission.end(error=None if _is_of_others(error, emission) else error)
        if group.has_returned:
            self._is_lost = True
            self._owner.read_again()
        self._group = None
        group.ended.set()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Waits until nobody else processes or stores, and no cut is under way."""
        while True:
            async with self._lock:
                self._tidy()
                if self._goes_on.is_set() and not self._is_lost:
                    yield
                    return
            if self._is_lost:  # who emits is about to be closed
                await trio.sleep_forever()
            await self._goes_on.wait()

    def _tidy(self) -> None:
        if self._group is not None and self._group.is_void:
            self._take_back(self._group)

    def _close_retired(self) -> None:
        for one in self._retired:
            one.close()
        self._retired = []

    def _void(self, group: Group) -> None:
        group.is_void = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _due(self, group: Group) -> float:
        """Returns when the group must be stored: at once if nothing is held, or too much."""
        resting = [one.stage for one in self.opened.values() if one.rest.is_on]
        due = [self._due_of(stage) for stage in group.stages if stage not in resting]
        held = [at for at in due if at is not None]
        return -math.inf if self._hurries or not held or group.is_full else min(held)

    def _due_of(self, stage: Stage) -> float | None:
        try:
            with contained():
                return stage.due
        except Exception as error:
            self._note(stage, error)
            return None

    def _call(self, stage: Stage, what: Callable[[], None]) -> None:
        try:
            with contained():
                what()
        except Exception as error:
            self._note(stage, error)

    def _note(self, stage: Stage, error: Exception) -> None:
        """A stage has failed in what it alone can do: it rests, and what it holds is rolled back."""
        for one in self.opened.values():
            if one.stage is stage:
                one.rest.begin(one.failed(error))
        if self._group is not None and not self._group.is_storing:
            self._void(self._group)
        self._owner.stage_failed()


def _is_of_others(error: Exception | None, emission: Emission) -> bool:
    """Whether the emission itself may run again: it waits for room, or another one expected other positions."""
    if isinstance(error, Outdated):
        return error.key not in emission.expect
    return isinstance(error, Backpressure) and emission.wait


# -- what is open ------------------------------------------------------------------------------------------------------


class Opened:
    """An open processor, until it is closed."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.stage: Stage
        self.rest = Rest()
        self._scope = trio.CancelScope()

    async def run(self, context: StageContext, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Opens it. Raises StartFailed; a later failure is logged."""
        is_open = False
        stalls.unit.set(f"inputs.{context.name}")

        def failed(error: Exception) -> None:
            if not is_open:
                raise _as_start_failed(context, self.processor, error) from error
            self.rest.reason = self.failed(error)

        with self._scope, failures_apart(failed):
            async with self.processor.open(context) as made:
                self.stage = door.opened(made, Stage)
                is_open = True
                task_status.started()
                await trio.sleep_forever()

    def failed(self, error: Exception) -> str:
        """Logs that the stage has failed; returns what to say of it."""
        name = type(self.processor).__name__
        _log.error("a stage failed", processor=name, error=raised_at(error))
        return f"{name} failed: {type(error).__name__}"

    def close(self) -> None:
        """Closes it soon."""
        self._scope.cancel("nothing uses this stage any more")


def _as_start_failed(context: StageContext, processor: Processor, error: Exception) -> StartFailed:
    cause = log.redacted(str(error)) if isinstance(error, StartFailed | PluginFault | OSError) else raised_at(error)
    code = error.code if isinstance(error, StartFailed | PluginFault) else Code.START_FAILED
    return StartFailed(f"input {context.name}: {type(processor).__name__}: {cause}", code=code)


async def open_all(
    processors: Mapping[Place, Processor],
    kept: Mapping[Place, Opened],
    start: Callable[[Place, Opened], Awaitable[None]],
) -> dict[Place, Opened]:
    """Returns an open stage for each such processor: one of the `kept` with equal settings, or a new one.

    For those of one output their order counts. Raises what `start` raises, after closing the new ones.
    """
    left, fresh = dict(kept), list[Opened]()
    found: dict[Place, Opened] = {}
    try:
        for place, processor in processors.items():
            if not processor.is_stage:
                continue
            same = [at for at, one in left.items() if at[0] == place[0] and one.processor == processor]
            if same:
                found[place] = left.pop(same[0])
            else:
                found[place] = Opened(processor)
                fresh.append(found[place])
                await start(place, found[place])
    except BaseException:
        for one in fresh:
            one.close()
        raise
    return found
