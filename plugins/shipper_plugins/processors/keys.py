"""Keys of events that belong together: a short digest of some fields, or of the whole event."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from shipper.plugin import Batch, Fields
from shipper.sdk.fields import look_up, merged

_BYTES = 16
_CHANGING = ("@timestamp", "log")
"""Fields that differ between repetitions of an event: its time, and its offset in a file."""


def digests(batch: Batch, names: Sequence[str]) -> Iterator[bytes]:
    """Yields a digest of each event: equal for events with the same values of these fields, missing ones included."""
    for own in batch.own():
        yield digest(values(look_up(own, batch.shared), names))


def whole_digests(batch: Batch) -> Iterator[bytes]:
    """Yields a digest of each event: equal for events that differ in `@timestamp` and `log` at most."""
    for own in batch.own():
        event = merged(batch.shared, own)
        yield digest({name: value for name, value in event.items() if name not in _CHANGING})


def values(look: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Returns the values of these fields, None for a missing one."""
    return [look(name) for name in names]


def digest(value: Fields | list[Any]) -> bytes:
    """Returns the digest of a JSON value; the order of an object's fields does not count."""
    return hashlib.blake2b(encoded(value), digest_size=_BYTES).digest()


def encoded(value: Any) -> bytes:
    """Returns JSON that is the same for equal values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr)
