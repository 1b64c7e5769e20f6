"""PUBLIC: typed events: each is a MessagePack map, so that bytes, integers and floats keep their types.

The maps follow each other in one body without a separator; the length of each is kept separately. A wrong length, or a
map that claims more entries than it has, is an error before memory is allocated for it.

As JSON, bytes are base64 text (RFC 4648, padded), NaN and the infinities are null.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from shipper.sdk.columns import encoded

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def packed(events: Sequence[Any]) -> tuple[bytes, tuple[int, ...]]:
    """Returns the body of these events, and the length of each; raises TypeError or ValueError for unsupported
    values."""
    try:
        maps = list(map(_encode, events))
    except (OverflowError, RecursionError) as error:
        raise TypeError("a number is too large, or a value is nested too deeply") from error
    return b"".join(maps), tuple(map(len, maps))


def unpacked(maps: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the events of these maps; raises ValueError where one is not a map with text keys."""
    try:
        return list(map(_decode, maps))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not a typed event") from error


def slices(body: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Returns the map of each event."""
    return [body[begin:end] for begin, end in pairwise(accumulate(sizes, initial=0))]


def as_json(events: Sequence[Any]) -> list[bytes]:
    """Returns each event as JSON; raises TypeError for an unsupported value."""
    return encoded(events, _as_text)


def holds_bytes(values: Sequence[Any]) -> bool:
    """Whether one of these values contains bytes, at any depth."""
    level: list[Any] = list(values)
    while level:
        if any(isinstance(value, bytes) for value in level):
            return True
        level = [child for value in level for child in _children(value)]
    return False


def cuts(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Yields ranges of events of at most `most` bytes together, or of one event."""
    first = held = 0
    for place, size in enumerate(sizes):
        if held and held + size > most:
            yield range(first, place)
            first, held = place, 0
        held += size
    if sizes:
        yield range(first, len(sizes))


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a value of type {type(value).__name__}")


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
