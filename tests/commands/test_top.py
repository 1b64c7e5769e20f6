"""`shipper top` on a terminal, beside the real program."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
import pytest
import trio

from tests.canary import EVENT
from tests.story.driver import launched
from tests.story.world import open_world, shipping
from tests.supervise.driver import Site

PATIENCE = 60.0


def command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "shipper", "top", "--state", str(state), *arguments]


class Terminal:
    """What a person sees, and the keys that they press."""

    def __init__(self, process: trio.Process, ours: int, columns: int, rows: int) -> None:
        self.process, self._ours = process, ours
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.move_on_after(PATIENCE) as patience:
            while not condition():
                try:
                    self.feed(os.read(self._ours, 65536))
                except BlockingIOError:
                    await trio.sleep(0.02)
        assert not patience.cancelled_caught, self.lines

    def feed(self, raw: bytes) -> None:
        self.raw += raw
        self._stream.feed(raw)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        _resize(self._ours, columns, rows)

    async def ended(self) -> int:
        with trio.fail_after(PATIENCE):
            status = await self.process.wait()
        while True:
            try:
                self.feed(os.read(self._ours, 65536))
            except OSError:  # read to its end
                return status


def _resize(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@asynccontextmanager
async def watched(state: Path, columns: int = 80, rows: int = 24, *options: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    _resize(ours, columns, rows)
    os.set_blocking(ours, False)
    before = termios.tcgetattr(theirs)
    process = await trio.lowlevel.open_process(
        command(state, "--every", "0.2", *options),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},  # as a shell exports them
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    try:
        yield Terminal(process, ours, columns, rows)
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.poll() is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        os.close(theirs)
        os.close(ours)


async def test_it_draws_what_the_shipper_does_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _), watched(world.state) as terminal:
        await terminal.until(lambda: terminal.shows("access file"))
        world.write(1234)
        await world.delivered(PATIENCE)
        footer = "↑↓ scroll, q ends"
        await terminal.until(
            lambda: terminal.shows("1,234") and terminal.shows("● drained") and terminal.lines[-1] == footer
        )
        shown = terminal.lines
        terminal.press(b"q")
        status = await terminal.ended()

    assert status == 0
    assert shown[0] == "shipper HEALTHY"
    assert shown[-1] == footer
    assert EVENT.encode() not in terminal.raw
    assert terminal.raw.endswith(b"\x1b[?25h\x1b[?1049l")


async def test_keys_scroll_and_a_smaller_terminal_is_filled_anew(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _), watched(world.state) as terminal:
        await terminal.until(lambda: terminal.shows("q ends"))
        terminal.resize(60, 6)
        await terminal.until(lambda: terminal.lines[-1].startswith("lines 1–5 of "))
        assert terminal.lines[0] == "shipper HEALTHY"
        terminal.press(b"j")
        await terminal.until(lambda: terminal.lines[-1].startswith("lines 2–6 of "))
        terminal.press(b"\x1b[6~")
        await terminal.until(lambda: terminal.lines[-1].startswith("lines 7–11 of "))
        terminal.press(b"jj\x1b[A\x1b[Hx")
        await terminal.until(lambda: terminal.lines[0] == "shipper HEALTHY")
        terminal.press(b"\x03")
        status = await terminal.ended()

    assert status == 0
    assert terminal.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def _is_stopped(pid: int) -> bool:
    """Whether the process has stopped; a SIGCONT before that would be lost."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_program_that_is_stopped_gives_the_terminal_back_meanwhile(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        await sidecar.hello()
        async with watched(world.state) as terminal:
            await terminal.until(lambda: terminal.shows("q ends"))
            terminal.process.send_signal(signal.SIGTSTP)
            given_back = b"\x1b[?25h\x1b[?1049l"
            await terminal.until(lambda: terminal.raw.endswith(given_back) and _is_stopped(terminal.process.pid))
            before = len(terminal.raw)
            terminal.process.send_signal(signal.SIGCONT)
            await terminal.until(lambda: b"q ends" in terminal.raw[before:])
            terminal.press(b"q")
            await terminal.ended()


async def test_of_a_supervisor_it_shows_what_both_say_and_why_none_answers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with site.supervisor() as process:
        await site.until("unit", state="HEALTHY")
        async with watched(site.state, 120, 40) as terminal:
            await terminal.until(lambda: terminal.shows("supervisor  version"))
            assert terminal.lines[0].startswith("shipper HEALTHY")
            os.kill(process.pid, signal.SIGSTOP)
            await terminal.until(lambda: terminal.shows("no answer for") or terminal.shows("does not answer"))
            os.kill(process.pid, signal.SIGCONT)
            await terminal.until(lambda: terminal.lines[0].startswith("shipper HEALTHY"))
            process.send_signal(signal.SIGTERM)
            await site.ended(process)
            await terminal.until(lambda: "not running" in terminal.lines[0])
            terminal.process.send_signal(signal.SIGTERM)
            status = await terminal.ended()

    assert status == 128 + signal.SIGTERM


async def test_without_a_terminal_it_draws_once(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, _):
        with trio.fail_after(PATIENCE):
            seen = await trio.run_process(command(world.state), capture_stdout=True, capture_stderr=True, check=False)

    assert (seen.returncode, seen.stderr) == (0, b"")
    assert seen.stdout.startswith(b"shipper HEALTHY\n\nqueue")
    assert b"\x1b" not in seen.stdout


@pytest.mark.parametrize("how", ["absent", "empty", "file"])
def test_what_is_no_state_directory_is_told_in_one_line(tmp_path: Path, how: str) -> None:
    place = tmp_path / "place"
    if how == "file":
        place.touch()
    elif how == "empty":
        place.mkdir()
    ended = subprocess.run(command(place), capture_output=True, timeout=PATIENCE)

    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (78, b"", 1)
