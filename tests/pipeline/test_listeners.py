"""Listening sockets belong to the process and stay open while inputs take turns."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from shipper.pipeline.intake import listeners as module
from shipper.pipeline.intake.listeners import Listeners
from shipper.sdk import resolve
from shipper.sdk.endpoints import Endpoint
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
    listener = await listeners.get(old, "in", Endpoint("tcp", HOST, 0))
    port = listener.getsockname()[1]

    assert await listeners.get(new, "in", Endpoint("tcp", HOST, 0)) is listener
    listeners.release(old)
    assert connects((HOST, port))
    listeners.release(new)
    assert not connects((HOST, port))


async def test_an_address_that_holds_another_one_within_is_taken() -> None:
    listeners, user = Listeners(), object()
    port = (await listeners.get(user, "a", Endpoint("tcp", HOST, 0))).getsockname()[1]

    with pytest.raises(StartFailed, match="cannot listen"):
        await listeners.get(user, "b", Endpoint("tcp", "0.0.0.0", port))
    listeners.release(user)


async def test_port_0_is_another_port_for_each_name() -> None:
    listeners, user = Listeners(), object()

    assert await listeners.get(user, "a", Endpoint("tcp", HOST, 0)) is not await listeners.get(
        user, "b", Endpoint("tcp", HOST, 0)
    )
    listeners.release(user)


async def test_a_taken_port_cannot_start_and_leaves_nothing_open() -> None:
    listeners, user = Listeners(), object()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"cannot listen on {HOST}:{port}") as refused:
            await listeners.get(user, "in", Endpoint("tcp", HOST, port))
        assert refused.value.code == "port_taken"
    listener = await listeners.get(user, "in", Endpoint("tcp", HOST, port))

    assert not listener.getblocking()
    listeners.release(user)
    listeners.release(user)


async def test_an_unknown_host_cannot_start() -> None:
    with pytest.raises(StartFailed):
        await Listeners().get(object(), "in", Endpoint("tcp", "256.0.0.1", 1))


async def test_two_who_wait_for_one_name_get_one_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners, user = Listeners(), object()
    got: list[socket.socket] = []

    async def get() -> None:
        got.append(await listeners.get(user, "in", Endpoint("tcp", "localhost", 0)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(get)
        nursery.start_soon(get)
    first, second = got

    assert first is second
    listeners.release(user)


async def test_a_name_that_is_not_answered_cannot_start_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging(monkeypatch):
        monkeypatch.setattr(resolve, "RESOLVE_SECONDS", 0.01)
        with trio.fail_after(30), pytest.raises(StartFailed, match=r"cannot listen on logs\.example:1: no answer"):
            await Listeners().get(object(), "in", Endpoint("tcp", "logs.example", 1))


# -- datagrams, and sockets in the file system -------------------------------------------------------------------------


async def test_tcp_and_udp_are_beside_each_other_on_one_port() -> None:
    listeners, user = Listeners(), object()
    stream = await listeners.get(user, "in", Endpoint("tcp", HOST, 0))
    datagrams = await listeners.get(user, "in", Endpoint("udp", HOST, stream.getsockname()[1]))

    assert (stream.type, datagrams.type) == (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    listeners.release(user)


async def test_no_host_is_every_address_of_this_one() -> None:
    listeners, user = Listeners(), object()
    port = (await listeners.get(user, "in", Endpoint("tcp", "", 0))).getsockname()[1]

    assert connects((HOST, port))
    listeners.release(user)


async def test_a_taken_udp_port_is_not_shared() -> None:
    listeners, user = Listeners(), object()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, 0))
        with pytest.raises(StartFailed) as refused:
            await listeners.get(user, "in", Endpoint("udp", HOST, taken.getsockname()[1]))
    assert refused.value.code == "port_taken"


@pytest.mark.parametrize("scheme", ["unix", "unixgram"])
async def test_a_socket_in_the_file_system_is_there_as_long_as_an_input_has_it(scheme: str, tmp_path: Path) -> None:
    listeners, old, new = Listeners(), object(), object()
    path = tmp_path / "in"
    listener = await listeners.get(old, "in", Endpoint(scheme, path=str(path)), mode=0o620)  # type: ignore[arg-type]
    assert stat.S_IMODE(path.stat().st_mode) == 0o620

    again = await listeners.get(new, "in", Endpoint(scheme, path=str(path)), mode=0o666)  # type: ignore[arg-type]
    assert again is listener
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    listeners.release(old)
    assert path.is_socket()
    listeners.release(new)
    await trio.testing.wait_all_tasks_blocked()
    await gone(path)


async def gone(path: Path) -> None:
    with trio.fail_after(30):
        while path.exists():  # noqa: ASYNC240 - in a folder of the test
            await trio.lowlevel.checkpoint()


async def test_a_socket_that_is_released_and_wanted_at_once_stays(tmp_path: Path) -> None:
    listeners, old, new = Listeners(), object(), object()
    endpoint = Endpoint("unix", path=str(tmp_path / "in"))
    listener = await listeners.get(old, "in", endpoint)
    listeners.release(old)
    assert await listeners.get(new, "in", endpoint) is listener
    await trio.testing.wait_all_tasks_blocked()
    async with listeners._files:
        assert (tmp_path / "in").is_socket()
    listeners.release(new)
    await gone(tmp_path / "in")


async def test_a_file_system_that_does_not_answer_cannot_start_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, made = threading.Event(), threading.Event()
    chmod = os.chmod

    def hanging(path: str, mode: int) -> None:
        answers.wait(30)
        chmod(path, mode)
        made.set()

    monkeypatch.setattr(module, "FILE_SECONDS", 0.05)
    monkeypatch.setattr(os, "chmod", hanging)
    with pytest.raises(StartFailed, match="its file system does not answer"):
        await Listeners().get(object(), "in", Endpoint("unix", path=str(tmp_path / "in")))
    answers.set()
    made.wait(30)
    await gone(tmp_path / "in")
