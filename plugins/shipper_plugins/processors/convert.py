"""`convert`: changes the types of fields.

    {type: convert, fields: {http.response.status_code: integer, event.duration: float, source.ip: ip}}

    integer   -2^63 to 2^63 - 1, from text in base 10 or 16 (`0x1f`), a number without a fraction, or a boolean
    float     from text, a number, or a boolean; no NaN, no infinity
    boolean   from true and false, 1 and 0, and the texts true, t, 1, false, f, 0 in any case
    string    as JSON writes the value, a text as it is
    ip        an IPv4 or IPv6 address, in its canonical text

An event without a field keeps the rest of its conversions. An event whose value has no such meaning stays as it is and
is tagged. The elements of a list are converted one by one.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

import orjson

from shipper.plugin import BadOption, Batch, Fields, Processor, edited
from shipper.sdk.fields import check_name, find, put
from shipper.sdk.table import Table

Type = Literal["integer", "float", "boolean", "string", "ip"]
_LONGEST_NUMBER = 400
"""Characters; a longer text takes `int` a time that grows with its square."""


class Convert(Processor, frozen=True):
    """Changes the types of fields."""

    fields: dict[str, Type]
    """The new type of each field, by its (dotted) name."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise BadOption("name at least one field", "fields")
        for name in self.fields:
            check_name(name, "fields")

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the converted fields."""
        return edited(batch, self.fields, self._converted, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        left = set[int]()
        for name, type in self.fields.items():
            table, refused = table.opened(name).changed(name, partial(converted, type, name))
            left.update(refused)
        return table, left

    def _converted(self, event: Fields) -> Fields:
        for name, type in self.fields.items():
            value = find(event, name)
            if value is not None:
                event = put(event, name, converted(type, name, value))
        return event


def converted(type: Type, name: str, value: Any) -> Any:
    """Returns a value, or the elements of a list, in a type; raises ValueError with the name of the field."""
    if isinstance(value, list):
        return [converted(type, name, one) for one in value]
    try:
        return _CONVERSIONS[type](value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"convert: the value of {name} is no {type}") from None


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    number = _read_integer(value.strip()) if isinstance(value, str) else int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError
    return number


def _read_integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER or "_" in text:
        raise ValueError
    return int(text, 16 if text.lower().lstrip("+-").startswith("0x") else 10)


def _float(value: Any) -> float:
    if isinstance(value, str) and (len(value) > _LONGEST_NUMBER or "_" in value):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(value: Any) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    if text in ("true", "t", "1", 1):
        return True
    if text in ("false", "f", "0", 0):
        return False
    raise ValueError


def _string(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _ip(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return str(ipaddress.ip_address(value.strip()))


_CONVERSIONS: Mapping[Type, Callable[[Any], Any]] = {
    "integer": _integer,
    "float": _float,
    "boolean": _boolean,
    "string": _string,
    "ip": _ip,
}
