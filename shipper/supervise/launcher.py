"""Launches sidecar processes, one after the other.

If the very first cannot be launched, the command is wrong, and a person must correct it. A later launch may fail for a
moment, while the program is replaced or the system has no room for a process, and is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from shipper.sdk.descriptors import in_words, is_short
from shipper.sdk.errors import OptionError
from shipper.sdk.retry import backoff
from shipper.supervise.child import Child, environment_of_child
from shipper.supervise.spare import Spare

RETRY_SECONDS = (0.1, 10.0)


class Launcher:
    """`launches` is the number of processes so far; `launching` is whether one is being started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        stopping: trio.Event,
        failed: Callable[[str, float], None],
        spare: Spare | None = None,
    ) -> None:
        """`failed(reason, seconds)` is called for each failed attempt, with the wait before the next. `spare` becomes
        the first process, if it can."""
        self.launches, self.launching = 0, False
        self._command, self._environment = command, environment
        self._stopping, self._failed, self._spare = stopping, failed, spare

    async def launch(self) -> Child | None:
        """Returns a new process, with retries until `stopping`; raises OptionError if the first cannot be launched."""
        waits = backoff(*RETRY_SECONDS)
        while not self._stopping.is_set():
            try:
                child = await self._attempt()
            except OSError as error:
                reason = f"{self._command[0]}: {in_words(error)}"
                if not self.launches and not is_short(error):
                    raise OptionError(f"the sidecar cannot be started: {reason}") from None
                await self._wait(reason, next(waits))
            else:
                self.launches += 1
                return child
        return None

    async def _attempt(self) -> Child:
        environment = environment_of_child(self._environment())
        if self._spare is not None and (forked := self._spare.become(self._command, environment)):
            return Child(forked)
        self.launching = True
        try:
            return await Child.launch(self._command, environment)
        finally:
            self.launching = False

    async def _wait(self, reason: str, seconds: float) -> None:
        self._failed(reason, seconds)
        with trio.move_on_after(seconds):
            await self._stopping.wait()
