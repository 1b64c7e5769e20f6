"""The contract of outputs, as assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from shipper.plugin import (
    Answer,
    Answers,
    Batch,
    Feeding,
    Held,
    Later,
    NotBegun,
    Outcome,
    Output,
    OutputContext,
    Sender,
    TooLarge,
)
from shipper.testing.connections import watch
from shipper.testing.loops import struck_in_loop, watched
from shipper.testing.stalled import open_stalled_peer
from shipper.testing.traces import MOST_STRIKES, Secrets, for_a_while, round_trips, struck, with_loop

_QUOTED = 12
"""A run of so many characters that is an event's is a quotation."""
_SHORTEST = 8
_ROUNDS = 10
_OF_ONE_EVENT = b'{"message":"whether this is answered is not known"}'

Refused = (Later, Held, TooLarge, NotBegun)


# -- answers, secrets, cancels -----------------------------------------------------------------------------------------


async def check_output(output: Output, context: OutputContext, batches: Sequence[Batch]) -> list[Answers]:
    """Send each batch and return the answers; raises AssertionError where the output breaks the contract.

    It connects nowhere when it is opened; an answer covers exactly its batch; neither a `repr` nor a reason nor the log
    shows a secret, nor the first two the text of an event, or 12 characters of it; a send that is cancelled at any of
    its waits ends soon, also at those of its coroutines in asyncio's loop, and when the output is closed no descriptor,
    thread or task is left. The first batch is sent many times for that. What `Sender.send` may raise is raised on.
    """
    assert isinstance(output.feeding(), Feeding), "it does not say how it is to be fed"
    await trio.to_thread.run_sync(output.load)
    before, secrets = await with_loop(context.aio), Secrets(_secrets(context))
    batches = [_as_request(output, batch, number) for number, batch in enumerate(batches)]
    with secrets.kept_from_the_log():
        answers = await _answers(output, context, batches)
        for batch in batches[:1]:
            await _check_cancel(output, context, batch)
            if context.aio is not None:
                await _check_cancel_in_loop(output, context, batch)
    await before.wait_until_gone()
    return answers


def _as_request(output: Output, batch: Batch, number: int) -> Batch:
    return batch.requested(f"request{number}") if output.feeding().stable else batch


async def _answers(output: Output, context: OutputContext, batches: Sequence[Batch]) -> list[Answers]:
    with watch() as connected:
        seen = context if context.aio is None else replace(context, aio=watched(context.aio))
        async with output.open(seen) as sender:
            await round_trips(context.aio, _ROUNDS)
            assert not connected or output.feeding().is_open_idle, (
                "`open` connects to the destination, which may be down: acquire there what sending needs, and connect "
                "in `send`"
            )
            _assert_hides(context, [], repr(output), repr(sender), repr(context))
            return [await _checked_send(sender, context, batch) for batch in batches]


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
    for at in range(1, MOST_STRIKES + 1):
        try:
            if not await struck(lambda: _once(output, context, batch), at):
                return
        except (Later, Held, TooLarge) as error:
            _assert_hides(context, [batch], str(error))
        except trio.TooSlowError:
            raise AssertionError(f"cancelled after its step {at}, it does not end") from None


async def _check_cancel_in_loop(output: Output, context: OutputContext, batch: Batch) -> None:
    for at in range(1, MOST_STRIKES + 1):
        try:
            if not await struck_in_loop(lambda aio: _once(output, replace(context, aio=aio), batch), context.aio, at):
                return
        except (Later, Held, TooLarge) as error:
            _assert_hides(context, [batch], str(error))


async def _once(output: Output, context: OutputContext, batch: Batch) -> None:
    async with output.open(context) as sender:
        await sender.send(batch)


# -- at a peer that does not answer ------------------------------------------------------------------------------------


async def check_close(
    output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch, *, greeting: bytes = b""
) -> None:
    """Checks that an output sends only while it may, and believes only answers; raises AssertionError.

    `output_to` makes the output for a host and a port, where a peer sends the `greeting` of a server that speaks first,
    and answers nothing. Nothing arrives there while `OutputContext.may_begin` says no; no event is delivered; and
    nothing is sent after the output is closed. The batch has some megabytes that do not compress, so that much of it
    waits to be sent in that instant.
    """
    await _check_may_begin(output_to, context, batch, greeting)
    await _check_unanswered(output_to, context, batch, greeting)
    await _check_rest(output_to, context, batch, greeting)


