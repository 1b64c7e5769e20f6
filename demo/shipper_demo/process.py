"""A child process that says lines of JSON on standard output.

It runs in a session of its own, so that Ctrl-C reaches the demo alone, which then ends things in their order. Its
standard error goes to a file. Its standard input stays open as long as the demo lives; at its end, the child ends too.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import trio

from shipper.sdk.errors import ShipperError

Said = dict[str, Any]

_END_SECONDS = 25.0
_SHOWN_BYTES = 2000


class Process:
    """A running child; made by `launched`."""

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log
        self._ending = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write one line to its standard input; raises ShipperError if it has ended."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(orjson.dumps(message) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._ended() from None

    async def listen(self, hear: Callable[[Said], None]) -> None:
        """Pass on what it says until it closes its output; raises ShipperError if nobody has asked it to end."""
        await self._read(hear)
        if not self._ending:
            with trio.move_on_after(_END_SECONDS):
                await self._process.wait()
            raise self._ended()

    async def result(self, hear: Callable[[Said], None]) -> int:
        """Pass on what it says until it ends by itself; returns its exit status."""
        await self._read(hear)
        return await self._process.wait()

    async def end(self) -> int:
        """Ask it by SIGTERM to end in order, and wait; returns its exit status. Cancelled, it has to end at once."""
        self._ending = True
        try:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(_END_SECONDS):
                return await self._process.wait()
        finally:
            await self._end_at_once()
        return self._process.returncode or 1

    async def kill(self) -> None:
        """End it as `kill -9` does, and wait."""
        self._ending = True
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def stop(self) -> None:
        """Let it do nothing any more, as SIGSTOP does, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a `stop`."""
        self._signal(signal.SIGCONT)

    async def _read(self, hear: Callable[[Said], None]) -> None:
        assert self._process.stdout is not None
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                hear(orjson.loads(line))

    async def _end_at_once(self) -> None:
        """A second signal, for the agent takes its sidecar with it; then by force."""
        self.go_on()
        with trio.CancelScope(shield=True):
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
                if self._process.returncode is None:
                    self._signal(number)
                    with trio.move_on_after(1.0):
                        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _ended(self) -> ShipperError:
        with self._log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN_BYTES))
            last = " | ".join(file.read().decode(errors="replace").split("\n")).strip(" |")
        status = self._process.returncode
        return ShipperError(f"{self._name} has ended (status {status}); the end of its log: {last or '(nothing)'}")


@asynccontextmanager
async def launched(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> AsyncIterator[Process]:
    """The process as long as the block runs; `name` is for people."""
    pipe = subprocess.PIPE
    with log.open("ab") as stderr:
        process = await trio.lowlevel.open_process(
            list(command), stdin=pipe, stdout=pipe, stderr=stderr, env=dict(env), start_new_session=True, cwd=log.parent
        )
    child = Process(name, process, log)
    try:
        yield child
    finally:
        child._ending = True
        await child._end_at_once()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)
