"""What a leader does beside each other, one task an object, and when it may do the next thing for it.

An object that was written less than GAP ago waits for the rest of it. After a failure it waits for a pause that grows:
to a few seconds if the server cannot be reached, to REFUSED_SECONDS if it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import trio

from shipper.apiserver.errors import ApiError, Busy, Conflict, Invalid, NotFound
from shipper.kubernetes.summing.troubles import Troubles
from shipper.kubernetes.summing.writing import NO_RIGHT, OldKind
from shipper.process.environment import Clock
from shipper.sdk.retry import backoff

GAP = 0.25
"""Seconds between two writes of one object."""
REFUSED_SECONDS = 60.0
"""The longest time until what was refused, by a right or by the server's rules, is tried again. The first attempts
follow sooner: a server that starts refuses what it allows a second later."""
FORBIDDEN, REFUSED, UNREACHABLE, OLD = "status_forbidden", "status_refused", "status_unreachable", "crd_outdated"
"""Causes of troubles."""

Key = tuple[str, str]
"""What a task works on: `policy`, `secret`, `member` or `leases`, and a name."""
Act = Callable[[], Awaitable[None]]


class NotLeading(Exception):
    """The Lease may be over, so nothing is written any more."""


@dataclass
class _Pace:
    written: float = -math.inf
    until: float = -math.inf
    """After a failure."""
    pauses: Iterator[float] = field(default_factory=lambda: backoff(0.1, 10.0))
    refusals: Iterator[float] = field(default_factory=lambda: backoff(1.0, REFUSED_SECONDS))


class Tasks:
    """Runs the tasks in a nursery. `now` is a clock; `changed` is called at the end of each task.

    `again` reads an object that is not as it was known; `due` marks one that has to be judged again.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        troubles: Troubles,
        now: Clock,
        *,
        again: Callable[[Key], Awaitable[bool]],
        due: Callable[[Key], None],
        changed: Callable[[], None],
    ) -> None:
        """`again` returns whether it has found a newer state."""
        self._nursery, self._troubles, self._now = nursery, troubles, now
        self._again, self._due, self._changed = again, due, changed
        self._paces: dict[Key, _Pace] = {}
        self._busy: set[Key] = set()

    def free_at(self, key: Key) -> float:
        """Returns when something may be done for an object; infinite while a task works on it."""
        pace = self._pace(key)
        return math.inf if key in self._busy else max(pace.written + GAP, pace.until)

    def start(self, key: Key, act: Act | None) -> None:
        """Begins a task; None: there is nothing to do, so all is as it should be."""
        if act is None:
            self._troubles.over(_words(key))
            return
        self._busy.add(key)
        self._nursery.start_soon(self._do, key, act)

    def wrote(self, key: Key) -> None:
        """Notes that a write of an object begins."""
        self._pace(key).written = self._now()

    def wait(self, key: Key, seconds: float) -> None:
        """Lets nothing be done for an object for some seconds."""
        self._pace(key).until = self._now() + seconds

    def forget(self, kept: Callable[[Key], bool]) -> None:
        """Forgets the objects that are not there any more."""
        for key in [key for key in self._paces if key not in self._busy and not kept(key)]:
            del self._paces[key]
            self._troubles.over(_words(key))

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._paces)

    def _pace(self, key: Key) -> _Pace:
        return self._paces.setdefault(key, _Pace())

    async def _do(self, key: Key, act: Act) -> None:
        """Acts, and sees to what went wrong."""
        pace = self._pace(key)
        try:
            await act()
        except NotLeading:
            pass  # the next leader judges
        except (Conflict, NotFound):
            await self._look(key)
        except OldKind:
            text = f"the CustomResourceDefinition of {_words(key)} drops what is written; apply that of this version"
            self._failed(OLD, key, text, next(pace.refusals))
        except NO_RIGHT as error:
            self._failed(FORBIDDEN, key, str(error), next(pace.refusals))
        except Invalid as error:
            self._failed(REFUSED, key, str(error), next(pace.refusals))
        except ApiError as error:
            self._unreachable(key, error)
        else:
            fresh = _Pace()
            pace.pauses, pace.refusals = fresh.pauses, fresh.refusals
            self._troubles.over(_words(key))
        finally:
            self._busy.discard(key)
            self._changed()

    async def _look(self, key: Key) -> None:
        try:
            found = await self._again(key)
        except ApiError as error:
            self._unreachable(key, error)
            return
        if not found:
            self.wait(key, next(self._pace(key).pauses))
        self._due(key)

    def _unreachable(self, key: Key, error: ApiError) -> None:
        wait = error.retry_after if isinstance(error, Busy) else 0.0
        self._failed(UNREACHABLE, key, str(error), max(wait, next(self._pace(key).pauses)))

    def _failed(self, cause: str, key: Key, text: str, wait: float) -> None:
        self._troubles.failed(cause, _words(key), text)
        self.wait(key, wait)
        self._due(key)


def _words(key: Key) -> str:
    return f"{key[0]} {key[1]}"
