"""Data streams, as Elasticsearch and OpenSearch name them: `type-dataset-namespace`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from shipper.plugin import Batch, DataStream

_DEFAULT: Mapping[str, str] = msgspec.to_builtins(DataStream())


def name(stream: Mapping[str, Any]) -> str:
    """Returns the name of a data stream that has all its parts."""
    return f"{stream['type']}-{stream['dataset']}-{stream['namespace']}"


DEFAULT = name(_DEFAULT)
"""The data stream of events that name none."""


def of(batch: Batch) -> str | list[str] | None:
    """Returns the data stream of the events: one for all, one for each, or None if none has one."""
    if "data_stream" in batch.shared:
        return _name_of(batch.shared["data_stream"])
    if b"data_stream" not in batch.body:
        return None
    try:
        return [_name_of(own.get("data_stream")) for own in batch.own()]
    except ValueError:  # a document that is no JSON, which the destination refuses alone
        return [_of_one(batch.pick([at])) for at in range(batch.count)]


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
