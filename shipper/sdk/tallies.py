"""PUBLIC: counts of requests and of entering events: for metrics, since the process started, in memory only.

A tally belongs to a name of the policy and is counted in the main thread, with a few additions for each request or
`emit`, none for each event. Labels are bounded: a destination determines only a code of three digits.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from typing import Any, Final, Literal, get_args

Failure = Literal["unreachable", "timeout", "tls", "broken", "later", "held", "too_large", "failed"]
"""Why a request has no code: no connection, a timeout, TLS, a broken connection or answer. For outputs that do not
count their requests: the error of `Sender.send`, `failed` for any other."""
FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the histogram's buckets in seconds, except the last one, which has none."""
OTHER: Final = "other"
_CODE = re.compile(r"[1-9][0-9]{2}")


class Requests:
    """Counts the requests of one output: how each ended, and how long it took."""

    def __init__(self) -> None:
        self.responses: Counter[str] = Counter()
        self.failures: Counter[Failure] = Counter()
        self.seconds = 0.0
        self._buckets = [0] * (len(BOUNDS) + 1)

    def answered(self, seconds: float, code: int | None = None) -> None:
        """Counts an answered request; `code` is the HTTP status, if any."""
        if code is not None:
            self.responses[str(code) if _CODE.fullmatch(str(code)) else OTHER] += 1
        self._took(seconds)

    def failed(self, seconds: float, failure: Failure) -> None:
        """Counts a request without an answer."""
        self.failures[failure] += 1
        self._took(seconds)

    def _took(self, seconds: float) -> None:
        self.seconds += seconds
        self._buckets[bisect_left(BOUNDS, seconds)] += 1

    @property
    def count(self) -> int:
        return sum(self._buckets)

    def view(self) -> dict[str, Any]:
        """As JSON: `buckets` has the requests of each bucket alone, the last one those above all BOUNDS."""
        return {
            "requests": self.count,
            "responses": dict(self.responses),
            "failures": dict(self.failures),
            "seconds": round(self.seconds, 6),
            "buckets": list(self._buckets),
        }


class Taken:
    """Counts the events that one input has taken: stored, or removed by its processors."""

    __slots__ = ("bytes", "events", "failures", "filtered")

    def __init__(self) -> None:
        self.events = 0
        """Events from the input."""
        self.bytes = 0
        """Their bytes as text."""
        self.filtered = 0
        """Events that processors removed."""
        self.failures = 0
        """How often a processor could not handle an event, and tagged it."""

    def view(self) -> dict[str, int]:
        """As JSON."""
        return {name: getattr(self, name) for name in ("events", "bytes", "filtered", "failures")}