async def _check_may_begin(
    output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch, greeting: bytes
) -> None:
    heard, _ = await _tried(output_to, replace(context, may_begin=lambda: False), batch, greeting)
    assert not heard, (
        "it sends though `OutputContext.may_begin` returns False: the lease has ended, or the secret is withdrawn; ask "
        "it right before each request, on a connection that stands, and raise NotBegun"
    )


async def _check_unanswered(
    output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch, greeting: bytes
) -> None:
    _, answers = await _tried(output_to, context, batch, greeting)
    final = 0 if answers is None else sum(_is_final(answers.others.get(at)) for at in range(answers.count))
    assert not final, (
        f"`send` has final answers for {final} events, though its peer never answered: events that are lost on the way "
        "would never be sent again; wait for the destination's answer, or raise Later"
    )


def _is_final(answer: Answer | None) -> bool:
    return answer is None or answer.outcome not in (Outcome.LATER, Outcome.HELD)


async def _tried(
    output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch, greeting: bytes
) -> tuple[bool, Answers | None]:
    """Send one event to a peer that answers nothing, until it has heard of it and the output would have gone on.

    Returns whether it has heard, and the answers.
    """
    given: list[Answers] = []
    ended = trio.Event()

    async def send(sender: Sender, batch: Batch) -> None:
        try:
            given.append(await sender.send(batch))
        except Refused:
            """Nothing was delivered."""
        finally:
            ended.set()

    async with open_stalled_peer(greeting, reads=True) as peer:
        output = output_to(*peer.address)
        await trio.to_thread.run_sync(output.load)
        with for_a_while() as patience:
            async with output.open(context) as sender, trio.open_nursery() as nursery:
                nursery.start_soon(send, sender, _as_request(output, _small(output, batch), 0))
                await _first(ended, peer.heard)
                await round_trips(context.aio, _ROUNDS)
                nursery.cancel_scope.cancel()
        await round_trips(context.aio, _ROUNDS)
    assert not patience.cancelled_caught, _SILENT
    return peer.heard.is_set(), given[0] if given else None


_SILENT = "it neither sends anything nor ends: where the server speaks first, its words are the `greeting`"


async def _first(*events: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)


def _small(output: Output, batch: Batch) -> Batch:
    if batch.versions is not None or not output.takes_events():
        return batch.pick(range(1))
    return replace(Batch.documents([_OF_ONE_EVENT]), origin=batch.origin, seq=batch.seq)


async def _check_rest(
    output_to: Callable[[str, int], Output], context: OutputContext, batch: Batch, greeting: bytes
) -> None:
    async with open_stalled_peer(greeting) as peer:
        output = output_to(*peer.address)
        await trio.to_thread.run_sync(output.load)
        with for_a_while() as patience:
            async with output.open(context) as sender, trio.open_nursery() as nursery:
                nursery.start_soon(sender.send, _as_request(output, batch, 0))
                await peer.wait_until_full(context.aio)
                nursery.cancel_scope.cancel()
        wrong = _SILENT if patience.cancelled_caught else await peer.wrong()
    assert wrong is None, wrong


# -- what is shown -----------------------------------------------------------------------------------------------------


def _secrets(context: OutputContext) -> list[str]:
    return [text for credential in context.credentials.values() for text in credential.secrets()]


def _assert_hides(context: OutputContext, batches: Sequence[Batch], *shown: str) -> None:
    secrets = _secrets(context)
    texts = [text for batch in batches for event in batch.own() for text in _texts(event)]
    for one in shown:
        assert not any(secret in one for secret in secrets), "a secret is shown"
        assert not _quotes(one, texts), (
            "the text of an event is shown, or a part of it: a reason says in words of the output's own what was wrong"
        )


def _texts(value: Any) -> Iterator[str]:
    """Those in an event, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _quotes(shown: str, texts: Sequence[str]) -> bool:
    """Whether it has one of the texts, or a long part of one."""
    runs = {shown[at : at + _QUOTED] for at in range(len(shown) - _QUOTED + 1)}
    return any(
        (_SHORTEST <= len(text) <= len(shown) and text in shown) or any(run in text for run in runs) for text in texts
    )
