"""Runs `on_release` for a released credential, until it succeeds.

The command gets no secret, only names:

    SHIPPER_CREDENTIAL_NAME     VuaCfGcBCdbkQm-e5aOx      (the id of an API key, the name of a user; empty for others)
    SHIPPER_CREDENTIAL_ID       es-3f9c0a7be2d1           (by which this supervisor calls it)
    SHIPPER_CREDENTIAL_SOURCE   file:/run/keys/es         (one a line, if several files held the same key)
    SHIPPER_OUTPUTS             main,archive              SHIPPER_INPUTS likewise

It runs at least once: after a crash it may run again for the same id, so it should not mind a key that is gone already.

What it writes is read and forgotten, so that it never stands within a line of ours, but for the last line of its
standard error: that belongs to the reason when it fails.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping

import trio

from shipper.process import log
from shipper.sdk import descriptors
from shipper.sdk.descriptors import in_words
from shipper.sdk.retry import backoff
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept

_RETRY_SECONDS = (1.0, 300.0)
_AT_ONCE = 4
_REST_SECONDS = 1.0
_LONGEST_LINE = 4096
_SHOWN_CHARACTERS = 300


class Revoker:
    """Runs the command for several credentials at a time, but not for all at once."""

    def __init__(
        self, config: OnRelease, environment: Callable[[], Mapping[str, str]], failed: Callable[[str, str, float], None]
    ) -> None:
        """`failed(id, reason, seconds)` is told of each attempt in vain and of the wait before the next."""
        self._config = config
        self._environment = environment
        self._failed = failed
        self._limit = trio.CapacityLimiter(_AT_ONCE)

    async def revoke(self, kept: Kept) -> None:
        """Return when the command has succeeded for this credential; cancelled, a running command is killed."""
        for seconds in backoff(*_RETRY_SECONDS):
            async with self._limit:
                reason = await self._attempt(kept)
            if reason is None:
                return
            self._failed(kept.id, reason, seconds)
            await trio.sleep(seconds)

    async def _attempt(self, kept: Kept) -> str | None:
        """Why it failed, or None."""
        try:
            process = await trio.lowlevel.open_process(
                self._config.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**self._environment(), **variables(kept)},
                start_new_session=True,
            )
        except OSError as error:
            return f"{self._config.command[0]}: {in_words(error)}"
        descriptors.give_back(process.pid)
        assert process.stderr is not None
        said = LastLine()
        try:
            status = await self._status(process, process.stderr, said)
        finally:
            await _end(process)
            await trio.aclose_forcefully(process.stderr)
        if status == 0:
            return None
        reason = f"it took longer than {self._config.timeout}" if status is None else f"exit status {status}"
        return f"{reason}: {said}" if str(said) else reason

    async def _status(self, process: trio.Process, stderr: trio.abc.ReceiveStream, said: LastLine) -> int | None:
        """How the command ended, or None if its time is over; what it leaves running may hold its standard error."""
        status = None
        async with trio.open_nursery() as nursery:
            heard = await nursery.start(said.follow, stderr)
            with trio.move_on_after(float(self._config.timeout)):
                status = await process.wait()
            with trio.move_on_after(_REST_SECONDS if status is not None else 0):
                await heard.wait()
            nursery.cancel_scope.cancel("the command has ended")
        return status


class LastLine:
    """The last line of a stream that is not blank, in bounded memory; as a text it is cut, printable and no secret."""

    def __init__(self) -> None:
        self._last, self._begun = b"", b""

    def __str__(self) -> str:
        line = self._begun if self._begun.strip() else self._last
        hide = log.redacted if len(line) < _LONGEST_LINE else log.redacted_beginning
        text = log.printable(hide(line.decode(errors="replace")).strip())
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

    async def follow(
        self, stream: trio.abc.ReceiveStream, task_status: trio.TaskStatus[trio.Event] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read to the end; the event that it starts with is set then."""
        end = trio.Event()
        task_status.started(end)
        async for chunk in stream:
            self.feed(bytes(chunk))
        end.set()

    def feed(self, chunk: bytes) -> None:
        """The next bytes; a bare carriage return ends a line, too, as where a program draws its progress."""
        *ends, rest = re.split(rb"[\r\n]", chunk)
        for end in ends:
            line = self._kept(end)
            self._last = line if line.strip() else self._last
            self._begun = b""
        self._begun = self._kept(rest)

    def _kept(self, more: bytes) -> bytes:
        return (self._begun + more)[:_LONGEST_LINE]


def variables(kept: Kept) -> dict[str, str]:
    """What the command learns of a credential."""
    units = [unit.split(".", 1) for unit in kept.units]
    return {
        "SHIPPER_CREDENTIAL_NAME": kept.name,
        "SHIPPER_CREDENTIAL_ID": kept.id,
        "SHIPPER_CREDENTIAL_SOURCE": "\n".join(kept.sources),
        "SHIPPER_OUTPUTS": ",".join(name for kind, name in units if kind == "outputs"),
        "SHIPPER_INPUTS": ",".join(name for kind, name in units if kind == "inputs"),
    }


async def _end(process: trio.Process) -> None:
    """The command and what it started are gone afterwards, if it has not ended by itself."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
