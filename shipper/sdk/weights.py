"""PUBLIC: what events weigh: the bytes and the memory that they become, not those in which they came. No I/O.

    weight   bytes of all events as they are written, each with the fields that it shares with the others
    size     bytes for which room is lent while a batch is loaded, sent or stored: its body, its shared fields as
             objects, or a quarter of its weight, whichever is most

A kilobyte can name 2000 events that share a field of 1 MB, and every output writes that field 2000 times; a header of
8 MiB can be 3 million lists. So both are counted before an object is made. What weighs more than `MOST_WEIGHT` is
stored and sent in parts: only a single event can be heavier, and its input has bounded that.

The most that Python and orjson take, on 64 bits: 128 bytes for each of `{ [ , :` (a dict of one member takes 184, a
collector's head of 16, its place in a list and three values of orjson's own, and has two of them); one byte for each
byte, or `WIDE`.
"""

from __future__ import annotations

MOST_WEIGHT = 8 << 20
"""The most that a batch weighs in the spool and in one call of an output, unless it is one event."""
MOST_EVENTS = 16384
"""The most events of a stored batch: a mebibyte of empty lines was 700 MiB as JSON, since each event has all shared
fields."""
EVENT_BYTES = 64
"""What each event has beside its fields: an id, or the action of a bulk request."""
WRITTEN = 4
"""An ordinary event is written in up to so many times the bytes in which it is kept."""
VALUE_BYTES = 128
"""The most memory of a JSON value."""
WIDE = 5
"""The most memory for a byte of a text, if a character above U+007F may be in it: four bytes, and a copy in UTF-8."""

_EMPTY = len(b"{}")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"{[,:"))


def values(text: bytes) -> int:
    """Returns how many of `{ [ , :` are in a text; of JSON without strings, that is at least half its values."""
    return len(text.translate(None, _NOT_STRUCTURE))


def weight(count: int, shared: int, body: int) -> int:
    """Returns the weight of so many events, by the bytes of their shared fields as JSON, and of their body."""
    return count * (shared + EVENT_BYTES) + body


def size(count: int, shared: bytes, body: int) -> int:
    """Returns the size of a batch; `shared` is JSON."""
    return max(body + _as_objects(shared), weight(count, len(shared), body) // WRITTEN)


def _as_objects(shared: bytes) -> int:
    if len(shared) <= _EMPTY:
        return 0
    is_wide = not shared.isascii() or b"\\u" in shared
    return len(shared) * (WIDE if is_wide else 1) + values(shared) * VALUE_BYTES
