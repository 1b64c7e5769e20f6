"""The parts of an event's record: the topic, the key, the headers and the value. No I/O, and no library of Kafka.

A field is first searched for in the shared fields of a batch; only if it is not there, objects of the events are made,
which costs several times the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from shipper.plugin import Batch, Fields
from shipper_plugins import data_streams

TOPIC = r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}(?!\n)$"
"""The valid names of topics in Kafka."""
_TOPIC = re.compile(TOPIC)

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of an event for the parts of its record; a path is the keys that lead to a field."""

    topic: str | None = None
    topic_field: tuple[str, ...] | None = None
    key: tuple[str, ...] | None = None
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    id_header: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The parts of the records of a batch, by position."""

    topics: Sequence[str]
    """Empty if the event names no valid topic."""
    keys: Sequence[bytes | None] | None
    """None if no event has a key."""
    headers: Sequence[Headers]
    values: Sequence[bytes]


def rows(batch: Batch, layout: Layout) -> Rows:
    """Returns the parts of all records; takes some milliseconds for thousands of events."""
    fields = _EventFields(batch)
    keys = batch.keys if layout.key is None else [_raw(value) for value in fields.each(layout.key)]
    values = batch.json_lines().split(b"\n")[:-1]
    return Rows(_topics(batch, layout, fields), keys, _headers(batch, layout, fields), values)


def topics(batch: Batch, layout: Layout) -> Sequence[str]:
    """Returns the topic of each event; an empty text if the event names no valid one."""
    return _topics(batch, layout, _EventFields(batch))


def _topics(batch: Batch, layout: Layout, fields: _EventFields) -> Sequence[str]:
    names = layout.topic or data_streams.of(batch) or data_streams.DEFAULT
    otherwise = [names] * batch.count if isinstance(names, str) else names
    if layout.topic_field is not None:
        named = zip(fields.each(layout.topic_field), otherwise, strict=True)
        otherwise = [value if isinstance(value, str) and value else other for value, other in named]
    sound = {name: name if _TOPIC.match(name) else "" for name in set(otherwise)}
    return [sound[name] for name in otherwise]


def _headers(batch: Batch, layout: Layout, fields: _EventFields) -> Sequence[Headers]:
    name = layout.id_header
    headers: list[Headers] = [[(name, id.encode())] for id in batch.id_texts()] if name else [[] for _ in _each(batch)]
    for name, path in layout.headers.items():
        for row, value in zip(headers, fields.each(path), strict=True):
            if value is not None:
                row.append((name, _raw(value)))
    return headers


def _each(batch: Batch) -> range:
    return range(batch.count)


def _raw(value: Any) -> bytes | None:
    """Returns a field's value as bytes: a text unchanged, any other value as JSON; None for null."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


class _EventFields:
    """The fields of a batch's events; makes objects of them once, and only if necessary."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._whole: list[Fields] | None = None

    def each(self, path: tuple[str, ...]) -> list[Any]:
        """Returns the value of a field in each event, None for a missing one."""
        shares = self._batch.each_shared()
        if path[0] != "log" and all(path[0] in shared for shared in shares):
            return [_at(shared, path) for shared in shares]
        if self._whole is None:
            self._whole = self._batch.plain()
        return [_at(event, path) for event in self._whole]


def _at(fields: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(fields, Mapping):
            return None
        fields = fields.get(key)
    return fields
