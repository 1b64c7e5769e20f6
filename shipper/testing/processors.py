"""The contract of processors and stages, as assertions."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

import orjson

from shipper.plugin import Asyncio, Batch, Part, Processor, Stage, StageContext
from shipper.sdk.joining import rejoined
from shipper.testing.traces import Traces

_BEGIN = 1000.0
"""The clock of a stage, in seconds."""
_LATER = 1e6
_CLOCKS = frozenset({time.monotonic, time.monotonic_ns, time.time, time.time_ns})


# -- processors --------------------------------------------------------------------------------------------------------


def check_processor(processor: Processor, batch: Batch) -> Batch:
    """Run a processor and return what it made; raises AssertionError where it breaks the contract.

    The batch that came in is as it was; the ids that go on are some of those that came, in their order; a second run
    makes the same in another thread, so nothing was kept from the first; a batch of no events stays one.
    """
    before = batch.pack()
    result = _processed(processor, batch)
    assert batch.pack() == before, "the batch that came in was changed"
    assert _rows(result) == _rows(_elsewhere(lambda: _processed(processor, batch))), "two runs differ"
    assert not _processed(processor, batch.replace([], [])).count, "a batch without events became one with some"
    assert (result.origin, result.seq) == (batch.origin, batch.seq), "the batch lost its id"
    came = iter(batch.id_texts())
    assert all(any(i == id_ for i in came) for id_ in result.id_texts()), "an id is new, or out of order"
    assert len(_rows(result)) == result.count, "the count is wrong"
    return result


def _processed(processor: Processor, batch: Batch) -> Batch:
    positions = range(batch.count) if processor.when is None else processor.when.meet(batch)
    is_whole = len(positions) == batch.count
    if not positions and not is_whole:
        return batch
    made = processor.process(batch if is_whole else batch.pick(positions))
    assert isinstance(made, Batch), "it makes no batch; of one that makes parts `check_stage` is the judge"
    return made if is_whole else rejoined(batch, positions, made)


_Made = TypeVar("_Made")


def _elsewhere(run: Callable[[], _Made]) -> _Made:
    """What it makes in a thread that has run nothing before."""
    made: list[_Made] = []
    thread = threading.Thread(target=lambda: made.append(run()))
    thread.start()
    thread.join()
    assert made, "it cannot run in another thread"
    return made[0]


# -- stages ------------------------------------------------------------------------------------------------------------


async def check_stage(
    processor: Processor, batches: Sequence[Batch], *, aio: Asyncio | None = None, filters: bool = True
) -> list[Part]:
    """Run a processor that is opened, or makes parts, over batches and return all parts, those of a flush too.

    Raises AssertionError where it breaks the contract. The batches that came in are as they were; a part can be packed,
    and names its outputs by a set; no event goes on twice to an output, and each one does if it never `filters`. What
    was taken back leaves no trace, so that a second run in another thread makes the same, also one batch at a time;
    what was committed before stays. A batch on which it fails leaves no trace either; after a flush nothing is held,
    and nothing is due; when it is closed no descriptor, thread or task is left. Its only clock is `StageContext.now`.
    """
    traces, before = Traces(), [batch.pack() for batch in batches]
    async with _opened(processor, aio) as (stage, _):
        parts = _run(stage, batches)
        assert [batch.pack() for batch in batches] == before, "a batch that came in was changed"
        _check_each_once(batches, parts, filters=filters)
        assert not stage.flush(), "it holds something after a flush"
        stage.rollback()
        for batch in batches:
            _run(stage, [batch])
        stage.rollback()
        for batch in batches:
            stage.process(Part(batch))
        stage.rollback()
        assert _all_rows(_run(stage, batches)) == _all_rows(parts), _TRACE
        stage.rollback()
        _check_failure(stage, batches, parts)
        stage.rollback()
        assert _all_rows(_elsewhere(lambda: _run(stage, batches))) == _all_rows(parts), _TRACE
        stage.commit()
        assert stage.due is None, "it holds something after a flush and a commit"
        assert not stage.flush(), "it holds something after a commit"
    await _check_commit(processor, batches, aio)
    await _check_clock(processor, batches, aio)
    await traces.wait_until_gone()
    return parts


_TRACE = "what was taken back left a trace: `rollback` restores all that `process` and `flush` have changed"


class _Clock:
    def __init__(self) -> None:
        self.now = _BEGIN

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def _opened(processor: Processor, aio: Asyncio | None) -> AsyncIterator[tuple[Stage, _Clock]]:
    clock = _Clock()
    context = StageContext("test", cast(Asyncio, aio), now=clock)
    if not processor.is_stage:
        yield _Unopened(processor), clock
        return
    async with processor.open(context) as stage:
        yield stage, clock


class _Unopened(Stage):
    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def process(self, part: Part) -> Sequence[Part]:
        made = self._processor.process(part.batch)
        return [part._replace(batch=made)] if isinstance(made, Batch) else made


def _run(stage: Stage, batches: Sequence[Batch]) -> list[Part]:
    assert isinstance(stage, Stage), "it opened what is no Stage"
    made = [part for batch in batches for part in stage.process(Part(batch))] + list(stage.flush())
    for part in made:
        assert part.outputs is None or isinstance(part.outputs, frozenset), "its outputs are no set"
        assert len(_rows(Batch.unpack(part.batch.pack(), origin=b"", seq=0))) == part.batch.count, "the count is wrong"
    return made


def _check_failure(stage: Stage, batches: Sequence[Batch], parts: Sequence[Part]) -> None:
    """Raises AssertionError if a batch on which it fails changes what it makes of these."""
    sound = b'{"message":"sound"}\n'
    try:
        stage.process(Part(Batch(count=3, body=sound + b"{no JSON}\n" + sound)))
    except Exception:
        try:
            same = _all_rows(_run(stage, batches)) == _all_rows(parts)
        except ValueError:  # of the document that is no JSON
            same = False
        assert same, (
            "a batch on which it failed left a trace, and its events come again: read the whole batch first, and "
            "change the state after that"
        )


def _check_each_once(batches: Sequence[Batch], parts: Sequence[Part], *, filters: bool) -> None:
    """Raises AssertionError for an event that goes on twice as it came, or for fewer events than came."""
    came = Counter(row for batch in batches for row in _own_rows(batch))
    to_all = Counter(row for part in parts if part.outputs is None for row in _own_rows(part.batch))
    to_one = Counter(
        (row, name)
        for part in parts
        if part.outputs is not None
        for row in _own_rows(part.batch)
        for name in part.outputs
    )
    most: dict[bytes, int] = {}
    for (row, _), times in to_one.items():
        most[row] = max(most.get(row, 0), times)
    doubled = sum(max(0, to_all[row] + most.get(row, 0) - count) for row, count in came.items())
    assert not doubled, (
        f"{doubled} events go on twice to the same output: an event is given back once, by `process` or by `flush`"
    )
    gone = sum(came.values()) - sum(part.batch.count for part in parts)
    assert filters or gone <= 0, (
        f"{gone} of {sum(came.values())} events were lost: what `process` holds comes out by `flush` (a stage that "
        "leaves out events is checked with `filters`)"
    )


async def _check_commit(processor: Processor, batches: Sequence[Batch], aio: Asyncio | None) -> None:
    """Raises AssertionError if a rollback goes behind the last commit, or not back to it."""
    async with _opened(processor, aio) as (stage, _):
        _run(stage, batches)
        stage.commit()
        first = _all_rows(_run(stage, batches))
        stage.rollback()
        assert _all_rows(_run(stage, batches)) == first, (
            "a rollback does not restore the state of the last commit: what was committed stays, what came later goes"
        )


async def _check_clock(processor: Processor, batches: Sequence[Batch], aio: Asyncio | None) -> None:
    """Raises AssertionError if it has a clock of its own: if it reads another, or if what is due is not due later by as
    much as its clock goes on."""
    async with _opened(processor, aio) as (stage, clock):
        with _clocks_read() as read:
            early = _due(stage, batches)
            stage.rollback()
            clock.now += _LATER
            late = _due(stage, batches)
            stage.rollback()
    assert not read, f"it has a clock of its own ({', '.join(sorted(read))}): `StageContext.now` is the only one"
    assert _follows(early, late), "its `due` does not follow `StageContext.now`: an instant of that clock is meant"


def _follows(early: float | None, late: float | None) -> bool:
    """A stage that is due at once may say so by an instant that is always past."""
    if early is None or late is None:
        return early is late
    return late == early <= _BEGIN or abs(late - early - _LATER) < 1e-3


def _due(stage: Stage, batches: Sequence[Batch]) -> float | None:
    for batch in batches:
        stage.process(Part(batch))
    return stage.due


@contextmanager
def _clocks_read() -> Iterator[set[str]]:
    """The clocks of Python that this thread reads while the block runs, however they were imported."""
    read: set[str] = set()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and frame.f_globals.get("__name__") != "logging" and _is_clock(argument):
            read.add(f"time.{argument.__name__}")

    former = sys.getprofile()
    sys.setprofile(called)
    try:
        yield read
    finally:
        sys.setprofile(former)


def _is_clock(function: Any) -> bool:
    return any(function is clock for clock in _CLOCKS)


# -- rows --------------------------------------------------------------------------------------------------------------


def _all_rows(parts: Sequence[Part]) -> list[tuple[list[object], frozenset[str] | None]]:
    return [(_rows(part.batch), part.outputs) for part in parts]


def _rows(batch: Batch) -> list[object]:
    return [orjson.loads(row) for row in batch.json_lines().splitlines()]


def _own_rows(batch: Batch) -> list[bytes]:
    """The events without their shared fields, as texts."""
    return [orjson.dumps(event, option=orjson.OPT_SORT_KEYS, default=repr) for event in batch.own()]
