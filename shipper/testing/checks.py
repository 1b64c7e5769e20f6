"""The contract of `shipper.plugin`, as assertions that hold for every plugin."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import orjson
import trio

from shipper.plugin import (
    Answers,
    Asyncio,
    Batch,
    Feeding,
    Fields,
    Held,
    Input,
    Later,
    Outcome,
    Output,
    OutputContext,
    Part,
    Processor,
    Sender,
    Source,
    Stage,
    StageContext,
    TooLarge,
)
from shipper.sdk.joining import rejoined
from shipper.testing.context import RecordingInputContext
from shipper.testing.stalled import open_stalled_peer
from shipper.testing.traces import PATIENCE, Secrets, Traces, struck

MOST_STRIKES = 64
"""Instants at which a plugin is cancelled."""
_MOMENT = 0.05
"""Seconds without room; peers may try again and again meanwhile."""


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
    came = iter(_ids(batch))
    assert all(any(i == id_ for i in came) for id_ in _ids(result)), "an id is new, or out of order"
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


async def check_stage(processor: Processor, batches: Sequence[Batch], *, aio: Asyncio | None = None) -> list[Part]:
    """Run a processor that is opened, or makes parts, over batches and return all parts, those of a flush too.

    Raises AssertionError where it breaks the contract. The batches that came in are as they were; a part can be packed,
    and names its outputs by a set; what was taken back leaves no trace, so that a second run in another thread makes
    the same, also one batch at a time; a batch on which it fails leaves no trace either; after a flush nothing is held,
    and nothing is due; when it is closed no descriptor, thread or task is left. The clock stands still meanwhile.
    """
    traces, before = Traces(), [batch.pack() for batch in batches]
    context = StageContext("test", cast(Asyncio, aio), now=lambda: 1000.0)
    async with processor.open(context) if processor.is_stage else _unopened(processor) as stage:
        parts = _run(stage, batches)
        assert [batch.pack() for batch in batches] == before, "a batch that came in was changed"
        assert not stage.flush(), "it holds something after a flush"
        stage.rollback()
        for batch in batches:
            _run(stage, [batch])
        stage.rollback()
        _check_failure(stage, batches, parts)
        stage.rollback()
        assert _all_rows(_elsewhere(lambda: _run(stage, batches))) == _all_rows(parts), (
            "what was taken back left a trace"
        )
        stage.commit()
        assert stage.due is None, "it holds something after a flush and a commit"
        assert not stage.flush(), "it holds something after a commit"
    await traces.wait_until_gone()
    return parts


class _Unopened(Stage):
    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def process(self, part: Part) -> Sequence[Part]:
        made = self._processor.process(part.batch)
        return [part._replace(batch=made)] if isinstance(made, Batch) else made


@asynccontextmanager
async def _unopened(processor: Processor) -> AsyncIterator[Stage]:
    yield _Unopened(processor)


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
        assert same, "a batch on which it failed left a trace"


def _all_rows(parts: Sequence[Part]) -> list[tuple[list[object], frozenset[str] | None]]:
    return [(_rows(part.batch), part.outputs) for part in parts]


# -- outputs -----------------------------------------------------------------------------------------------------------


async def _traces(aio: Asyncio | None) -> Traces:
    """Returns the traces, with the loop of asyncio running: it starts with the first call, and stays."""
    if aio is not None:
        await aio.call(_nothing)
    return Traces()


async def _nothing() -> None:
    """A call of the loop."""


async def check_output(output: Output, context: OutputContext, batches: Sequence[Batch]) -> list[Answers]:
    """Send each batch and return the answers; raises AssertionError where the output breaks the contract.

    An answer covers exactly its batch; neither a `repr` nor a reason nor the log shows a secret, nor the first two the
    text of an event; a send that is cancelled at any of its waits ends soon, and when the output is closed no
    descriptor, thread or task is left. The first batch is sent many times for that. What `Sender.send` may raise is
    raised on.
    """
    assert isinstance(output.feeding(), Feeding), "it does not say how it is to be fed"
    await trio.to_thread.run_sync(output.load)
    traces, secrets = await _traces(context.aio), Secrets(_secrets(context))
    answers = []
    if output.feeding().stable:
        batches = [batch.requested(f"request{number}") for number, batch in enumerate(batches)]
    with secrets.kept_from_the_log():
        async with output.open(context) as sender:
            _assert_hides(context, [], repr(output), repr(sender), repr(context))
            for batch in batches:
                answers.append(await _checked_send(sender, context, batch))
        for batch in batches[:1]:
            await _check_cancel(output, context, batch)
    await traces.wait_until_gone()
    return answers


async def _checked_send(sender: Sender, context: OutputContext, batch: Batch) -> Answers:
    try:
        answer = await sender.send(batch)
    except (Later, Held, TooLarge) as error:
        _assert_hides(context, [batch], str(error))
        raise
    assert answer.count == batch.count, "the answers are not as many as the events"
    assert all(0 <= position < batch.count for position in answer.others), "an answer for no event"
    assert all(isinstance(other.outcome, Outcome) for other in answer.others.values()), "an answer without an outcome"
    assert answer.retry_after is None or answer.retry_after >= 0, "a time to wait that is below 0"
    _assert_hides(context, [batch], *(other.reason for other in answer.others.values()))
    return answer


async def _check_cancel(output: Output, context: OutputContext, batch: Batch) -> None:
    async def once() -> None:
        async with output.open(context) as sender:
            await sender.send(batch)

    for at in range(1, MOST_STRIKES + 1):
        try:
            if not await struck(once, at):
                return
        except (Later, Held, TooLarge) as error:
            _assert_hides(context, [batch], str(error))
        except trio.TooSlowError:
            raise AssertionError(f"cancelled after its step {at}, it does not end") from None


async def check_close(output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch) -> None:
    """Checks that nothing is sent after an output is closed; raises AssertionError.

    `output_to` makes the output for a host and a port, where a peer reads nothing. The batch has some megabytes that do
    not compress, so that much of it waits to be sent when the output is closed.
    """
    async with open_stalled_peer() as peer:
        output = output_to(*peer.address)
        await trio.to_thread.run_sync(output.load)
        with trio.fail_after(PATIENCE):
            async with output.open(context) as sender, trio.open_nursery() as nursery:
                nursery.start_soon(sender.send, batch)
                await peer.wait_until_full()
                nursery.cancel_scope.cancel()
        wrong = await peer.wrong()
    assert wrong is None, wrong


# -- inputs ------------------------------------------------------------------------------------------------------------


def _message(event: Fields) -> Hashable:
    return str(event.get("message"))


Feed = Callable[[RecordingInputContext], Awaitable[None]]


async def check_input(
    input: Input,
    count: int,
    *,
    context: Callable[[Mapping[str, bytes]], RecordingInputContext] = lambda stored: RecordingInputContext(
        positions=stored
    ),
    feed: Feed | None = None,
    key: Callable[[Fields], Hashable] = _message,
    resumes: bool = True,
) -> list[Fields]:
    """Read `count` events and return them; raises AssertionError where the input breaks the contract.

    Nothing is read before `run`; what waits for room is stored when there is some; the log, what is
    reported and each `repr` show no secret; an input that is cancelled at any of its waits ends soon and leaves no
    descriptor, thread or task behind. One that `resumes` goes on from its positions then: each event comes once, in the
    same order; `key` says which one it is. `context` makes one with stored positions. `feed` is run beside each run of
    an input whose peers send, and sends the same again and again until it is taken.
    """
    await trio.to_thread.run_sync(input.load)
    first = context({})
    traces = await _traces(getattr(first, "aio", None))
    secrets = Secrets([field for credential in first.credentials.values() for field in credential.fields.values()])
    with secrets.kept_from_the_log():
        events = await _read(input, first, count, feed, secrets)
        await _check_room(input, context({}), count, feed)
        keys = [key(event) for event in events]
        for at in range(1, MOST_STRIKES + 1):
            if not await _check_restart(input, context, keys, key, feed, resumes=resumes, at=at):
                break
    first.close()
    await traces.wait_until_gone()
    return events


async def _read(
    input: Input, context: RecordingInputContext, count: int, feed: Feed | None, secrets: Secrets | None = None
) -> list[Fields]:
    with trio.fail_after(PATIENCE):
        async with input.open(context) as source:
            assert not context.batches, "something was read before `run`"
            if secrets is not None:
                secrets.check(repr(input), repr(source))
            async with trio.open_nursery() as nursery:
                _start(nursery, source, context, feed)
                await context.wait_for(count)
                nursery.cancel_scope.cancel()
    if secrets is not None:
        secrets.check(*(problem for problem in context.problems if problem))
    return context.events[:count]


def _start(nursery: trio.Nursery, source: Source, context: RecordingInputContext, feed: Feed | None) -> None:
    nursery.start_soon(source.run)
    if feed is not None:
        nursery.start_soon(feed, context)


async def _check_room(input: Input, context: RecordingInputContext, count: int, feed: Feed | None) -> None:
    context.full = True
    with trio.fail_after(PATIENCE):
        async with input.open(context) as source, trio.open_nursery() as nursery:
            _start(nursery, source, context, feed)
            await trio.sleep(_MOMENT)
            context.full = False
            await context.wait_for(count)
            nursery.cancel_scope.cancel()
    context.close()


async def _check_restart(
    input: Input,
    make: Callable[[Mapping[str, bytes]], RecordingInputContext],
    keys: Sequence[Hashable],
    key: Callable[[Fields], Hashable],
    feed: Feed | None,
    *,
    resumes: bool,
    at: int,
) -> bool:
    """Cancel it after a step, and go on; false if it has read all before that."""
    before = make({})
    try:
        was_struck = await struck(lambda: _read(input, before, len(keys), feed), at)
    except trio.TooSlowError:
        raise AssertionError(f"cancelled after its step {at}, it does not end") from None
    after = make(before.stored)
    if resumes and before.count < len(keys):
        try:
            await _read(input, after, len(keys) - before.count, feed)
        except trio.TooSlowError:
            raise AssertionError(f"cancelled after its step {at}, it has lost events, or does not go on") from None
    read = [key(event) for event in before.events + after.events]
    assert not resumes or read == keys, f"cancelled after its step {at}, it goes on elsewhere than where it was"
    before.close()
    after.close()
    return was_struck


async def check_state_input(
    input: Input,
    documents: Mapping[str, bytes],
    *,
    context: Callable[[Mapping[str, bytes]], RecordingInputContext] = lambda stored: RecordingInputContext(
        positions=stored
    ),
) -> None:
    """Have an input keep these documents, by key; raises AssertionError where the input breaks the contract.

    Nothing is read before `run`; what waits for room is kept when there is some; an input that is cancelled at any of
    its waits ends soon, leaves no descriptor, thread or task behind, and completes the keys when it goes on from its
    positions. It gives no event, and each document as it is to be.
    """
    assert input.gives_state, "it does not say that it gives state"
    await trio.to_thread.run_sync(input.load)
    traces, first = Traces(), context({})
    first.full = True
    with trio.fail_after(PATIENCE):
        async with input.open(first) as source, trio.open_nursery() as nursery:
            await trio.sleep(_MOMENT)
            assert not first.state, "it reads before it is run"
            nursery.start_soon(source.run)
            await trio.sleep(_MOMENT)
            first.full = False
            await first.wait_until(lambda: _documents(first) == documents)
            nursery.cancel_scope.cancel()
    assert not first.count, "it emits events, too"
    first.close()
    for at in range(1, MOST_STRIKES + 1):
        if not await _check_state_restart(input, context, documents, at):
            break
    await traces.wait_until_gone()


async def _check_state_restart(
    input: Input,
    make: Callable[[Mapping[str, bytes]], RecordingInputContext],
    documents: Mapping[str, bytes],
    at: int,
) -> bool:
    """Cancel it after a step, and go on; false if it has kept all before that."""
    before = make({})
    try:
        was_struck = await struck(lambda: _keep(input, before, documents), at)
    except trio.TooSlowError:
        raise AssertionError(f"cancelled after its step {at}, it does not end") from None
    after = make(before.stored)
    after.state.update(before.state)
    try:
        await _keep(input, after, documents)
    except trio.TooSlowError:
        raise AssertionError(f"cancelled after its step {at}, it has lost keys, or does not go on") from None
    before.close()
    after.close()
    return was_struck


async def _keep(input: Input, context: RecordingInputContext, documents: Mapping[str, bytes]) -> None:
    with trio.fail_after(PATIENCE):
        async with input.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            await context.wait_until(lambda: _documents(context) == documents)
            nursery.cancel_scope.cancel()


def _documents(context: RecordingInputContext) -> dict[str, bytes]:
    return {key: document for (_, _, key), (document, _) in context.state.items() if document is not None}


# -- both --------------------------------------------------------------------------------------------------------------


def _secrets(context: OutputContext) -> list[str]:
    return [text for credential in context.credentials.values() for text in credential.secrets()]


def _assert_hides(context: OutputContext, batches: Sequence[Batch], *texts: str) -> None:
    secrets = _secrets(context)
    messages = [str(event.get("message", "")) for batch in batches for event in batch.own()]
    for text in texts:
        assert not any(secret in text for secret in secrets), "a secret is shown"
        assert not any(message in text for message in messages if len(message) >= 8), "the text of an event is shown"


def _ids(batch: Batch) -> list[str]:
    return batch.id_texts()


def _rows(batch: Batch) -> list[object]:
    return [orjson.loads(row) for row in batch.json_lines().splitlines()]
