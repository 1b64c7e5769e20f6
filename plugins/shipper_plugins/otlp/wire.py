"""Protobuf on the wire: the fields of a message, without a library and without objects for inner messages. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeVar

_VARINT, _BYTES = 0, 2
_TWO_GROUPS = 1 << 14
LONGEST_VARINT = 9
"""Bytes of a number of 63 bits."""
Bytes = TypeVar("Bytes", bytes, memoryview)


def number_field(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def bytes_field(field: int, value: bytes) -> bytes:
    return begun(field, len(value)) + value


def begun(field: int, size: int) -> bytes:
    """Returns what stands before so many bytes that are the value of a field."""
    return _varint(field << 3 | _BYTES) + _varint(size)


def field_of(field: int, wire_type: int, value: int | bytes | memoryview) -> bytes:
    """Returns a field as it stands on the wire, though its value be 0 or empty: an integer, or the bytes of a type."""
    key = _varint(field << 3 | wire_type)
    if isinstance(value, int):
        return key + _varint(value)
    return b"".join((key, _varint(len(value)) if wire_type == _BYTES else b"", value))


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def varints(numbers: Sequence[int]) -> list[bytes]:
    """Returns each number as it stands on the wire; fast where neighbours are alike, as offsets are."""
    low, above, end = _two_groups(), 0, b""
    found = []
    for number in numbers:
        if number < _TWO_GROUPS:
            found.append(_varint(number))
            continue
        if number >> 14 != above:
            above = number >> 14
            end = _varint(above)
        found.append(low[number & _TWO_GROUPS - 1] + end)
    return found


@cache
def _two_groups() -> Sequence[bytes]:
    """Returns the first two bytes of a number that has more, by its last 14 bits."""
    return [bytes((low | 128, high | 128)) for high in range(128) for low in range(128)]


def fields(message: Bytes) -> Iterator[tuple[int, int | Bytes]]:
    """Yields the number and the value of each field; raises ValueError for an invalid message."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key >> 3 == 0:
            raise ValueError("a field without a number")
        match key & 7:
            case 0:
                value, at = _read_varint(message, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _read_varint(message, at)
            case 5:
                size = 4
            case _:
                raise ValueError("a field of an unknown type")
        if at + size > len(message):
            raise ValueError("a field that ends too early")
        yield key >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at == len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number that does not end")
