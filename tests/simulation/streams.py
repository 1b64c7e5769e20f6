"""Who writes events: streams that can be read again, and peers that give an event away once it is acknowledged.

    pull   a growing sequence, read from the stored position, as a file is; nothing is ever written twice
    push   peers hand over events and keep those that were not acknowledged, to hand them over again; an event has the
           id that its peer gave it

An event says whose it is and its number; the policy's processor stamps it with the revision it entered under.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from shipper.plugin import (
    Backpressure,
    Batch,
    Credential,
    Input,
    InputContext,
    Part,
    Processor,
    Source,
    StageContext,
    StartFailed,
)
from shipper.plugin import (
    Stage as ProcessorStage,
)
from tests.simulation.stage import Stage, current

PEERS = 3


class Stream:
    """The events of one input; numbers rise from 1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.written = 0
        self.waiting: deque[int] = deque()
        """Of `push`: what peers have to hand over."""
        self.accepted: set[int] = set()
        self.news = trio.Event()

    def write(self, count: int) -> None:
        """There are more events."""
        self.waiting.extend(range(self.written + 1, self.written + count + 1))
        self.written += count
        self.tell()

    def tell(self) -> None:
        self.news.set()
        self.news = trio.Event()


STREAMS: dict[str, Stream] = {}
"""Those of the world that runs, by name."""


class StampProcessor(Processor, frozen=True):
    """Marks events with the revision they pass under."""

    stamp: int = 0

    def process(self, batch: Batch) -> Batch:
        return batch.share({"stamp": self.stamp})


class HoldProcessor(Processor, frozen=True):
    """Holds events for a while."""

    seconds: float = 1.0

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[ProcessorStage]:
        yield _Holding(self.seconds, context)


class _Holding(ProcessorStage):
    def __init__(self, seconds: float, context: StageContext) -> None:
        self._seconds, self._context = seconds, context
        self._held: list[Part] = []
        self._due: float | None = None

    def process(self, part: Part) -> Sequence[Part]:
        self._held.append(part)
        self._due = self._due or self._context.now() + self._seconds
        return []

    def flush(self) -> Sequence[Part]:
        held = self._held
        self.rollback()
        return held

    @property
    def due(self) -> float | None:
        return self._due

    def rollback(self) -> None:
        self._held, self._due = [], None


class StreamInput(Input, frozen=True):
    """Reads the stream of its name; another spot is another place."""

    spot: int = 0
    pad: int = 0

    def identity(self) -> Any:
        return self.spot


class PullInput(StreamInput, frozen=True):
    """Reads a stream from the stored position."""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        async with opening(context):
            yield _Pull(self, context)


class PushInput(StreamInput, frozen=True):
    """Takes what peers hand over."""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        async with opening(context):
            yield _Push(self, context)


@asynccontextmanager
async def opening(context: InputContext) -> AsyncIterator[None]:
    """What an input does before it reads, and after."""
    stage = current()
    await stage.pause("inputs")
    if stage.strikes("input_refused"):
        raise StartFailed("simulated: the port is taken")
    try:
        yield
    finally:
        if stage.alive:
            with trio.CancelScope(shield=True):
                await stage.pause("inputs", 0.1)


class Reading(Source):
    """A source of a world."""

    def __init__(self, settings: StreamInput, context: InputContext) -> None:
        self.settings, self.context = settings, context
        self.stage: Stage = current()
        self.name = context.name

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        self.settings = settings

    async def run(self) -> None:
        """Read until it fails or is closed."""
        place = {"stream": self.name, "spot": self.settings.spot}
        self.stage.note("reading", **place)
        try:
            await self.read()
        except trio.Cancelled:
            if self.stage.alive:
                self.stage.note("read_no_more", **place)
            raise

    async def read(self) -> None:
        """Read for ever."""
        raise NotImplementedError

    async def stumble(self) -> None:
        """Take a moment, and fail perhaps."""
        await self.stage.pause("inputs")
        if self.stage.strikes("input_fails"):
            raise OSError("simulated")


class _OfStream(Reading):
    def __init__(self, settings: StreamInput, context: InputContext) -> None:
        super().__init__(settings, context)
        self.stream = STREAMS[context.name]

    async def emit(self, batch: Batch, numbers: range | list[int], **how: Any) -> None:
        self.stage.note("emitting", stream=self.stream.name, numbers=tuple(numbers))
        await self.context.emit(batch, **how)
        self.stage.effect()
        self.stage.note("emitted", stream=self.stream.name, numbers=tuple(numbers))
        self.stream.accepted.update(numbers)

    def batch(self, numbers: range | list[int]) -> Batch:
        name, pad = self.stream.name, "x" * self.settings.pad
        ids = [f"{name}-{number}" for number in numbers] if name == "push" else None
        documents = [b'{"stream":"%b","number":%d,"pad":"%b"}' % (name.encode(), n, pad.encode()) for n in numbers]
        return Batch.documents(documents, ids=ids)


class _Pull(_OfStream):
    async def read(self) -> None:
        at = int((await self.context.positions()).get("at", b"0"))
        self.stream.accepted.update(range(1, at + 1))
        while True:
            await self.stumble()
            while at >= self.stream.written:
                await self.stream.news.wait()
            count = min(self.stream.written - at, self.stage.random("inputs").randint(1, 12))
            numbers = range(at + 1, at + count + 1)
            await self.emit(self.batch(numbers), numbers, positions={"at": b"%d" % (at + count)})
            at += count


class _Push(_OfStream):
    async def read(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(PEERS):
                nursery.start_soon(self._peer)

    async def _peer(self) -> None:
        while True:
            await self.stumble()
            while not self.stream.waiting:
                await self.stream.news.wait()
            count = min(len(self.stream.waiting), self.stage.random("inputs").randint(1, 6))
            await self._hand_over([self.stream.waiting.popleft() for _ in range(count)])

    async def _hand_over(self, numbers: list[int]) -> None:
        """What was not acknowledged comes again, whatever became of it."""
        try:
            await self.emit(self.batch(numbers), numbers, wait=self.stage.random("inputs").random() < 0.7)
        except Backpressure:
            self._take_back(numbers)
            await trio.sleep(0.1)
        except BaseException:
            self._take_back(numbers)
            raise

    def _take_back(self, numbers: list[int]) -> None:
        self.stream.waiting.extendleft(reversed(numbers))
        self.stream.tell()
