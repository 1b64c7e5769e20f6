"""The contract of `shipper.plugin`, as assertions that hold for every plugin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson
import trio

from shipper.plugin import Answers, Batch, Feeding, Held, Later, Output, OutputContext, Processor, TooLarge

_PATIENCE = 10.0
_STRIKES = (0, 1, 2, 5, 50)
"""After how many steps of the scheduler a send is cancelled."""


def check_processor(processor: Processor, batch: Batch) -> Batch:
    """Run a processor and return what it made; raises AssertionError where it breaks the contract.

    The batch that came in is as it was; the ids that go on are some of those that came, in their order; a second run
    makes the same, so nothing was kept from the first.
    """
    before = batch.pack()
    result = processor.process(batch)
    assert batch.pack() == before, "the batch that came in was changed"
    assert _rows(result) == _rows(processor.process(batch)), "two runs differ"
    assert (result.origin, result.seq) == (batch.origin, batch.seq), "the batch lost its id"
    came = iter(_ids(batch))
    assert all(any(i == id_ for i in came) for id_ in _ids(result)), "an id is new, or out of order"
    assert len(_rows(result)) == result.count, "the count is wrong"
    return result


async def check_output(output: Output, context: OutputContext, batches: Sequence[Batch]) -> list[Answers]:
    """Send each batch and return the answers; raises AssertionError where the output breaks the contract.

    An answer covers exactly its batch; neither a `repr` nor a reason shows a secret or the text of an event; a send
    that is cancelled at some instant ends soon, and when the output is closed no descriptor is left open. The first
    batch is sent more than once for that. What `Sender.send` may raise is raised on.
    """
    assert isinstance(output.feeding(), Feeding), "it does not say how it is to be fed"
    before = _descriptors()
    answers = []
    async with output.open(context) as sender:
        _assert_hides(context, [], repr(output), repr(sender), repr(context))
        for batch in batches:
            try:
                answer = await sender.send(batch)
            except (Later, Held, TooLarge) as error:
                _assert_hides(context, [batch], str(error))
                raise
            assert answer.count == batch.count, "the answers are not as many as the events"
            assert all(0 <= position < batch.count for position in answer.others), "an answer for no event"
            _assert_hides(context, [batch], *(other.reason for other in answer.others.values()))
            answers.append(answer)
    for batch in batches[:1]:
        for steps in _STRIKES:
            await _check_cancel(output, context, batch, steps)
    await _wait_for_descriptors(before)
    return answers


async def _check_cancel(output: Output, context: OutputContext, batch: Batch, steps: int) -> None:
    with trio.fail_after(_PATIENCE):
        async with output.open(context) as sender, trio.open_nursery() as nursery:
            nursery.start_soon(sender.send, batch)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def _wait_for_descriptors(before: int) -> None:
    """A connection that was closed here is noticed a little later by a server in this process."""
    with trio.move_on_after(_PATIENCE):
        while _descriptors() > before:  # noqa: ASYNC110 - nobody tells when a descriptor closes
            await trio.sleep(0.01)
    assert _descriptors() <= before, "something was left open"


def _descriptors() -> int:
    return len(os.listdir("/dev/fd")) if Path("/dev/fd").is_dir() else 0


def _assert_hides(context: OutputContext, batches: Sequence[Batch], *texts: str) -> None:
    secrets = [text for credential in context.credentials.values() for text in credential.secrets()]
    messages = [str(event.get("message", "")) for batch in batches for event in batch.own()]
    for text in texts:
        assert not any(secret in text for secret in secrets), "a secret is shown"
        assert not any(message in text for message in messages if len(message) >= 8), "the text of an event is shown"


def _ids(batch: Batch) -> list[str]:
    return batch.id_texts()


def _rows(batch: Batch) -> list[object]:
    return [orjson.loads(row) for row in batch.json_lines().splitlines()]
