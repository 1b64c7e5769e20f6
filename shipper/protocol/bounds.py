"""The limits of a line of the protocol. Pure.

A line has at most `MAX_LINE_BYTES`. In `observed` every list has a share of them, and a count of the entries left out.
Ids of credentials are never left out: an id that is not listed as in use may be revoked, so a truncated list would
allow a wrong revocation. Their size is limited before they are in use, and released ids are sent in several lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from shipper.protocol.messages import encoded

IDS_BYTES = 1 << 20
"""The size of the ids of all credentials in use, as a JSON list; `observed` has a second such list of wanted ones."""
LONGEST_ID = 1024
"""The size of the id of one credential, in bytes."""
LIST_BYTES = 512 << 10
"""The size of each other list in a line, as JSON."""
LONGEST_TEXT = 2000
"""The length of a message or a path, in characters; it may be 6 times as many bytes."""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Returns a text, truncated to `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def fitting(items: Iterable[object], limit: int) -> int:
    """Returns how many of these, from the first on, fit into `limit` bytes as a JSON list."""
    return sum(size <= limit for size in accumulate(len(encoded(item)) + 1 for item in items))


def parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields ids in their order, in lists of at most IDS_BYTES each; no id is longer than LONGEST_ID."""
    while ids:
        count = max(1, fitting(ids, IDS_BYTES))
        yield ids[:count]
        ids = ids[count:]
