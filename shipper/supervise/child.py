"""The sidecar as a child process, and its pipes.

It runs in a process group of its own, so that a Ctrl-C at a terminal reaches only the supervisor, which then stops it
in order. If the supervisor dies, the end of its standard input stops it. Its standard error is passed through.
"""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import trio

from shipper.protocol import messages
from shipper.protocol.messages import Ack, Error, Nack, Observed, Ready, Released, Result, Stopped
from shipper.supervise.spare import Forked

Message: TypeAlias = Ready | Ack | Released | Nack | Observed | Result | Error | Stopped

LONGEST_LINE = 2 * messages.MAX_LINE_BYTES
_CHUNK = 65536
_ADDED = ("credentials", "action")
"""Messages that replace no older one; the supervisor limits their number."""
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class Lines:
    """Splits a stream into lines in bounded memory; drops lines that are too long."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Returns the lines that end in this chunk; None for one that was too long."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | None] = []
        for end in ends:
            self._keep(end)
            lines.append(None if self._size > self._longest else b"".join(self._parts))
            self._parts, self._size = [], 0
        self._keep(rest)
        return lines

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._longest:
            self._parts.clear()
        else:
            self._parts.append(part)


def parsed(line: bytes | None) -> Message | None:
    """Returns the message of a line, or None if it is not a message."""
    try:
        return None if line is None else _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Child:
    """One sidecar process."""

    def __init__(self, process: trio.Process | Forked) -> None:
        self._process = process
        self._outbox: deque[Mapping[str, Any]] = deque()
        self._changed = trio.Event()
        self.silent = False
        """Whether it was killed because it sent nothing for too long."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def launch(cls, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Starts a process; raises OSError if there is no such program."""
        process = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), start_new_session=True
        )
        return cls(process)

    def send(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Puts a message into the outbox. A newer policy replaces an older one that is not yet written, and so does a
        newer message of a kind without content. So a sidecar that does not read cannot fill the outbox.

        Returns the replaced messages.
        """
        replaced = [] if message["type"] in _ADDED else [m for m in self._outbox if m["type"] == message["type"]]
        for older in replaced:
            self._outbox.remove(older)
        self._outbox.append(message)
        self._changed.set()
        return replaced

    async def converse(
        self, received: Callable[[Message | None], Awaitable[None]], silence: Callable[[], float]
    ) -> int:
        """Writes the outbox, and passes messages (None for an invalid line) to `received`, until the process ends.

        Returns its exit status. Kills it if it sends nothing for `silence()` seconds, and on cancel.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read(received, silence)
                nursery.cancel_scope.cancel("the sidecar closed its standard output")
            with trio.move_on_after(silence()):
                return await self._process.wait()
        finally:
            await self._reap()
        return self._process.returncode or 0

    def kill(self) -> None:
        """Kills the process; this is safe at any time, since events that the sidecar accepted are durable."""
        self._process.kill()

    async def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        while True:
            while self._outbox:
                line = msgspec.json.encode(self._outbox.popleft()) + b"\n"
                try:
                    await stdin.send_all(line)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            self._changed = trio.Event()
            await self._changed.wait()

    async def _read(self, received: Callable[[Message | None], Awaitable[None]], silence: Callable[[], float]) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        lines = Lines()
        while True:
            with trio.move_on_after(silence()) as scope:
                chunk = await stdout.receive_some(_CHUNK)
            if scope.cancelled_caught:
                self.silent = True
                self.kill()
                return
            if not chunk:
                return
            for line in lines.feed(bytes(chunk)):
                await received(parsed(line))

    async def _reap(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)


def exit_in_words(status: int) -> str:
    """Returns an exit status in words."""
    if status < 0:
        return f"killed by signal {-status}"
    meanings = {
        0: "stopped",
        2: "a wrong command line",
        75: "another process owns its state directory",
        78: "a wrong option or configuration",
    }
    return f"exit status {status}" + (f" ({meanings[status]})" if status in meanings else "")


def environment_of_child(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the supervisor's environment without systemd's variables for the supervisor alone."""
    own = {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "LISTEN_PID", "LISTEN_FDS"}
    return {name: value for name, value in environment.items() if name not in own}
