"""Lines that belong together: which of them make one event.

    match: after     a line that matches is continued from the line before    (`^\\s`: stack traces)
    match: before    a line that matches is continued by the line after       (`\\\\$`: continuation marks)

`negate` turns "matches" into "does not match". An event ends at `max_lines` lines or `max_line_bytes` bytes; the lines
that follow begin another one, so none is lost. The last event of what was read is unfinished while a line could still
join it; it is read again later, so it needs no memory and its cursor has not moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec

from shipper.plugin import Duration, Settings
from shipper.sdk.patterns import check_pattern, finder

_END = 512
"""Characters at each end of a line that are looked at; what is between them would cost too much time."""


class Multiline(Settings, frozen=True, kw_only=True):
    """How lines become events of several lines."""

    pattern: str
    """A regular expression (RE2: no look-around), searched for in each line: in the first and last 512 characters of a
    long one."""
    negate: bool = False
    """Whether the lines meant are those that do not match."""
    match: Literal["after", "before"] = "after"
    """Where such a line goes: with the line before it (`after`), or with the line behind it (`before`)."""
    max_lines: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 500
    """After so many lines another event begins."""
    timeout: Duration = Duration(5)
    """After so long without a new line the event is finished."""

    def __post_init__(self) -> None:
        check_pattern(self.pattern, "pattern")

    def group(self, texts: Sequence[bytes], ends: Sequence[int], max_bytes: int) -> list[tuple[int, int]]:
        """The events in these lines of UTF-8, as (first, after the last); the last one is unfinished if `unfinished`
        says so.

        `ends` are the offsets after each line, and begin with the offset of the first one.
        """
        meant = list(map(self._is_meant(), texts))
        joins = meant if self.match == "after" else [False, *meant]
        events, first = [], 0
        for i in range(1, len(texts)):
            if not joins[i] or i - first >= self.max_lines or ends[i + 1] - ends[first] > max_bytes:
                events.append((first, i))
                first = i
        return [*events, (first, len(texts))] if texts else []

    def unfinished(self, event: tuple[int, int], last: bytes) -> bool:
        """Whether another line could join the last event, whose last line this is."""
        if event[1] - event[0] >= self.max_lines:
            return False
        return self.match == "after" or self._is_meant()(last)

    def _is_meant(self) -> Callable[[bytes], bool]:
        found, negate = finder(self.pattern), self.negate
        return lambda text: found(text if len(text) <= 2 * _END else _ends(text.decode())) != negate


def _ends(text: str) -> bytes:
    return (text if len(text) <= 2 * _END else text[:_END] + text[-_END:]).encode()
