"""Turns many journal entries into a batch at once. No I/O.

Entries of one process differ in their message and their times, so what the other fields become is written once, and
known again. An entry without a message of text or without an ordinary time is read alone, by `journal_fields`.

Speed: 7 µs for an entry of 22 fields, of which 4 are to take it apart; read alone, 35 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

import orjson

from shipper.plugin import Batch, Fields, encoded, join, merged
from shipper_plugins.inputs.journal_export import Entry, Value
from shipper_plugins.inputs.journal_fields import HOST, LEFT_OUT, MESSAGE, event, nanoseconds

_VARYING = LEFT_OUT | {MESSAGE}
_MOST_KNOWN = 256
_LONGEST_KNOWN = 2048
"""Characters of fields that are kept, to be known again."""
_TIME, _TIME_AND_HOST = frozenset(("@timestamp",)), frozenset(("@timestamp", "host"))


def batch(entries: Sequence[Entry], dataset: str) -> Batch:
    """Returns the events of some entries, each with the name of its data set, and their times."""
    times = list(map(nanoseconds, entries))
    common = [
        time is not None and isinstance(entry.get(MESSAGE), str) for time, entry in zip(times, entries, strict=True)
    ]
    if not all(common):
        beside = _beside(dataset)
        whole = [merged(beside, event(entry)) for entry in entries]
        return Batch.events(whole).with_columns(timestamps=times)
    body = join(
        len(entries),
        *(b'{"@timestamp":"', [_written(time) for time in times if time is not None]),
        *(b'","message":', encoded([entry[MESSAGE] for entry in entries])),
        *(b",", [_others(entry, dataset) for entry in entries], b"\n"),
    )
    complete = _TIME_AND_HOST if all(HOST in entry for entry in entries) else _TIME
    return Batch.ndjson(body, complete=complete).with_columns(timestamps=times)


def _others(entry: Entry, dataset: str) -> bytes:
    """Returns what the fields become that mostly repeat, without the brace before them."""
    items = tuple([item for item in entry.items() if item[0] not in _VARYING])
    try:
        is_short = sum([len(value) for _, value in items]) <= _LONGEST_KNOWN
        return _known(items, dataset) if is_short else _made(items, dataset)
    except TypeError:  # a field that occurs several times is a list
        return _made(items, dataset)


def _made(items: tuple[tuple[str, Value], ...], dataset: str) -> bytes:
    return orjson.dumps(merged(_beside(dataset), event(dict(items))))[1:]


_known = lru_cache(_MOST_KNOWN)(_made)


def _beside(dataset: str) -> Fields:
    return {"event": {"dataset": dataset}, "ecs": {"version": "8.17.0"}}


def _written(nanoseconds: int) -> bytes:
    """Returns a time as `@timestamp`, in milliseconds."""
    return b"%b.%03dZ" % (_second(nanoseconds // 10**9), nanoseconds // 10**6 % 1000)


@lru_cache(_MOST_KNOWN)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
