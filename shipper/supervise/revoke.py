"""Runs `on_release` for a released credential, until it succeeds.

The command gets no secret, only names:

    SHIPPER_CREDENTIAL_NAME     VuaCfGcBCdbkQm-e5aOx      (the id of an API key, the name of a user; empty for others)
    SHIPPER_CREDENTIAL_ID       es-3f9c0a7be2d1           (by which this supervisor calls it)
    SHIPPER_CREDENTIAL_SOURCE   file:/run/keys/es         (one a line, if several files held the same key)
    SHIPPER_OUTPUTS             main,archive              SHIPPER_INPUTS likewise

It runs at least once: after a crash it may run again for the same id, so it should not mind a key that is gone already.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping

import trio

from shipper import descriptors
from shipper.descriptors import in_words
from shipper.retry import backoff
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept

_RETRY_SECONDS = (1.0, 300.0)
_AT_ONCE = 4


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
                stdout=2,
                env={**self._environment(), **variables(kept)},
                start_new_session=True,
            )
        except OSError as error:
            return f"{self._config.command[0]}: {in_words(error)}"
        descriptors.give_back(process.pid)
        try:
            with trio.fail_after(float(self._config.timeout)):
                status = await process.wait()
        except trio.TooSlowError:
            return f"it took longer than {self._config.timeout}"
        finally:
            await _end(process)
        return f"exit status {status}" if status else None


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
