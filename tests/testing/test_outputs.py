"""The checks of outputs refuse each fault by a sentence, and accept the right twin of the plugin that has it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from shipper.plugin import (
    Answer,
    Answers,
    Batch,
    Endpoint,
    Feeding,
    NotBegun,
    Outcome,
    Output,
    OutputContext,
    Sender,
)
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.connection import broken_off, open_stream
from shipper.testing import check_close, check_output, loops, traces

GREETING = b"hello\n"
EVENT = "the customer paid by card"
BATCH = Batch.documents([b'{"message":"%b"}' % EVENT.encode()])
LARGE = Batch.lines(b"x" * (4 << 20) + b"\n", offset=0, shared={})
NO_LOOP = OutputContext("main", None)  # type: ignore[arg-type]


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    async with open_asyncio() as aio:
        yield aio


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, int]]:
    """It greets, and answers `ok` to each empty line."""

    async def answer(stream: trio.SocketStream) -> None:
        try:
            await stream.send_all(GREETING)
            async for block in stream:
                await stream.send_all(b"ok\n" * block.count(b"\n\n"))
        except trio.BrokenResourceError:
            """It was aborted."""

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        yield listener.socket.getsockname()
        nursery.cancel_scope.cancel()


# -- in trio -----------------------------------------------------------------------------------------------------------


class Lines(Output, frozen=True, kw_only=True):
    """Sends lines, on a connection for each batch; without a fault it is right."""

    host: str
    port: int
    fault: str = ""

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        sender = _Lines(self, context)
        if self.fault == "connects in open":
            await trio.aclose_forcefully(await open_stream(sender.endpoint))
        yield sender


class _Lines(Sender):
    def __init__(self, settings: Lines, context: OutputContext) -> None:
        self.endpoint = Endpoint("tcp", settings.host, settings.port)
        self._fault, self._context = settings.fault, context

    async def send(self, batch: Batch) -> Answers:
        stream = await open_stream(self.endpoint)
        try:
            await self._talk(stream, batch)
        except (OSError, trio.BrokenResourceError) as error:
            raise broken_off(self.endpoint.address, error) from None
        finally:
            if self._fault == "is closed in order":
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))  # type: ignore[attr-defined]
            await trio.aclose_forcefully(stream)
        if self._fault == "quotes":
            return Answers(batch.count, {0: Answer(Outcome.REJECTED, f"no field in {EVENT[4:18]}…")})
        return Answers(batch.count)

    async def _talk(self, stream: trio.abc.Stream, batch: Batch) -> None:
        await stream.receive_some(len(GREETING))
        if self._fault != "does not ask" and not self._context.may_begin():
            raise NotBegun("nothing may be sent now")
        await stream.send_all(batch.json_lines() + b"\n")
        if self._fault != "does not wait" and not await stream.receive_some():
            raise trio.BrokenResourceError


async def test_a_right_output_is_accepted() -> None:
    async with server() as (host, port):
        (answers,) = await check_output(Lines(host=host, port=port), NO_LOOP, [BATCH])
    await check_close(lambda host, port: Lines(host=host, port=port), NO_LOOP, LARGE, greeting=GREETING)

    assert answers == Answers(1)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("connects in open", "`open` connects to the destination, which may be down"),
        ("quotes", "the text of an event is shown, or a part of it"),
    ],
)
async def test_an_output_with_a_fault_is_refused(fault: str, sentence: str) -> None:
    async with server() as (host, port):
        with pytest.raises(AssertionError, match=sentence):
            await check_output(Lines(host=host, port=port, fault=fault), NO_LOOP, [BATCH])


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("does not ask", "it sends though `OutputContext.may_begin` returns False"),
        ("does not wait", "`send` has final answers for 1 events, though its peer never answered"),
        ("is closed in order", "bytes were sent after the output was closed"),
    ],
)
async def test_an_output_with_a_fault_is_refused_at_a_peer_that_does_not_answer(fault: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        await check_close(
            lambda host, port: Lines(host=host, port=port, fault=fault), NO_LOOP, LARGE, greeting=GREETING
        )


async def test_an_author_who_forgets_the_greeting_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "PATIENCE", 0.2)
    with pytest.raises(AssertionError, match="its words are the `greeting`"):
        await check_close(lambda host, port: Lines(host=host, port=port), NO_LOOP, LARGE)


class Absent(Output, frozen=True):
    """Its requests stay the same, and it has a reason not to send."""

    def feeding(self) -> Feeding:
        return replace(super().feeding(), stable=True)

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        yield _Absent()


class _Absent(Sender):
    async def send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        assert batch.request is not None
        nested = {"reason": Answer(Outcome.LATER, "not now")}
        return Answers(batch.count, {0: nested["reason"]})


async def test_a_short_text_or_another_word_is_no_quotation() -> None:
    batch = Batch.documents([b'{"message":"not now, and not later","list":["not", {"a": 1}]}'])
    (answers,) = await check_output(Absent(), NO_LOOP, [batch])

    assert answers.others[0].reason == "not now"


# -- in the loop of asyncio --------------------------------------------------------------------------------------------


class Loop(Output, frozen=True, kw_only=True):
    """Sends lines by asyncio; without a fault it is right."""

    host: str
    port: int
    fault: str = ""

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        sender = _Loop(self, context)
        if self.fault == "connects in open":
            await context.aio.call(sender.connected)
        yield sender


class _Loop(Sender):
    def __init__(self, settings: Loop, context: OutputContext) -> None:
        self._settings, self._context = settings, context

    async def send(self, batch: Batch) -> Answers:
        await self._context.aio.call(self._publish, batch.json_lines() + b"\n")
        return Answers(batch.count)

    async def connected(self) -> None:
        _, writer = await asyncio.open_connection(self._settings.host, self._settings.port)
        writer.transport.abort()
        await asyncio.sleep(0)

    async def _publish(self, text: bytes) -> None:
        reader, writer = await asyncio.open_connection(self._settings.host, self._settings.port)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            await reader.readline()
            if not self._context.may_begin():
                raise NotBegun("nothing may be sent now")
            writer.write(text)
            await self._answer(reader)
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        try:
            if self._settings.fault != "does not wait":
                await reader.readline()
        except asyncio.CancelledError:
            if self._settings.fault == "goes on":
                await asyncio.Event().wait()
            if self._settings.fault != "swallows a cancel":
                raise


async def test_a_right_output_in_asyncio_is_accepted(aio: Asyncio) -> None:
    context = OutputContext("main", aio)
    async with server() as (host, port):
        await check_output(Loop(host=host, port=port), context, [BATCH])
    await check_close(lambda host, port: Loop(host=host, port=port), context, LARGE, greeting=GREETING)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("connects in open", "`open` connects to the destination"),
        ("swallows a cancel", "its coroutine caught CancelledError and returned"),
        ("goes on", "its coroutine caught CancelledError and went on"),
    ],
)
async def test_an_output_in_asyncio_with_a_fault_is_refused(
    fault: str, sentence: str, aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "goes on":
        monkeypatch.setattr(loops, "PATIENCE", 0.1)
    async with server() as (host, port):
        with pytest.raises(AssertionError, match=sentence):
            await check_output(Loop(host=host, port=port, fault=fault), OutputContext("main", aio), [BATCH])


async def test_an_output_in_asyncio_that_does_not_wait_is_refused(aio: Asyncio) -> None:
    with pytest.raises(AssertionError, match="though its peer never answered"):
        await check_close(
            lambda host, port: Loop(host=host, port=port, fault="does not wait"),
            OutputContext("main", aio),
            LARGE,
            greeting=GREETING,
        )
