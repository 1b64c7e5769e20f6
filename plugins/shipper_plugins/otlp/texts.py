"""Messages of protobuf with texts that are not UTF-8, for which the library refuses all of a request. No I/O.

Exporters do not repeat a refused request: one text that was cut in the middle of a character would cost thousands of
records. So a message that the library refuses is written anew, with U+FFFD in its texts for what is no UTF-8.
"""

from __future__ import annotations

from typing import Any

from shipper_plugins.otlp.wire import field_of, fields

_MOST_DEPTH = 100
"""Messages in each other, as of the library."""
_SIZES = {1: 8, 5: 4}


def mended(message: memoryview, kind: Any, depth: int = 0) -> bytes:
    """Returns a message of this kind, a Descriptor, with texts that are UTF-8 and without unknown fields.

    Raises ValueError for an invalid message.
    """
    if depth == _MOST_DEPTH:
        raise ValueError("too many messages in each other")
    known = kind.fields_by_number
    return b"".join([_field(known[number], value, depth) for number, value in fields(message) if number in known])


def _field(field: Any, value: int | memoryview, depth: int) -> bytes:
    if isinstance(value, int):
        return field_of(field.number, 0, value)
    if field.type == field.TYPE_MESSAGE:
        return field_of(field.number, 2, mended(value, field.message_type, depth + 1))
    if field.type == field.TYPE_STRING:
        return field_of(field.number, 2, str(value, errors="replace").encode())
    if field.type == field.TYPE_BYTES:
        return field_of(field.number, 2, value)
    wire = 1 if field.type in (field.TYPE_FIXED64, field.TYPE_SFIXED64, field.TYPE_DOUBLE) else 5
    return field_of(field.number, wire, value) if len(value) == _SIZES[wire] else b""
