"""The policy files as a source: reads them, waits for changes, and keeps their present problems.

Another source reads the secrets and certificates of this host in the same way: it replaces `desired` by that of its
next policy.

While there are problems, it reads again from time to time: no change of a file shows that descriptors are free again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from shipper.protocol.messages import Result
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem
from shipper.supervise.answers import Answer
from shipper.supervise.desired import Desired
from shipper.supervise.ledger import Kept, Wanted
from shipper.supervise.order_results import refused
from shipper.supervise.policy_source import Known
from shipper.supervise.watch import Watch

AGAIN_SECONDS = 10.0


class Files:
    """A source of policies; `problems` are those of the last reading.

    A cancelled reading, perhaps of a file system that does not answer, is abandoned: nothing is read again.
    """

    name = "the files"
    is_shared = delays = False

    def __init__(self, desired: Desired, watch: Watch, paths: Sequence[Path] = ()) -> None:
        """`paths` are the files as people wrote them."""
        self.problems: Sequence[Problem] = ()
        self.desired = desired
        self._paths, self._watch = paths, watch
        self._asked = trio.Event()

    @property
    def watched(self) -> Sequence[str]:
        return [str(path) for path in self._paths]

    @property
    def method(self) -> str:
        return self._watch.method

    @property
    def secret_variables(self) -> Collection[str]:
        return self.desired.secret_variables

    async def read(self, known: Known) -> Wanted:
        """Returns the wanted policy; reads until every path that it depends on is watched. Raises PolicyError."""
        try:
            wanted = await self._read(known)
        except PolicyError as error:
            self.problems = error.problems
            raise
        self.problems = ()
        return wanted

    async def _read(self, known: Known) -> Wanted:
        self._watch.follow(self.desired.watched)
        while True:
            try:
                wanted = await trio.to_thread.run_sync(self.desired.read, known(), abandon_on_cancel=True)
            except PolicyError:
                if not self._watch.follow(self.desired.watched):
                    raise
            else:
                if not self._watch.follow(self.desired.watched):
                    return wanted

    def ask(self) -> None:
        """Requests another reading, for a person."""
        self._asked.set()

    async def may_run(self) -> None:
        """Returns at once: the last policy may always run."""

    def answered(self, member: str, answer: Answer) -> None:
        """Does nothing: files have no versions."""

    def released(self, kept: Kept) -> None:
        """Does nothing: files share no credentials with other hosts."""

    def status(self) -> Mapping[str, Any]:
        return {}

    async def leave(self) -> Result:
        """Returns a refusal."""
        return refused("this host shares its policy with no other: there is nothing to leave", Code.NOTHING_TO_ORDER)

    async def changed(self) -> bool:
        """Waits until something may have changed, or a person asks for a reading; returns True if a person asked.

        Waits at most `AGAIN_SECONDS` while there are problems, and at most the interval of polled sources.
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
        return min(self.desired.poll_seconds, AGAIN_SECONDS if self.problems else math.inf)
