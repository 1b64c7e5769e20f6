"""The documents of a bulk request: their validity, and their data stream. No I/O.

A document is valid if orjson loads it (processors use orjson too, so a stored event never breaks one), if it has no
more than `DEEPEST` levels, and if no object in it, at any depth, has a key twice. One trick checks nearly all of that:
if orjson writes the loaded document as the same bytes again, white space aside, it is valid and has no duplicate keys.

`own_streams` checks hundreds of documents in one call, nested in so many lists that orjson refuses a document that is
too deep: 1.1 µs for 255 bytes and 8 fields, of which loading takes 0.85; 0.8 more with white space. Rejected: counting
brackets instead of the lists (0.35 more); thousands of documents at once (0.5 more, since their objects exceed the
cache); one msgspec.Raw for each top-level field (0.7, but it accepts invalid UTF-8, 1e999 and duplicate keys, and
closing these gaps costs more than it saves). Other documents (`\\/`, `1.50`) are `checked` one by one. U+FFFD replaces
half of a surrogate pair (`surrogates`), which backends take and orjson does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from shipper.plugin import Fields
from shipper_plugins.data_streams import is_part
from shipper_plugins.surrogates import mended

DEEPEST = 100
"""Levels of a document. orjson loads 1024, but writes 254, and an event may be nested into another object later."""
_MOST_KEYS = 16


def own_streams(lines: Sequence[bytes]) -> list[Fields | None] | None:
    """Returns the `own_stream` of each document; None unless all are valid and can be stored unchanged."""
    try:
        documents: list[Fields] = list(map(orjson.loads, lines))
        written = orjson.dumps(_nested(documents))
    except (ValueError, TypeError):
        return None
    if set(map(type, documents)) != {dict} or not _are_same(lines, written[_LISTS - 1 : 1 - _LISTS]):
        return None
    keys = [key for key in set[str]().union(*documents) if _names_stream(key)]
    if len(keys) > _MOST_KEYS:  # each is searched for in each document
        return None
    return [_members(document, keys) for document in documents] if keys else [None] * len(documents)


def own_stream(document: Fields) -> Fields | None:
    """Returns the members of a document, nested and dotted, that name its data stream, or None."""
    return _members(document, [key for key in document if _names_stream(key)])


def _members(document: Fields, keys: Sequence[str]) -> Fields | None:
    return {key: document[key] for key in keys if key in document} or None


def _names_stream(key: str) -> bool:
    return key == "data_stream" or key.startswith("data_stream.")


def addressed(line: bytes, own: Fields, stream: Fields) -> bytes:
    """Returns a valid document with this `data_stream` merged into its own; other members stay unchanged."""
    members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    rest = {key: value for key, value in members.items() if key not in own}
    return msgspec.json.encode({**rest, "data_stream": msgspec.Raw(orjson.dumps(_parts(own) | stream))})


def chosen(own: Fields, otherwise: Fields) -> Fields:
    """Returns the data stream that a document names; a missing or invalid part is that of `otherwise`."""
    parts = _parts(own)
    return {key: parts[key] if is_part(key, parts.get(key)) else part for key, part in otherwise.items()}


def _parts(own: Fields) -> Fields:
    nested = own.get("data_stream")
    dotted = {key.removeprefix("data_stream."): value for key, value in own.items() if key != "data_stream"}
    return (nested if isinstance(nested, dict) else {}) | dotted


def _are_same(lines: Sequence[bytes], written: bytes) -> bool:
    """Returns whether the lines equal `written`, white space aside, and can be stored unchanged."""
    received = b"[%b]" % b",".join(lines)
    return received == written or (
        all(map(_is_storable, lines)) and msgspec.json.format(received, indent=-1) == written
    )


def _is_storable(line: bytes) -> bool:
    """Returns whether a valid document is one row as it stands; the input `http` reads it over several lines, too."""
    return line.startswith((b'{"', b"{}")) and b"\n" not in line and b"\r" not in line


def _nested(value: Any) -> Any:
    for _ in range(_LISTS - 1):
        value = [value]
    return value


def _written_levels() -> int:
    value: list[Any] = []
    levels = 0
    with suppress(TypeError):
        while levels < 1024:
            orjson.dumps(value)
            value, levels = [value], levels + 1
    return levels


_LISTS = _written_levels() - DEEPEST


def checked(line: bytes) -> tuple[bytes, Fields | None]:
    """Returns the document in a form that can be stored, and its `own_stream`.

    Raises ValueError for an invalid document; the message never quotes it.
    """
    line, document = _loaded(line)
    if type(document) is not dict:
        raise ValueError("the document is not a JSON object")
    if line.count(b"{") + line.count(b"[") > DEEPEST or orjson.dumps(document) != line:
        line = _checked_closely(line, document)
    return line, own_stream(document)


def _loaded(line: bytes) -> tuple[bytes, Any]:
    """Returns what is stored of a line, and its value; raises ValueError."""
    with suppress(ValueError):
        return line, orjson.loads(line)
    line = mended(line)
    try:
        return line, orjson.loads(line)
    except ValueError:
        raise ValueError("the document is not valid JSON") from None


def _checked_closely(line: bytes, document: Fields) -> bytes:
    if line.count(b"{") + line.count(b"[") > DEEPEST and _is_deeper(document):
        raise ValueError(f"the document is nested more than {DEEPEST} levels deep")
    if msgspec.json.format(line, indent=-1) != orjson.dumps(document):
        _refuse_duplicates(line)
    return line if _is_storable(line) else msgspec.json.format(line, indent=-1)


def _refuse_duplicates(line: bytes) -> None:
    try:
        _strict.decode(line.decode())
    except (ValueError, RecursionError):
        raise ValueError("the document has the same key twice in one object") from None


def _is_deeper(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a duplicate key")


_strict = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)
