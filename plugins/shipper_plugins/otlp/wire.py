"""Protobuf on the wire: the fields of a message, without a library and without objects for inner messages. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

_VARINT, _BYTES = 0, 2
Bytes = TypeVar("Bytes", bytes, memoryview)


def number_field(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


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
