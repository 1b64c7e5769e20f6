"""Decides whether the watchdog of the service manager is fed: whether what a restart can mend still works.

| checked | how | what else would find it |
|---|---|---|
| the loop of the supervisor | it is what checks | nothing |
| the disk under its state | each check makes a change durable, in a thread | `save_failed`, but only if a save ends |
| the writer of each sidecar | the code `disk_silent` in what it observed, for too long | nothing: it waits |
| the loop of each sidecar | not here: the supervisor kills a silent one itself (`Child`) | |

A disk that is slower than a check has answered once the change of an earlier check is durable: a restart would only add
to its load. One that answers with an error is no reason: it is reported, and a restart would not mend it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from shipper.protocol.messages import Observed
from shipper.sdk.codes import Code

STALLED_SECONDS = 60.0
"""For how long a writer may not answer; a disk that is only slow answers sooner."""


class Living(Protocol):
    """A member, as far as it is checked."""

    @property
    def name(self) -> str: ...

    @property
    def observed(self) -> Observed | None: ...

    def touch(self) -> None:
        """Makes a change in its state directory durable; called in a thread. Raises OSError."""


class Alive:
    """Checks the members. Calls `hung` with what does not answer, once until everything answers again."""

    def __init__(self, members: Sequence[Living], hung: Callable[[str | None], None]) -> None:
        self._members, self._hung = members, hung
        self._one = trio.CapacityLimiter(1)
        """A thread that a disk holds up is not followed by others."""
        self._answered: set[str] = set()
        """The members whose disk has answered since it was asked for; a slow one answers between two checks."""
        self._stalled: dict[str, float] = {}
        """By member, since when its writer has not answered."""
        self._told: str | None = None

    async def check(self, seconds: float) -> bool:
        """Returns whether all is well; takes about so many seconds at most."""
        what = self._writers() or await self._disk(seconds)
        if what != self._told:
            self._told = what
            self._hung(what)
        return what is None

    def _writers(self) -> str | None:
        now = trio.current_time()
        silent = {one.name for one in self._members if _is_silent(one.observed)}
        self._stalled = {name: self._stalled.get(name, now) for name in silent}
        late = [name for name, since in self._stalled.items() if now - since > STALLED_SECONDS]
        return f"the writer of the sidecar of {late[0]} does not answer" if late else None

    async def _disk(self, seconds: float) -> str | None:
        for member in self._members:
            with trio.move_on_after(seconds):
                await trio.to_thread.run_sync(self._touch, member, abandon_on_cancel=True, limiter=self._one)
            if member.name not in self._answered:
                return f"the disk under {member.name} does not answer"
            self._answered.discard(member.name)
        return None

    def _touch(self, member: Living) -> None:
        with suppress(OSError):
            member.touch()
        self._answered.add(member.name)


def _is_silent(observed: Observed | None) -> bool:
    """Whether the writer of a sidecar waits for its disk, as the whole or as one of its inputs says."""
    return observed is not None and Code.DISK_SILENT in (observed.code, *(unit.code for unit in observed.units))
