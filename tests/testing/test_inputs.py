"""The check of inputs refuses each fault by a sentence, and accepts the right twin of the input that has it.

The peer keeps entries until they are acknowledged, over a real connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from shipper.plugin import Batch, Credential, CredentialId, Endpoint, Input, InputContext, Source
from shipper.sdk.connection import open_stream
from shipper.testing import RecordingInputContext, check_input

KEY = CredentialId("key")
OLD, NEW = ({KEY: Credential.parse({"token": f"the-{word}-secret"})} for word in ("old", "new"))
COUNT = 3


class Broker:
    """Gives an entry, or `end`, for each line `new`, and those that are pending for `pending`; takes `ack`."""

    def __init__(self) -> None:
        self.fill()

    def fill(self) -> None:
        self.entries = Entries()

    async def talk(self, stream: trio.SocketStream) -> None:
        entries, rest = self.entries, b""
        try:
            async for block in stream:
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    await stream.send_all(entries.answer(line.decode()))
        except trio.BrokenResourceError:
            """It was aborted."""


class Entries:
    def __init__(self) -> None:
        self.new = [f"entry {number}" for number in range(COUNT)]
        self.pending: list[str] = []

    def answer(self, word: str) -> bytes:
        if word == "ack":
            self.pending.clear()
        if word == "pending":
            return f"{','.join(self.pending)}\n".encode()
        if word != "new":
            return b""
        if not self.new:
            return b"end\n"
        self.pending.append(self.new.pop(0))
        return f"{self.pending[-1]}\n".encode()


@asynccontextmanager
async def served(broker: Broker) -> AsyncIterator[int]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, broker.talk, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class Pull(Input, frozen=True, kw_only=True):
    """Without a fault it is right."""

    port: int
    fault: str = ""

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        yield _Pull(self, context)


class _Pull(Source):
    def __init__(self, settings: Pull, context: InputContext) -> None:
        self._endpoint, self._fault, self._context = (
            Endpoint("tcp", "127.0.0.1", settings.port),
            settings.fault,
            context,
        )
        self._session, self._closed = trio.CancelScope(), trio.Event()

    async def run(self) -> None:
        is_over = False
        while not is_over:
            stream = await open_stream(self._endpoint)
            try:
                with trio.CancelScope() as self._session:
                    is_over = await self._talk(stream)
            finally:
                await trio.aclose_forcefully(stream)
                self._closed.set()

    async def _talk(self, stream: trio.abc.Stream) -> bool:
        await stream.send_all(b"pending\n")
        pending = (await stream.receive_some()).decode().strip()
        if self._fault != "drops what is pending":
            await self._store([text for text in pending.split(",") if text])
        while True:
            await stream.send_all(b"ack\nnew\n")
            entry = (await stream.receive_some()).decode().strip()
            if entry == "end":
                return True
            if self._fault == "acknowledges first":
                await stream.send_all(b"ack\n")
            await self._store([entry])

    async def _store(self, texts: list[str]) -> None:
        if texts:
            await self._context.emit(Batch.events([{"message": text} for text in texts]))

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        if self._fault != "keeps its connection":
            self._session.cancel()

    async def changed(self) -> None:
        if self._fault != "keeps its connection":
            await self._closed.wait()


async def checked(broker: Broker, port: int, fault: str) -> list[object]:
    events = await check_input(
        Pull(port=port, fault=fault),
        COUNT,
        context=lambda stored: RecordingInputContext(positions=stored, credentials=OLD),
        refill=broker.fill,
        change=(Pull(port=port, fault=fault), NEW),
    )
    return [event["message"] for event in events]


async def test_a_right_input_that_acknowledges_is_accepted() -> None:
    broker = Broker()
    async with served(broker) as port:
        assert await checked(broker, port, "") == [f"entry {number}" for number in range(COUNT)]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("drops what is pending", "one that was pending at the start is emitted"),
        ("acknowledges first", "an entry is acknowledged when `emit` has returned"),
        ("keeps its connection", "1 connections of before stay open over a change"),
    ],
)
async def test_an_input_with_a_fault_is_refused(fault: str, sentence: str) -> None:
    broker = Broker()
    async with served(broker) as port:
        with pytest.raises(AssertionError, match=sentence):
            await checked(broker, port, fault)
