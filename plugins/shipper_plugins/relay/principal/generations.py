"""Sessions of one edge: which instance of it is served, and which session of a link is the newest. No I/O.

A session has a generation: the instance of the receiver and a counter, which no two sessions of its edges share. Every
request has it, and the newest one of a link is stored with what it has taken. So a request that was delayed on its way
stores nothing, confirms nothing, and reveals nothing of the session after it.

An instance is one process of the sender. While one is served, another one under the same name is refused: they would
take each other's answers. An instance makes room when it has no connection and was not heard for `GONE_SECONDS`, or
when it was not heard at all for `SILENT_SECONDS`, as after a power cut. Times are seconds of a clock that only goes
forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from shipper_plugins.relay.frames import Generation

GONE_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 60.0


class Cloned(Exception):
    """Another instance is served under this name, for at least `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__("another live instance has the name of this edge")
        self.seconds = seconds


class Stale(Exception):
    """The session of the request has ended."""


class Sessions:
    """The sessions of one edge, at the receiver's `instance`, which takes their `numbers` for all its edges."""

    def __init__(self, instance: str, numbers: Iterator[int] | None = None) -> None:
        self._instance = instance
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._served: str | None = None
        self._heard = 0.0
        self._newest: dict[int, Generation] = {}
        self._low: dict[int, int] = {}

    @property
    def heard(self) -> float | None:
        """When it was last heard; None if never."""
        return None if self._served is None else self._heard

    def is_live(self, now: float, *, is_connected: bool) -> bool:
        """Whether an instance is served, and keeps its place now; `is_connected`: whether it has a connection."""
        return self._left(now, is_connected=is_connected) > 0

    def begin(self, instance: str, link: int, now: float, *, is_connected: bool) -> Generation:
        """Begins a new session of a link; every older one of it has ended.

        `is_connected`: whether the served instance has a connection. Raises Cloned.
        """
        if instance != self._served:
            left = self._left(now, is_connected=is_connected)
            if left > 0:
                raise Cloned(left)
            self._served = instance
            self._newest.clear()
            self._low.clear()
        self._heard = now
        self._low[link] = 0
        newest = self._newest[link] = Generation(self._instance, next(self._numbers))
        return newest

    def hear(self, link: int, generation: Generation, now: float) -> None:
        """Takes a heartbeat of the session; from any thread. Raises Stale if the session has ended."""
        if self._newest.get(link) != generation:
            raise Stale
        self._heard = max(self._heard, now)

    def check(self, link: int, generation: Generation, low: int, now: float) -> None:
        """Takes a request of this session, with its low-water mark. Raises Stale if the session has ended.

        A request with a mark older than the newest is not stale, if its parts are above the newest one (`is_over`).
        """
        self.hear(link, generation, now)
        self._low[link] = max(self._low[link], low)

    def is_over(self, link: int, place: int) -> bool:
        """Whether the sender has said, in this session, that it has the answer for this place.

        A request with such a part is an old one that comes again.
        """
        return place < self._low.get(link, 0)

    def low(self, link: int) -> int:
        """Returns the highest low-water mark of the link's session."""
        return self._low.get(link, 0)

    def forget(self, link: int) -> None:
        """Ends the session of a link."""
        self._newest.pop(link, None)
        self._low.pop(link, None)

    def renew(self) -> None:
        """Ends every session; the served instance begins others."""
        self._newest.clear()
        self._low.clear()

    def end(self) -> None:
        """Ends every session, and serves no instance; no generation is ever given again."""
        self._served = None
        self._newest.clear()
        self._low.clear()

    def _left(self, now: float, *, is_connected: bool) -> float:
        """Returns for how long the served instance keeps its place."""
        if self._served is None:
            return 0.0
        return self._heard + (SILENT_SECONDS if is_connected else GONE_SECONDS) - now
