"""Standard output: nobody waits for a supervisor that does not read, and nothing but `observed` is left out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from shipper.control.outbox import FULL, Outbox
from shipper.control.pipes import Stdout
from shipper.protocol.messages import MAX_LINE_BYTES, Error, Observed, QueueFigures, Result
from shipper.values import DeadLetterFigures, Revisions

PATIENCE = 60.0


@contextlib.contextmanager
def closed(*pipes: tuple[int, int]) -> Iterator[None]:
    """Closes the ends that are still open: the number of one that the test has closed may be another's by then."""
    inodes = {descriptor: os.fstat(descriptor).st_ino for ends in pipes for descriptor in ends}
    yield
    for descriptor, inode in inodes.items():
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    made = os.pipe()
    with closed(made):
        yield made


def result(number: int, size: int = 0) -> Result:
    return Result(id=str(number), status="SUCCESS", message="x" * size)


def observed(message: str) -> Observed:
    return Observed(
        state="HEALTHY",
        message=message,
        revisions=Revisions(),
        draining=(),
        units=(),
        queue=QueueFigures(events=0, bytes=0, limit_bytes=0, oldest_seconds=0, disk_bytes=0),
        dead_letters=DeadLetterFigures(),
        credentials_in_use=(),
        credentials_wanted=(),
    )


class Reader:
    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.rest = descriptor, b""
        self.lines: list[dict[str, Any]] = []

    async def read(self, count: int) -> list[dict[str, Any]]:
        """Wait until this many lines came; one task may ask at a time."""
        with trio.fail_after(PATIENCE):
            while len(self.lines) < count:
                await trio.lowlevel.wait_readable(self.descriptor)
                *lines, self.rest = (self.rest + os.read(self.descriptor, 1 << 16)).split(b"\n")
                self.lines += map(json.loads, lines)
        return self.lines


async def test_a_message_that_is_too_long_for_a_line_is_left_out_and_said_to_be(
    pipe: tuple[int, int], nursery: trio.Nursery
) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    outbox.say(result(0, size=MAX_LINE_BYTES))
    outbox.say(result(1))
    error, other = await Reader(pipe[0]).read(2)

    assert (error["type"], other["id"]) == ("error", "1")
    assert f"a message (result) has {len(result(0, size=MAX_LINE_BYTES).line())} bytes" in error["message"]


async def test_messages_go_out_in_their_order(pipe: tuple[int, int], nursery: trio.Nursery) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    for number in range(300):  # fewer bytes than a pipe holds
        outbox.say(result(number))
    with trio.fail_after(PATIENCE):
        await outbox.flushed()
    lines = os.read(pipe[0], 1 << 16).splitlines()

    assert [json.loads(line)["id"] for line in lines] == [str(n) for n in range(300)]


async def test_of_observed_only_the_newest_waits_and_nothing_else_is_left_out(
    pipe: tuple[int, int], nursery: trio.Nursery
) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    outbox.say(result(0, size=1 << 20))  # more than a pipe holds
    await trio.testing.wait_all_tasks_blocked(0.05)
    for number in range(1, 50):
        outbox.say(observed(f"{number}"))
        outbox.say(result(number))
    lines = await Reader(pipe[0]).read(51)

    assert [line["id"] for line in lines if line["type"] == "result"] == [str(n) for n in range(50)]
    assert [line["message"] for line in lines if line["type"] == "observed"] == ["49"]


async def test_a_message_is_written_when_the_pipe_has_taken_all_of_it(
    pipe: tuple[int, int], nursery: trio.Nursery
) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    written: list[str] = []
    outbox.say(result(0, size=1 << 20), lambda: written.append("under way"))
    await trio.testing.wait_all_tasks_blocked(0.05)
    outbox.say(result(1), lambda: written.append("waiting"))
    assert written == []

    async with trio.open_nursery() as reading:
        reading.start_soon(Reader(pipe[0]).read, 2)
        await outbox.flushed()
    assert written == ["under way", "waiting"]


async def test_nothing_counts_as_written_once_the_pipe_is_closed(pipe: tuple[int, int], nursery: trio.Nursery) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    os.close(pipe[0])
    written: list[str] = []
    outbox.say(result(0), lambda: written.append("to nobody"))
    await outbox.flushed()
    outbox.say(result(1), lambda: written.append("after the end"))
    await outbox.flushed()

    assert written == []


async def test_saying_never_waits_for_a_reader_and_there_is_a_bound_to_ask_for(
    pipe: tuple[int, int], nursery: trio.Nursery
) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    outbox.say(result(0, size=1 << 20))
    await trio.testing.wait_all_tasks_blocked(0.05)
    for number in range(FULL):
        await outbox.has_room()
        outbox.say(result(number + 1))

    with trio.move_on_after(0.05) as timeout:
        await outbox.has_room()
    assert timeout.cancelled_caught
    reader = Reader(pipe[0])
    async with trio.open_nursery() as reading:
        reading.start_soon(reader.read, FULL + 1)
        with trio.fail_after(PATIENCE):
            await outbox.has_room()
            await outbox.flushed()
    assert len(reader.lines) == FULL + 1


async def test_a_closed_pipe_is_forgotten_and_nobody_waits_for_it(pipe: tuple[int, int], nursery: trio.Nursery) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    os.close(pipe[0])
    for number in range(FULL + 10):
        outbox.say(result(number))

    with trio.fail_after(PATIENCE):
        await outbox.flushed()
        await outbox.has_room()
        outbox.say(observed("still here"))
        await outbox.flushed()


async def test_a_pipe_that_is_not_blocking_is_written_to_its_end(pipe: tuple[int, int], nursery: trio.Nursery) -> None:
    """Whoever shares the other end's description may have made it so."""
    flags = fcntl.fcntl(pipe[1], fcntl.F_GETFL)
    fcntl.fcntl(pipe[1], fcntl.F_SETFL, flags | os.O_NONBLOCK)
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    outbox.say(result(1, size=1 << 20))
    await trio.testing.wait_all_tasks_blocked(0.05)

    assert len((await Reader(pipe[0]).read(1))[0]["message"]) == 1 << 20


async def test_flushed_means_written(pipe: tuple[int, int], nursery: trio.Nursery) -> None:
    outbox = Outbox(Stdout(pipe[1]))
    nursery.start_soon(outbox.run)
    outbox.say(Error(line_number=3, message="no", code="malformed"))
    await outbox.flushed()

    assert json.loads(os.read(pipe[0], 1000)) == {"type": "error", "line": 3, "message": "no", "code": "malformed"}
