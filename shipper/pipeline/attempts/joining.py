"""The attempts of a request, one for each way: entries that go the same way become one (`Feeding.grouping`); in strict
order, only neighbours do. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import itemgetter

from shipper.pipeline.attempts.attempt import Attempt
from shipper.pipeline.memory.loading import Loaded
from shipper.sdk.feeding import Feeding
from shipper.sdk.joining import together, way
from shipper.spool.queue import Entry

Parts = Sequence[tuple[Entry, range]]
"""Which events of an attempt belong to which entry."""


def grouped(loaded: Loaded, feeding: Feeding) -> list[Loaded]:
    """Returns the entries of each attempt, in their order."""
    pairs = [(way(batch, feeding.grouping, mixes=feeding.mixes), (entry, batch)) for entry, batch in loaded]
    if feeding.ordered:
        return [[one for _, one in those] for _, those in groupby(pairs, key=itemgetter(0))]
    groups = dict[object, Loaded]()
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def joined(group: Loaded, grouping: Sequence[str], few: int | None) -> tuple[Attempt, Parts]:
    """Returns one attempt for all events of entries, or for their first `few`; any thread."""
    batch = together([batch for _, batch in group], grouping)
    ends = accumulate(batch.count for _, batch in group)
    parts = [(entry, range(end - batch.count, end)) for (entry, batch), end in zip(group, ends, strict=True)]
    return (Attempt(batch) if few is None else Attempt.probe(batch, few)), parts
