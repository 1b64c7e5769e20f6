"""What a line of the protocol has room for. Pure.

A line has `MAX_LINE_BYTES`. In `observed` every list has a share of them, and says how many entries it leaves out. The
ids of credentials are never left out: an id that is not in use any more may be revoked, so a list that was cut would
give a right that nobody has. They are bounded before they are in use, and what is released goes out in several lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from shipper.protocol.messages import encoded

IDS_BYTES = 1 << 20
"""Of the ids of all credentials in use, as a JSON list: `observed` has it twice, with those that are wanted."""
LONGEST_ID = 1024
"""Of one credential, in bytes."""
LIST_BYTES = 512 << 10
"""Of each other list in a line, as JSON."""
LONGEST_TEXT = 2000
"""Of a message or a path, in characters; it may be 6 times as many bytes."""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text, shortened to what people read."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def fitting(items: Iterable[object], limit: int) -> int:
    """How many of these, from the first on, have `limit` bytes together as a JSON list."""
    return sum(size <= limit for size in accumulate(len(encoded(item)) + 1 for item in items))


def parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in their order, in lists of at most IDS_BYTES each; none of them is longer than LONGEST_ID."""
    while ids:
        count = max(1, fitting(ids, IDS_BYTES))
        yield ids[:count]
        ids = ids[count:]
