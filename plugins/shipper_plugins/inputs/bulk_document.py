"""The documents of a bulk request: which of them are sound, and what they say of themselves. No I/O.

A document is taken only if orjson loads it (what loads it later is orjson too, so an event that is stored can never
break a processor), if it has no more than `DEEPEST` levels, and if no object in it, at any depth, has the same key
twice. One trick answers nearly all of that: if orjson writes what it read as the same bytes again, white space aside,
the document is valid and without duplicate keys.

`own_streams` asks that of hundreds of documents in one call, inside so many lists that orjson refuses those which are
too deep: 1.1 µs for 255 bytes and 8 fields, of which loading them takes 0.85; 0.8 more where there is white space.
Refused: counting brackets instead of the lists (0.35 more); thousands of documents at once (0.5 more, as their objects
leave the cache); one msgspec.Raw for each top-level field (0.7, but it lets invalid UTF-8, 1e999 and duplicate keys
through, and closing these gaps costs more than it saves). Others (`\\/`, `1.50`) are looked at one by one, `checked`.
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

DEEPEST = 100
"""Levels of a document. orjson loads 1024, but writes 254, and others wrap an event into one of their own."""
_MOST_KEYS = 16


def own_streams(lines: Sequence[bytes]) -> list[Fields | None] | None:
    """The `own_stream` of each document; None unless all are sound and may be stored as they stand."""
    try:
        documents: list[Fields] = list(map(orjson.loads, lines))
        written = orjson.dumps(_nested(documents))
    except (ValueError, TypeError):
        return None
    if set(map(type, documents)) != {dict} or not _are_same(lines, written[_LISTS - 1 : 1 - _LISTS]):
        return None
    keys = [key for key in set[str]().union(*documents) if _says_stream(key)]
    if len(keys) > _MOST_KEYS:  # each is looked for in each document
        return None
    return [_members(document, keys) for document in documents] if keys else [None] * len(documents)


def own_stream(document: Fields) -> Fields | None:
    """The members of a document, nested and dotted, that name its data stream; None where it has none."""
    return _members(document, [key for key in document if _says_stream(key)])


def _members(document: Fields, keys: Sequence[str]) -> Fields | None:
    return {key: document[key] for key in keys if key in document} or None


def _says_stream(key: str) -> bool:
    return key == "data_stream" or key.startswith("data_stream.")


def addressed(line: bytes, own: Fields, stream: Fields) -> bytes:
    """A sound document with this `data_stream` over its own one; every other member stays as it was written."""
    members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    rest = {key: value for key, value in members.items() if key not in own}
    return msgspec.json.encode({**rest, "data_stream": msgspec.Raw(orjson.dumps(_said(own) | stream))})


def chosen(own: Fields, otherwise: Fields) -> Fields:
    """The data stream that a document itself says; a part that is missing or cannot be one is that of `otherwise`."""
    said = _said(own)
    return {key: said[key] if is_part(key, said.get(key)) else part for key, part in otherwise.items()}


def _said(own: Fields) -> Fields:
    nested = own.get("data_stream")
    dotted = {key.removeprefix("data_stream."): value for key, value in own.items() if key != "data_stream"}
    return (nested if isinstance(nested, dict) else {}) | dotted


def _are_same(lines: Sequence[bytes], written: bytes) -> bool:
    """Whether that is what was written, white space aside, and may be stored."""
    came = b"[%b]" % b",".join(lines)
    return came == written or (all(map(_may_stand, lines)) and msgspec.json.format(came, indent=-1) == written)


def _may_stand(line: bytes) -> bool:
    return line.startswith((b'{"', b"{}")) and b"\r" not in line


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
    """The document as it may be stored, and its own `data_stream` (`own_stream`).

    Raises ValueError for what is not to be stored; its words never quote the document.
    """
    try:
        document = orjson.loads(line)
    except ValueError:
        raise ValueError("the document is not valid JSON") from None
    if type(document) is not dict:
        raise ValueError("the document is not a JSON object")
    if line.count(b"{") + line.count(b"[") > DEEPEST or orjson.dumps(document) != line:
        line = _checked_closely(line, document)
    return line, own_stream(document)


def _checked_closely(line: bytes, document: Fields) -> bytes:
    if line.count(b"{") + line.count(b"[") > DEEPEST and _is_deeper(document):
        raise ValueError(f"the document is nested more than {DEEPEST} levels deep")
    if msgspec.json.format(line, indent=-1) != orjson.dumps(document):
        _refuse_duplicates(line)
    return line if _may_stand(line) else msgspec.json.format(line, indent=-1)


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
        raise ValueError("a key stands here twice")


_strict = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)
