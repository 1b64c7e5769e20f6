"""A demo as a user starts it, and what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shipper_demo.access_log import AccessLog

PATIENCE = 60.0
COMMAND = [sys.executable, "-m", "shipper", "demo", "--rate", "2000"]


@asynccontextmanager
async def demo(tmp_path: Path, *arguments: str, command: Sequence[str] = COMMAND) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                await stream.aclose()


async def rest(process: trio.Process, already: str = "", *, seconds: float = PATIENCE) -> str:
    """All that it still prints, and it has ended."""
    assert process.stdout is not None
    text = already.encode()
    with trio.fail_after(seconds):
        async for chunk in process.stdout:
            text += bytes(chunk)
        assert process.stderr is not None
        async for chunk in process.stderr:  # what it says if it fails
            text += bytes(chunk)
        await process.wait()
    return text.decode()


async def printed(process: trio.Process, pattern: str) -> str:
    """What it has printed as soon as that matches."""
    assert process.stdout is not None
    text = b""
    with trio.fail_after(PATIENCE):
        while not re.search(pattern, text.decode(errors="ignore")):
            chunk = await process.stdout.receive_some(65536)
            text += bytes(chunk)
            assert chunk, await rest(process, text.decode())
    return text.decode()


def figure(text: str, name: str) -> int:
    found = re.search(rf"^  {name} +([\d,]+)", text, re.MULTILINE)
    assert found, text
    return int(found[1].replace(",", ""))


def processes_of(directory: Path) -> list[str]:
    """The command lines of running processes that name this directory, or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(directory) in line or str(directory) in os.readlink(process / "cwd"):
                found.append(line)
        except OSError:
            continue
    return found


def columns(text: str, name: str) -> list[int]:
    found = re.search(rf"^  {name} +(.+)$", text, re.MULTILINE)
    assert found, text
    return [int(value.replace(",", "")) for value in found[1].split()]


def lines(tmp_path: Path, count: int) -> list[str]:
    with AccessLog(tmp_path / "access.log") as log:
        log.write(count // 2)
        log.write(count - count // 2)
    return (tmp_path / "access.log").read_text().splitlines()
