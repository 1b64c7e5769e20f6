"""Messages of protobuf with texts that are not UTF-8, for which the library refuses all of a request. No I/O.

Exporters do not repeat a refused request: one text that was cut in the middle of a character would cost thousands of
records. So a message that the library refuses is written anew, with U+FFFD in its texts for what is no UTF-8. Only the
messages around such texts are, at 5 µs a field, where the library needs 0.2; and no more of them than `MOST_BROKEN`.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from shipper_plugins.otlp.wire import field_of, fields

MOST_BROKEN = 50_000
"""Messages of a request that may have such texts, or others with them."""
MOST_FIELDS = 1_000_000
"""Fields of those messages."""
_MOST_DEPTH = 100
"""Messages in each other, as of the library."""
_SIZES = {1: 8, 5: 4}


def mended(message: bytes, kind: Any) -> bytes:
    """Returns a message of this kind, a Descriptor, with texts that are UTF-8.

    Raises ValueError for an invalid message, and for one with too many such texts.
    """
    return _Mending().message(memoryview(message), kind, 0)


class _Mending:
    def __init__(self) -> None:
        self._messages, self._fields = MOST_BROKEN, MOST_FIELDS

    def message(self, message: memoryview, kind: Any, depth: int) -> bytes:
        self._messages -= 1
        found = list(islice(fields(message), self._fields + 1))
        self._fields -= len(found)
        if depth == _MOST_DEPTH or self._messages < 0 or self._fields < 0:
            raise ValueError("too much around broken texts, or too many messages in each other")
        known = kind.fields_by_number
        return b"".join([self._field(known[number], value, depth) for number, value in found if number in known])

    def _field(self, field: Any, value: int | memoryview, depth: int) -> bytes:
        if isinstance(value, int):
            return field_of(field.number, 0, value)
        if field.type == field.TYPE_MESSAGE:
            kind = field.message_type
            return field_of(field.number, 2, value if _is_sound(value, kind) else self.message(value, kind, depth + 1))
        if field.type == field.TYPE_STRING:
            return field_of(field.number, 2, str(value, errors="replace").encode())
        if field.type == field.TYPE_BYTES:
            return field_of(field.number, 2, value)
        wire = 1 if field.type in (field.TYPE_FIXED64, field.TYPE_SFIXED64, field.TYPE_DOUBLE) else 5
        return field_of(field.number, wire, value) if len(value) == _SIZES[wire] else b""


def _is_sound(message: memoryview, kind: Any) -> bool:
    text = bytes(message)
    if text.isascii():
        return True
    try:
        GetMessageClass(kind).FromString(text)
    except DecodeError:
        return False
    return True
