"""By which events belong together: the values of some fields, or the whole event, as a short digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from shipper.plugin import BadOption, Batch, Fields, merged
from shipper_plugins.processors.drop import look_up

_BYTES = 16
_CHANGING = ("@timestamp", "log")
"""What differs between equal events that came one after the other: when, and where in a file."""


def check_names(option: str, names: Sequence[str]) -> None:
    """Raises BadOption for what is no name of a field."""
    for number, name in enumerate(names):
        if not name or not all(name.split(".")):
            raise BadOption(f"{name!r} is no name of a field", option, number)


def digests(batch: Batch, names: Sequence[str]) -> Iterator[bytes]:
    """Of each event: equal for events that have the same values of these fields, or lack the same of them."""
    for own in batch.own():
        yield digest(values(look_up(own, batch.shared), names))


def whole_digests(batch: Batch) -> Iterator[bytes]:
    """Of each event: equal for events that differ in their times, and in `log`, at most."""
    for own in batch.own():
        event = merged(batch.shared, own)
        yield digest({name: value for name, value in event.items() if name not in _CHANGING})


def values(look: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Of these fields; None where there is none."""
    return [look(name) for name in names]


def digest(value: Fields | list[Any]) -> bytes:
    """Of a JSON value; objects are equal whatever the order of their fields."""
    return hashlib.blake2b(encoded(value), digest_size=_BYTES).digest()


def encoded(value: Any) -> bytes:
    """One text for equal values."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=repr)
