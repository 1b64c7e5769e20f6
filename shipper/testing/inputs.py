"""The contract of inputs, as assertions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

import trio

from shipper.plugin import Credential, Fields, Input, Source
from shipper.testing.connections import watch
from shipper.testing.context import RecordingInputContext
from shipper.testing.loops import watched
from shipper.testing.traces import MOST_STRIKES, Secrets, Traces, in_time, struck, with_loop

_MOMENT = 0.05
"""Seconds without room; peers may try again and again meanwhile."""

Feed = Callable[[RecordingInputContext], Awaitable[None]]
Make = Callable[[Mapping[str, bytes]], RecordingInputContext]


def _message(event: Fields) -> Hashable:
    return str(event.get("message"))


# -- events ------------------------------------------------------------------------------------------------------------


async def check_input(
    input: Input,
    count: int,
    *,
    context: Make = lambda stored: RecordingInputContext(positions=stored),
    feed: Feed | None = None,
    key: Callable[[Fields], Hashable] = _message,
    resumes: bool = True,
    refill: Callable[[], None] | None = None,
    change: tuple[Input, Mapping[str, Credential]] | None = None,
) -> list[Fields]:
    """Read `count` events and return them; raises AssertionError where the input breaks the contract.

    Nothing is read before `run`; what waits for room is stored when there is some; the log, what is
    reported and each `repr` show no secret; an input that is cancelled at any of its waits ends soon and leaves no
    descriptor, thread or task behind. One that `resumes` goes on from its positions then: each event comes once, in the
    same order; `key` says which one it is. `context` makes one with stored positions. `feed` is run beside each run of
    an input whose peers send, and sends the same again and again until it is taken.

    `refill` is for an input that acknowledges to a peer, which keeps what is not acknowledged: it is called before each
    start from the beginning, and makes the peer have the same events, none of them given to anybody yet. An event may
    come twice then, and none may be lost.

    `change` has settings and credentials for `Source.change`, for an input that connects by itself: what it had
    connected before is closed when `change`, and `changed` if there is one, have returned.
    """
    await trio.to_thread.run_sync(input.load)
    first = context({})
    before = await with_loop(getattr(first, "aio", None))
    secrets = Secrets([field for credential in first.credentials.values() for field in credential.fields.values()])
    _fill(refill)
    with secrets.kept_from_the_log():
        events = await _read(input, first, count, feed, secrets)
        _fill(refill)
        await _check_room(input, context({}), count, feed)
        keys = [key(event) for event in events]
        for at in range(1, MOST_STRIKES + 1):
            _fill(refill)
            if not await _check_restart(input, context, keys, key, feed, resumes=resumes, again=bool(refill), at=at):
                break
        if change is not None:
            _fill(refill)
            await _check_change(input, context({}), count, change)
    first.close()
    await before.wait_until_gone()
    return events


def _fill(refill: Callable[[], None] | None) -> None:
    if refill is not None:
        refill()


async def _read(
    input: Input, context: RecordingInputContext, count: int, feed: Feed | None, secrets: Secrets | None = None
) -> list[Fields]:
    await _run(input, context, lambda: context.count >= count, feed, secrets)
    return context.events[:count]


async def _run(
    input: Input,
    context: RecordingInputContext,
    is_complete: Callable[[], bool],
    feed: Feed | None,
    secrets: Secrets | None = None,
) -> None:
    with in_time():
        async with input.open(context) as source:
            assert not context.batches, "something was read before `run`"
            if secrets is not None:
                secrets.check(repr(input), repr(source))
            async with trio.open_nursery() as nursery:
                _start(nursery, source, context, feed, nursery.cancel_scope.cancel)
                await context.wait_until(is_complete)
                nursery.cancel_scope.cancel()
    if not is_complete():
        raise trio.TooSlowError("it ends before all events have come")
    if secrets is not None:
        secrets.check(*(problem for problem in context.problems if problem))


def _start(
    nursery: trio.Nursery,
    source: Source,
    context: RecordingInputContext,
    feed: Feed | None,
    ended: Callable[[], None] = lambda: None,
) -> None:
    async def run() -> None:
        await source.run()
        ended()

    nursery.start_soon(run)
    if feed is not None:
        nursery.start_soon(feed, context)


async def _check_room(input: Input, context: RecordingInputContext, count: int, feed: Feed | None) -> None:
    context.full = True
    with in_time():
        async with input.open(context) as source, trio.open_nursery() as nursery:
            _start(nursery, source, context, feed)
            await trio.sleep(_MOMENT)
            context.full = False
            await context.wait_for(count)
            nursery.cancel_scope.cancel()
    context.close()


async def _check_restart(
    input: Input,
    make: Make,
    keys: Sequence[Hashable],
    key: Callable[[Fields], Hashable],
    feed: Feed | None,
    *,
    resumes: bool,
    again: bool,
    at: int,
) -> bool:
    """Cancel it after a step, and go on; false if it has read all before that. Events may come `again`."""
    before = make({})
    try:
        was_struck = await struck(lambda: _read(input, before, len(keys), feed), at)
    except trio.TooSlowError:
        raise AssertionError(f"cancelled after its step {at}, it does not end") from None
    after = make(before.stored)

    def read() -> list[Hashable]:
        return [key(event) for event in before.events + after.events]

    def is_complete() -> bool:
        return set(keys) <= set(read()) if again else before.count + after.count >= len(keys)

    if resumes and not is_complete():
        try:
            await _run(input, after, is_complete, feed)
        except trio.TooSlowError:
            raise AssertionError(f"cancelled after its step {at}, it {_lost(again=again)}") from None
    came = list(dict.fromkeys(read())) if again else read()
    assert not resumes or came == list(keys), f"cancelled after its step {at}, it goes on elsewhere than where it was"
    before.close()
    after.close()
    return was_struck


def _lost(*, again: bool) -> str:
    if not again:
        return "has lost events, or does not go on"
    return (
        "has lost events, or does not go on: an entry is acknowledged when `emit` has returned, and one that was "
        "pending at the start is emitted before that, too"
    )


async def _check_change(
    input: Input, context: RecordingInputContext, count: int, change: tuple[Input, Mapping[str, Credential]]
) -> None:
    settings, credentials = change
    assert settings.identity() == input.identity(), "`change` gets settings of the same identity"
    if hasattr(context, "aio"):
        context.aio = watched(context.aio)
    with in_time(), watch() as connected:
        async with input.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            await context.wait_for(count)
            old = connected.opened()
            source.change(settings, credentials)
            if (changed := getattr(source, "changed", None)) is not None:
                await changed()
            left = sum(made.fileno() >= 0 for made in old)
            nursery.cancel_scope.cancel()
    context.close()
    assert not left, (
        f"{left} connections of before stay open over a change, and the old secrets are released with its return: "
        "close them in `change`, or in `changed`"
    )


# -- keyed state -------------------------------------------------------------------------------------------------------


async def check_state_input(
    input: Input,
    documents: Mapping[str, bytes],
    *,
    context: Make = lambda stored: RecordingInputContext(positions=stored),
) -> None:
    """Have an input keep these documents, by key; raises AssertionError where the input breaks the contract.

    Nothing is read before `run`; what waits for room is kept when there is some; an input that is cancelled at any of
    its waits ends soon, leaves no descriptor, thread or task behind, and completes the keys when it goes on from its
    positions. It gives no event, and each document as it is to be.
    """
    assert input.gives_state, "it does not say that it gives state"
    await trio.to_thread.run_sync(input.load)
    before, first = Traces(), context({})
    first.full = True
    with in_time():
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
    await before.wait_until_gone()


async def _check_state_restart(
    input: Input,
    make: Make,
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
    with in_time():
        async with input.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            await context.wait_until(lambda: _documents(context) == documents)
            nursery.cancel_scope.cancel()


def _documents(context: RecordingInputContext) -> dict[str, bytes]:
    return {key: document for (_, _, key), (document, _) in context.state.items() if document is not None}
