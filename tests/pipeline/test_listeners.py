"""Listening sockets belong to the process and stay open while inputs take turns."""

from __future__ import annotations

import socket

import pytest
import trio

from shipper.pipeline.listeners import Listeners
from shipper.sdk import resolve
from shipper.sdk.errors import StartFailed
from tests.sdk.test_resolve import hanging

HOST = "127.0.0.1"


def connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 1).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_a_socket_stays_open_while_inputs_take_turns() -> None:
    listeners, old, new = Listeners(), object(), object()
    listener = await listeners.get(old, "in", HOST, 0)
    port = listener.getsockname()[1]

    assert await listeners.get(new, "in", HOST, 0) is listener
    listeners.release(old)
    assert connects((HOST, port))
    listeners.release(new)
    assert not connects((HOST, port))


async def test_an_address_that_holds_another_one_within_is_taken() -> None:
    listeners, user = Listeners(), object()
    port = (await listeners.get(user, "a", HOST, 0)).getsockname()[1]

    with pytest.raises(StartFailed, match="cannot listen"):
        await listeners.get(user, "b", "0.0.0.0", port)
    listeners.release(user)


async def test_port_0_is_another_port_for_each_name() -> None:
    listeners, user = Listeners(), object()

    assert await listeners.get(user, "a", HOST, 0) is not await listeners.get(user, "b", HOST, 0)
    listeners.release(user)


async def test_a_taken_port_cannot_start_and_leaves_nothing_open() -> None:
    listeners, user = Listeners(), object()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"cannot listen on {HOST}:{port}") as refused:
            await listeners.get(user, "in", HOST, port)
        assert refused.value.code == "port_taken"
    listener = await listeners.get(user, "in", HOST, port)

    assert not listener.getblocking()
    listeners.release(user)
    listeners.release(user)


async def test_an_unknown_host_cannot_start() -> None:
    with pytest.raises(StartFailed):
        await Listeners().get(object(), "in", "256.0.0.1", 1)


async def test_two_who_wait_for_one_name_get_one_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners, user = Listeners(), object()
    got: list[socket.socket] = []

    async def get() -> None:
        got.append(await listeners.get(user, "in", "localhost", 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(get)
        nursery.start_soon(get)
    first, second = got

    assert first is second
    listeners.release(user)


async def test_a_name_that_is_not_answered_cannot_start_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging(monkeypatch):
        monkeypatch.setattr(resolve, "RESOLVE_SECONDS", 0.01)
        with trio.fail_after(20), pytest.raises(StartFailed, match=r"cannot listen on logs\.example:1: no answer"):
            await Listeners().get(object(), "in", "logs.example", 1)
