"""Data streams, as Elasticsearch and OpenSearch name them: `type-dataset-namespace`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shipper.plugin import Batch, DataStream
from shipper.sdk.event import Way

_DEFAULT: Mapping[str, str] = msgspec.to_builtins(DataStream())


def name(stream: Mapping[str, Any]) -> str:
    """Returns the name of a data stream that has all its parts."""
    return f"{stream['type']}-{stream['dataset']}-{stream['namespace']}"


DEFAULT = name(_DEFAULT)
"""The data stream of events that name none."""


def of(batch: Batch) -> str | list[str] | None:
    """Returns the data stream of the events: one for all, one for each, or None if none has one."""
    if batch.ways is not None and any("data_stream" in way.shared for way in batch.ways):
        return _of_ways(batch, batch.ways)
    if "data_stream" in batch.shared:
        return _name_of(batch.shared["data_stream"])
    if b"data_stream" not in batch.body:
        return None
    try:
        return [_name_of(own.get("data_stream")) for own in batch.own()]
    except ValueError:  # a document that is no JSON, which the destination refuses alone
        return [_of_one(batch.pick([at])) for at in range(batch.count)]


def _of_ways(batch: Batch, ways: Sequence[Way]) -> list[str]:
    """Looks into those events only whose batch has no data stream for all of them."""
    known = {id(way): way.shared.get("data_stream") for way in ways}
    shared = {key: None if stream is None else _name_of(stream) for key, stream in known.items()}
    names = [shared[id(way)] for way in ways]
    if None not in names:
        return [name or DEFAULT for name in names]
    others = [at for at, name in enumerate(names) if name is None]
    found = of(batch.pick(others)) or DEFAULT
    own = dict(zip(others, [found] * len(others) if isinstance(found, str) else found, strict=True))
    return [own[at] if name is None else name for at, name in enumerate(names)]


def _of_one(batch: Batch) -> str:
    """Returns the data stream of one event; the default one for a document that is no JSON."""
    try:
        (own,) = batch.own()
    except ValueError:
        return DEFAULT
    return _name_of(own.get("data_stream"))


def is_part(key: str, value: object) -> bool:
    """Returns whether the value is valid as the part `key` of a data stream: type, dataset or namespace."""
    return isinstance(value, str) and _is_part(key, value)


def _name_of(stream: object) -> str:
    """Returns the name of a stream; a missing or invalid part is that of logs-generic-default."""
    parts = stream if isinstance(stream, Mapping) else {}
    return name({key: parts[key] if is_part(key, parts.get(key)) else part for key, part in _DEFAULT.items()})


@lru_cache(1024)
def _is_part(key: str, value: str) -> bool:
    try:
        msgspec.convert({key: value}, DataStream)
    except msgspec.ValidationError:
        return False
    return True
