"""Text lines as log records by columns: thousands that differ in their body and in one attribute, `log.offset`. No I/O.

What else a record has is the same for all lines of a batch. So `events` makes the record of two sample lines, and what
is equal in both is written once, by the encoders of single records; `protobuf` and `jsons` join it with the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shipper.plugin import Batch, Fields
from shipper_plugins.otlp.events import groups
from shipper_plugins.otlp.model import MOST_INTEGER, Group, Record

OFFSET = "log.offset"
_SAMPLES = b"a\nb\n"


class Lines(NamedTuple):
    """The records of a batch of lines."""

    group: Group
    """Their resource and scope; no records."""
    record: Record
    """What all have, without a body and attributes."""
    before: Fields
    """The attributes before the offset."""
    after: Fields
    """Those after it."""
    body: bytes
    """The bodies, each ended by a line feed."""
    offsets: Sequence[int]
    """In ascending order."""


def lines(batch: Batch) -> Lines | None:
    """Returns the records of a batch; None if they differ in more than their bodies and offsets, or have none."""
    if batch.offset is None or not batch.count or batch.timestamps is not None or batch.severities is not None:
        return None
    places = batch.offsets()
    if batch.offset < 0 or places[-1] > MOST_INTEGER:
        return None
    found = groups(Batch.lines(_SAMPLES, offset=0, shared=batch.shared))
    if len(found) != 1:
        return None
    one, other = found[0].records
    if (one.body, other.body) != ("a", "b") or (one.attributes.get(OFFSET), other.attributes.get(OFFSET)) != (0, 2):
        return None
    if replace(other, body="a", attributes={**other.attributes, OFFSET: 0}) != one:
        return None
    names = list(one.attributes)
    at = names.index(OFFSET)
    before, after = [{name: one.attributes[name] for name in part} for part in (names[:at], names[at + 1 :])]
    record = replace(one, body=None, attributes={})
    return Lines(replace(found[0], records=[]), record, before, after, batch.body, places)
