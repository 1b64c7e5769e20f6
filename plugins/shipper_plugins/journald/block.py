r"""Turns many journal entries into a batch at once. No I/O.

    __CURSOR=…                      the head
    __REALTIME_TIMESTAMP=…
    _HOSTNAME=web-1                 what mostly repeats
    MESSAGE=text                    what differs, beside it `_SOURCE_REALTIME_TIMESTAMP` and `SYSLOG_TIMESTAMP`

Entries of one process differ in their message and their times alone. So an ordinary entry is cut into these (`cut`), as
bytes, and what its other fields become is made once and known again. Any other is read by `fields`.

Speed: 4 µs for an entry of 26 fields; read alone, 49 µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import orjson

from shipper.plugin import Batch, Fields, join
from shipper.sdk.columns import escaped
from shipper.sdk.fields import merged
from shipper_plugins.journald.export import Entry, plain
from shipper_plugins.journald.fields import CURSOR, HOST, LATEST, MESSAGE, TIME, event, nanoseconds

_HEAD = re.compile(
    rb"__CURSOR=([!-~]++)\n__REALTIME_TIMESTAMP=(\d{1,16})\n__MONOTONIC_TIMESTAMP=\d++"
    rb"(?:\n__SEQNUM=\d++\n__SEQNUM_ID=[0-9a-f]++)?+(?=\n)"
)
_DIFFERING = (b"\n_SOURCE_REALTIME_TIMESTAMP=", b"\nSYSLOG_TIMESTAMP=")
_IN_HEAD = frozenset((CURSOR, TIME, MESSAGE))
"""What occurs once in an ordinary entry."""
_MOST_KNOWN = 256
_LONGEST_KNOWN = 2048
"""Bytes of fields that are kept, to be known again."""
_TIME, _TIME_AND_HOST = frozenset(("@timestamp",)), frozenset(("@timestamp", "host"))


class Cut(NamedTuple):
    """An ordinary entry, of fields of text."""

    cursor: bytes
    microseconds: int
    message: bytes
    others: bytes
    """The lines of its other fields, without those that become nothing."""


def cut(text: bytes) -> Cut | Entry | None:
    """Returns an entry, given without the empty line at its end; None if one of its fields is not text."""
    head = _HEAD.match(text)
    begun, is_there, rest = text[head.end() :].partition(b"\nMESSAGE=") if head else (b"", b"", b"")
    if head is None or not is_there or (microseconds := int(head[2])) > LATEST:
        return plain(text)
    message, end, behind = rest.partition(b"\n")
    others = begun + end + behind
    for name in _DIFFERING:
        if name in others:
            before, _, after = others.partition(name)
            others = before + b"\n" + after.partition(b"\n")[2]
    if not _is_ordinary(others):
        return plain(text)
    return Cut(head[1], microseconds, message, others)


def cursor(entry: Cut | Entry) -> bytes:
    """Returns the cursor of an entry; empty without one."""
    if isinstance(entry, Cut):
        return entry.cursor
    found = entry.get(CURSOR, "")
    return found.encode() if isinstance(found, str) else b""


def batch(entries: Sequence[Cut | Entry], dataset: str) -> Batch:
    """Returns the events of some entries, each with the name of its data set, and their times."""
    times = [1000 * one.microseconds if isinstance(one, Cut) else nanoseconds(one) for one in entries]
    documents = _documents([entry for entry in entries if isinstance(entry, Cut)], dataset)
    if not all(isinstance(entry, Cut) for entry in entries):
        rows = iter(documents.split(b"\n"))
        texts = [next(rows) if isinstance(one, Cut) else _alone(one, dataset) for one in entries]
        documents = b"".join([text + b"\n" for text in texts])
    complete = frozenset[str]()
    if None not in times:
        complete = _TIME_AND_HOST if all(map(_has_host, entries)) else _TIME
    return Batch.ndjson(documents, complete=complete).with_columns(timestamps=times)


def _documents(cuts: Sequence[Cut], dataset: str) -> bytes:
    return join(
        len(cuts),
        *(b'{"@timestamp":"', [_written(one.microseconds) for one in cuts]),
        *(b'","message":"', _escaped([one.message for one in cuts])),
        *(b'",', [_others(one.others, dataset) for one in cuts], b"\n"),
    )


def _alone(entry: Entry, dataset: str) -> bytes:
    time = nanoseconds(entry)
    begun = {} if time is None else {"@timestamp": _written(time // 1000).decode()}
    return orjson.dumps(begun | merged(_beside(dataset), event(entry)))


def _has_host(entry: Cut | Entry) -> bool:
    return b"\n_HOSTNAME=" in entry.others if isinstance(entry, Cut) else HOST in entry


def _is_ordinary(others: bytes) -> bool:
    """Whether all of these lines are fields of text, and none of them another message."""
    return _known_ordinary(others) if len(others) <= _LONGEST_KNOWN else _find_ordinary(others)


def _find_ordinary(others: bytes) -> bool:
    found = plain(others.strip(b"\n")) if b"\n\n" not in others.strip(b"\n") else None
    return found is not None and _IN_HEAD.isdisjoint(found)


def _others(others: bytes, dataset: str) -> bytes:
    """Returns what the other fields become, without the brace before them."""
    return _known(others, dataset) if len(others) <= _LONGEST_KNOWN else _made(others, dataset)


def _made(others: bytes, dataset: str) -> bytes:
    return orjson.dumps(merged(_beside(dataset), event(plain(others.strip(b"\n")) or {})))[1:]


_known_ordinary, _known = lru_cache(_MOST_KNOWN)(_find_ordinary), lru_cache(_MOST_KNOWN)(_made)


def _beside(dataset: str) -> Fields:
    return {"event": {"dataset": dataset}, "ecs": {"version": "8.17.0"}}


def _escaped(messages: Sequence[bytes]) -> list[bytes]:
    lines = b"".join([message + b"\n" for message in messages])
    return escaped(lines.decode(errors="replace").encode() if not lines.isascii() else lines)


def _written(microseconds: int) -> bytes:
    """Returns a time as `@timestamp`, in milliseconds."""
    return b"%b.%03dZ" % (_second(microseconds // 10**6), microseconds // 1000 % 1000)


@lru_cache(_MOST_KNOWN)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
