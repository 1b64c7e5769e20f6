"""The policy files over time: reads them, waits until one of them changed, and knows what is wrong with them now.

What is wrong is looked at again from time to time: no change tells that a file that could not be opened, for want of a
descriptor, can be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import trio

from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise.answers import Answer
from shipper.supervise.desired import Desired
from shipper.supervise.ledger import Wanted
from shipper.supervise.policy_source import Known
from shipper.supervise.watch import Watch

AGAIN_SECONDS = 10.0


class Files:
    """What the files want; `problems` are those of the last reading.

    A reading that is cancelled, perhaps since its file system does not answer, is left behind: nothing is read again.
    """

    name = "the files"

    def __init__(self, desired: Desired, watch: Watch) -> None:
        self.problems: Sequence[Problem] = ()
        self._desired, self._watch = desired, watch
        self._asked = trio.Event()

    @property
    def watched(self) -> Sequence[str]:
        return [str(path) for path in self._desired.paths]

    @property
    def method(self) -> str:
        return self._watch.method

    @property
    def secret_variables(self) -> Collection[str]:
        return self._desired.secret_variables

    async def read(self, known: Known) -> Wanted:
        """What the files want, read until no path is unwatched that mattered; raises PolicyError."""
        try:
            wanted = await self._read(known)
        except PolicyError as error:
            self.problems = error.problems
            raise
        self.problems = ()
        return wanted

    async def _read(self, known: Known) -> Wanted:
        self._watch.follow(self._desired.watched)
        while True:
            try:
                wanted = await trio.to_thread.run_sync(self._desired.read, known(), abandon_on_cancel=True)
            except PolicyError:
                if not self._watch.follow(self._desired.watched):
                    raise
            else:
                if not self._watch.follow(self._desired.watched):
                    return wanted

    def ask(self) -> None:
        """A person wants them to be read again."""
        self._asked.set()

    def answered(self, member: str, answer: Answer) -> None:
        """Files have no versions, and nobody who waits for answers."""

    async def changed(self) -> bool:
        """Wait until something may have changed, or until somebody asked: then the answer is True.

        Where something is wrong, it waits for `AGAIN_SECONDS` at most, and for what is polled no longer than that asks.
        """
        async with trio.open_nursery() as nursery:

            async def asked() -> None:
                await self._asked.wait()
                nursery.cancel_scope.cancel("asked for")

            nursery.start_soon(asked)
            with trio.move_on_after(self._seconds):
                await self._watch.changed()
            nursery.cancel_scope.cancel("a file changed")
        if self._asked.is_set():
            self._asked = trio.Event()
            return True
        return False

    @property
    def _seconds(self) -> float:
        return min(self._desired.poll_seconds, AGAIN_SECONDS if self.problems else math.inf)
