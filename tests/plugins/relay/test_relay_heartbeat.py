"""How long an edge with nothing to send takes a principal for connected that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from shipper.plugin import Asyncio
from shipper.sdk.aio import open_asyncio
from shipper_plugins.relay import frames
from tests.plugins.relay.pair import Principal, edge, entry, principal
from tests.plugins.running import becomes

BEAT = 1.0
"""Seconds; no heartbeat comes sooner."""


@pytest.fixture
async def aio(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asyncio]:
    monkeypatch.setattr(frames, "HEARTBEAT_SECONDS", BEAT)
    async with open_asyncio() as opened:
        yield opened


class Wire:
    """Passes connections on to a door, until it is silent: then nothing is heard from behind it, and nothing ends."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.is_silent = False
        self.url = ""

    async def serve(self, near: trio.SocketStream) -> None:
        async with near, await trio.open_tcp_stream("127.0.0.1", self._to) as far, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, near, far)
            await self._pass(far, near)
            nursery.cancel_scope.cancel()

    async def _pass(self, source: trio.SocketStream, to: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # either side may abort its connection
            async for data in source:
                if self.is_silent:
                    await trio.sleep_forever()
                await to.send_all(data)


@asynccontextmanager
async def wire(door: Principal) -> AsyncIterator[Wire]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made = Wire(door.port)
    made.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, made.serve, [listener])
        yield made
        nursery.cancel_scope.cancel()


def is_connected(sender: Any) -> bool:
    return sender.principal().connected_seconds is not None


async def test_a_principal_that_has_ended_is_missed_at_the_next_heartbeat(aio: Asyncio) -> None:
    async with trio.open_nursery() as nursery:
        async with principal(aio) as door:
            sender: Any = await nursery.start(_sending, aio, door.url)
            await becomes(lambda: is_connected(sender))
        door.context.close()
        await becomes(lambda: not is_connected(sender))
        await becomes(lambda: sender.principal().reason)
        nursery.cancel_scope.cancel()


async def _sending(aio: Asyncio, url: str, task_status: trio.TaskStatus[Any]) -> None:
    async with edge(aio, url) as sender:
        task_status.started(sender)
        await trio.sleep_forever()


async def test_a_principal_that_has_fallen_silent_is_missed_before_the_timeout_of_a_request(aio: Asyncio) -> None:
    async with principal(aio) as door, wire(door) as between, edge(aio, between.url, timeout=3600) as sender:
        await becomes(lambda: is_connected(sender))
        between.is_silent = True
        await becomes(lambda: not is_connected(sender))

        assert sender.principal().reason == "no answer to a heartbeat"


async def test_an_edge_with_nothing_to_send_goes_on_to_the_next_host(aio: Asyncio) -> None:
    async with (
        principal(aio) as first,
        principal(aio) as second,
        wire(first) as between,
        edge(aio, between.url, second.url, timeout=1) as sender,
    ):
        await becomes(lambda: is_connected(sender))
        between.is_silent = True
        await becomes(lambda: is_connected(sender) and sender.principal().host == second.url.removeprefix("http://"))
        await sender.send(entry(1))

        assert (first.numbers, second.numbers) == ([], [1])
