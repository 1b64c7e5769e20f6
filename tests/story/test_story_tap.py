"""`shipper tap` and the real process: who sees events, and that nobody waits for those who look.

The driver looks after every test that no event and no secret is in a message or a line of the log.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import pytest
import trio

from shipper.control import asking
from shipper.control.tapping import AT_ONCE
from shipper.process.private_socket import OF_SHIPPER as NAME
from tests.canary import EVENT
from tests.story.driver import Sidecar, launched
from tests.story.world import open_world, shipping

PATIENCE = 60.0
GENERATED = "  main: {type: generate, rate: 20000, bytes: 100}\n"


def command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "shipper", "tap", *arguments, "--state", str(state)]


async def tapped(state: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(PATIENCE):
        return await trio.run_process(command(state, *arguments), check=False, capture_stdout=True, capture_stderr=True)


@asynccontextmanager
async def watching(state: Path, **question: Any) -> AsyncIterator[trio.SocketStream]:
    """A peer that has asked, and has read no more than that it was heard."""
    stream = await trio.open_unix_socket(str(state / NAME))
    async with stream:
        await stream.send_all(json.dumps({"ask": "watch", **question}).encode() + b"\n")
        with trio.fail_after(PATIENCE):
            yield stream


async def line(stream: trio.SocketStream) -> Any:
    raw = b""
    with trio.fail_after(PATIENCE):
        while not raw.endswith(b"\n"):
            raw += await stream.receive_some(1) or pytest.fail("there is no further line")
    return json.loads(raw)


async def logged(sidecar: Sidecar, message: str) -> Any:
    """The first line of the log with this message, as soon as there is one."""
    with trio.fail_after(PATIENCE):
        while True:
            for entry in map(json.loads, sidecar.log.splitlines()):
                if entry["message"] == message:
                    return entry
            await trio.sleep(0.02)


async def test_without_a_point_it_lists_them(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", more="processors: [{type: add_fields, fields: {service.name: shop}}]\n") as (
        world,
        _,
    ):
        seen = await tapped(world.state)

    assert (seen.returncode, seen.stderr) == (0, b"")
    assert seen.stdout.split() == [b"inputs.access", b"inputs.access.processors.0", b"outputs.main"]


@pytest.mark.parametrize("point", ["inputs.access", "outputs.main"])
async def test_it_shows_events_as_they_pass_and_ends_at_its_limit(tmp_path: Path, point: str) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar), trio.open_nursery() as nursery:
        seen: list[subprocess.CompletedProcess[bytes]] = []

        async def tap() -> None:
            seen.append(await tapped(world.state, point, "--limit", "3"))

        nursery.start_soon(tap)
        with trio.fail_after(PATIENCE):
            while not seen:
                world.write()
                await world.delivered()
                await trio.sleep(0.05)

    messages = [json.loads(line)["message"] for line in seen[0].stdout.splitlines()]
    numbers = [int(message.removeprefix(f"{EVENT} ")) for message in messages]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert f"3 of 3 events that have passed {point}\n".encode() in seen[0].stderr
    assert b"events are shown to a tap" in sidecar.log


async def test_a_secret_that_an_event_contains_is_hidden(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _), watching(world.state, point="inputs.access", limit=1) as stream:
        await line(stream)
        with world.log.open("a") as file:
            file.write(f"{EVENT} 0 key=secret-of-a\n")
        world.lines += 1
        event = (await line(stream))["event"]

    assert event["message"] == f"{EVENT} 0 key=[hidden]"


async def test_a_reader_that_does_not_read_holds_up_nothing_and_ends_in_time(tmp_path: Path) -> None:
    """What waits for it is bounded by a second of events, its socket, and its time."""
    async with shipping(tmp_path, "a") as (world, sidecar):
        async with watching(world.state, point="outputs.main", seconds=2, rate=200, limit=10_000) as stream:
            for _ in range(5):
                world.write(2000)
                await world.delivered(PATIENCE)
            log = await logged(sidecar, "a tap has ended")
            raw = b"".join([bytes(chunk) async for chunk in stream])
        world.write(10)
        await world.delivered()

    assert raw.count(b'{"event":') <= log["shipper.shown"] + 1
    assert log["shipper.shown"] <= log["shipper.passed"] <= 10_000


async def test_a_reader_that_leaves_within_an_event_is_told_how_it_ended(tmp_path: Path) -> None:
    """The event is larger than what a socket holds, so a part of it waits when the reader leaves."""
    inputs = "  main: {type: generate, rate: 20, bytes: 240000}\n"
    async with (
        shipping(tmp_path, "a", inputs=inputs) as (world, _),
        watching(world.state, point="inputs.main", limit=1000, seconds=3600.0, rate=20.0) as stream,
    ):
        assert "watching" in await line(stream)
        begun = await stream.receive_some(1)
        stream.socket.shutdown(socket.SHUT_WR)
        *events, end = (begun + b"".join([bytes(chunk) async for chunk in stream])).splitlines()

    assert json.loads(end)["end"]["why"] == "reader"
    assert json.loads(end)["end"]["shown"] == len([json.loads(event)["event"] for event in events])


async def test_a_reader_that_leaves_is_told_how_much_has_passed(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", inputs=GENERATED) as (world, _):
        process = await trio.lowlevel.open_process(
            command(world.state, "inputs.main", "--for", "1h", "--limit", "10000"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with trio.fail_after(PATIENCE):
            await process.stdout.receive_some(1)
            process.send_signal(signal.SIGINT)
            told = b"".join([bytes(chunk) async for chunk in process.stderr])
            status = await process.wait()
        await process.stdout.aclose()

    assert status == 0, told
    assert b" events that have passed inputs.main\n" in told


async def test_what_is_no_point_or_no_question_is_refused(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _):
        nowhere = await tapped(world.state, "outputs.nowhere")
        for question in (b"\n", b"{}\n", b'{"ask":"watch","point":"outputs.main","limit":0}\n', b"[" * 5000):
            async with await trio.open_unix_socket(str(world.state / NAME)) as stream:
                await stream.send_all(question)
                assert "refused" in await line(stream)

    assert (nowhere.returncode, nowhere.stdout) == (1, b"")
    assert nowhere.stderr == b"shipper: no such point; there are: inputs.access, outputs.main\n"


async def test_a_reader_of_its_output_that_leaves_is_no_error(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a", inputs=GENERATED) as (world, _):
        with trio.fail_after(PATIENCE):
            seen = await trio.run_process(
                ["sh", "-c", '"$@" | head -n 2', "sh", *command(world.state, "inputs.main", "--limit", "10000")],
                capture_stdout=True,
                capture_stderr=True,
            )

    assert seen.stdout.count(b"\n") == 2
    assert seen.stderr.splitlines() == [b"watching inputs.main; Ctrl-C ends it"]


async def test_only_so_many_look_at_once_and_one_that_leaves_makes_room(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar), trio.open_nursery() as nursery:

        async def look(task_status: trio.TaskStatus[trio.SocketStream]) -> None:
            async with watching(world.state, point="inputs.access", seconds=600) as stream:
                assert await line(stream) == {"watching": "inputs.access"}
                task_status.started(stream)
                await trio.sleep_forever()

        streams = [await nursery.start(look) for _ in range(AT_ONCE)]
        async with watching(world.state, point="inputs.access") as stream:
            assert "taps are open" in (await line(stream))["refused"]
        await streams[0].send_eof()
        assert (await line(streams[0]))["end"]["why"] == "reader"
        await logged(sidecar, "a tap has ended")
        async with watching(world.state, point="inputs.access") as stream:
            assert await line(stream) == {"watching": "inputs.access"}
        nursery.cancel_scope.cancel()


async def test_the_status_is_that_of_the_server(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state, "--http", "127.0.0.1:0") as sidecar:
        address = (await sidecar.hello())["http"]
        await world.settled(sidecar, 1, "a")
        world.write(3)
        await world.delivered()
        await sidecar.holds(0)
        asked = await trio.to_thread.run_sync(asking.status, world.state)
        served = await trio.to_thread.run_sync(
            lambda: json.loads(urlopen(f"http://{address}/status", timeout=60).read())
        )

    assert asked is not None
    assert asked.keys() == served.keys()
    assert asked["counters"] == served["counters"]
    assert asked["counters"]["main"]["delivered"] == 3


async def test_the_socket_is_for_its_user_alone_and_goes_with_the_process(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        place = world.state / NAME
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        await sidecar.kill()
        killed = await tapped(world.state)
        async with launched(world.state) as again:
            await again.hello()
            listed = await tapped(world.state)
            await again.stop()
        stopped = await tapped(world.state)

    for ended in (killed, stopped):
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr == f"shipper: no shipper runs with the state directory {world.state}\n".encode()
    assert (listed.returncode, place.exists()) == (0, False)


async def test_where_there_can_be_no_socket_it_ships_all_the_same(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        async with launched(world.state) as sidecar:
            await sidecar.hello()
            await sidecar.stop()
        (world.state / NAME).unlink(missing_ok=True)  # one that was stopped so soon may leave it
        (world.state / NAME).mkdir()
        async with world.shipping("a") as sidecar:
            world.write(3)
            await world.delivered()
            warned = await logged(sidecar, "`shipper top` cannot ask this process")
            seen = await tapped(world.state)

    assert (warned["log.level"], seen.returncode) == ("warning", 1)


@pytest.mark.root
async def test_another_user_is_not_heard_whatever_the_mode_of_the_socket() -> None:
    code = "import socket, sys; s = socket.socket(1); s.connect(sys.argv[1]); print(s.recv(99))"
    with TemporaryDirectory() as directory:
        async with shipping(Path(directory), "a") as (world, _):
            for path, mode in ((directory, 0o711), (world.state, 0o711), (world.state / NAME, 0o666)):
                os.chmod(path, mode)
            asking = ["/usr/bin/env", "python3", "-c", code, str(world.state / NAME)]
            with trio.fail_after(PATIENCE):
                seen = await trio.run_process(asking, user=65534, capture_stdout=True, check=False, cwd="/")

    assert seen.stdout == b"b''\n"


async def test_a_stop_does_not_wait_for_those_who_look(tmp_path: Path) -> None:
    async with (
        shipping(tmp_path, "a") as (world, sidecar),
        watching(world.state, point="inputs.access", seconds=600) as peer,
    ):
        await line(peer)
        await sidecar.stop()


async def test_a_path_that_is_longer_than_an_address_may_be_is_reached(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 30)
    directory.mkdir()
    async with shipping(directory, "a") as (world, _):
        seen = await tapped(world.state)

    assert seen.stdout.split() == [b"inputs.access", b"outputs.main"]


async def test_what_an_event_contains_cannot_control_a_terminal(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _), trio.open_nursery() as nursery:
        ours, theirs = pty.openpty()
        process = await trio.lowlevel.open_process(
            command(world.state, "inputs.access", "--limit", "1"), stdout=theirs, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        with trio.fail_after(PATIENCE):
            await process.stderr.receive_some(1)
            with world.log.open("a") as file:
                file.write(f"{EVENT} 0 \x1b[2J\x9b2J\u202e\n")
            world.lines += 1
            await process.wait()
        os.close(theirs)
        shown = await trio.to_thread.run_sync(os.read, ours, 65536)
        os.close(ours)
        await process.stderr.aclose()
        nursery.cancel_scope.cancel()

    text = shown.decode()
    assert EVENT in text
    assert all(character.isprintable() or character in "\r\n" for character in text)


def test_no_shipper_is_one_line_and_a_socket_of_nobody_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / NAME))
    for state, status in ((tmp_path, 1), (tmp_path / "none", 78)):
        ended = subprocess.run(command(state), capture_output=True, timeout=PATIENCE)

        assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (status, b"", 1)


@pytest.mark.parametrize("value", ["5", "2h", "0s", "x"])
def test_a_time_that_is_none_is_told_in_one_line(tmp_path: Path, value: str) -> None:
    ended = subprocess.run(
        command(tmp_path, "inputs.access", "--for", value), capture_output=True, timeout=PATIENCE, text=True
    )

    assert (ended.returncode, ended.stderr.count("\n")) == (78, 1)
    assert f"--for {value}: " in ended.stderr
