"""Runs `on_release` for a released credential, until it succeeds.

The command gets no secret, only names:

    SHIPPER_CREDENTIAL_NAME     VuaCfGcBCdbkQm-e5aOx      (what is public in its shape; empty if nothing is)
    SHIPPER_CREDENTIAL_ID       es-3f9c0a7be2d1           (its id at this supervisor)
    SHIPPER_CREDENTIAL_SOURCE   file:/run/keys/es         (one a line, if several files held the same key)
    SHIPPER_OUTPUTS             main,archive              SHIPPER_INPUTS likewise

It runs at least once: after a crash it may run again for the same id, so it should succeed for a key that is revoked
already.

Its output is read and discarded, so that it never mixes with ours, except the last line of its standard error, which is
reported with a failure.
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
    """Runs the command for a limited number of credentials at a time."""

    def __init__(
        self,
        config: OnRelease,
        environment: Callable[[], Mapping[str, str]],
        failed: Callable[[str, str, float], None],
        may: Callable[[Kept], bool] = lambda kept: True,
        *,
        at_once: int = _AT_ONCE,
    ) -> None:
        """`failed(id, reason, seconds)` is called for each failed attempt, with the wait before the next; `may(kept)`
        before each attempt: a credential for which it is false is given up."""
        self._config = config
        self._environment = environment
        self._failed, self._may = failed, may
        self._limit = trio.CapacityLimiter(at_once)

    async def revoke(self, kept: Kept) -> bool:
        """Returns when the command has succeeded for this credential, or with False when it may not run any more; a
        cancel kills a running command."""
        for seconds in backoff(*_RETRY_SECONDS):
            async with self._limit:
                if not self._may(kept):
                    return False
                reason = await self._attempt(kept)
            if reason is None:
                return True
            self._failed(kept.id, reason, seconds)
            await trio.sleep(seconds)
        raise AssertionError("a backoff does not end")

    async def _attempt(self, kept: Kept) -> str | None:
        """Runs the command once; returns why it failed, or None."""
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
        """Returns the exit status, or None after the timeout; a process that it leaves may keep its standard error
        open."""
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
    """The last non-blank line of a stream, in bounded memory; its text is truncated, printable, and without secrets."""

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
        """Reads to the end, and then sets the event that `started` returned."""
        end = trio.Event()
        task_status.started(end)
        async for chunk in stream:
            self.feed(bytes(chunk))
        end.set()

    def feed(self, chunk: bytes) -> None:
        """Adds the next bytes; a bare carriage return ends a line too, as in a program's progress bar."""
        *ends, rest = re.split(rb"[\r\n]", chunk)
        for end in ends:
            line = self._kept(end)
            self._last = line if line.strip() else self._last
            self._begun = b""
        self._begun = self._kept(rest)

    def _kept(self, more: bytes) -> bytes:
        return (self._begun + more)[:_LONGEST_LINE]


def variables(kept: Kept) -> dict[str, str]:
    """Returns the variables that describe a credential to the command."""
    units = [unit.split(".", 1) for unit in kept.units]
    return {
        "SHIPPER_CREDENTIAL_NAME": kept.name,
        "SHIPPER_CREDENTIAL_ID": kept.id,
        "SHIPPER_CREDENTIAL_SOURCE": "\n".join(kept.sources),
        "SHIPPER_OUTPUTS": ",".join(name for kind, name in units if kind == "outputs"),
        "SHIPPER_INPUTS": ",".join(name for kind, name in units if kind == "inputs"),
    }


async def _end(process: trio.Process) -> None:
    """Kills the command and its children, unless it has ended by itself."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
