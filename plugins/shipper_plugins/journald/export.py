r"""Reads the export format of the journal (https://systemd.io/JOURNAL_EXPORT_FORMATS/). No I/O.

    __CURSOR=s=fd94…          a field of text
    MESSAGE                   one that has line feeds or other bytes: its length, 64 bits little-endian, and the bytes
    \x07\0\0\0\0\0\0\0a\nb…
                              an empty line ends an entry

A field may occur several times. Whoever may log can write fields and entries of hundreds of MiB, so a field is cut at
`MOST_BYTES`, an entry at `MOST_ENTRY`, and what is beyond is skipped without keeping it.

Speed: an entry of text fields is one split and one `dict`, 4 µs for 22 fields. Any other is read field by field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_BYTES = 1 << 20
"""Of a field."""
MOST_ENTRY = 4 << 20
"""Of all fields of an entry."""
_SMALL = 32 << 10
"""An entry of fewer bytes is not begun before it may be whole: each ends with an empty line."""
_SIZE = struct.Struct("<Q")

Value = str | list[str]
Entry = dict[str, Value]
"""The fields of an entry; a list for one that occurs several times."""


def plain(text: bytes) -> Entry | None:
    """Returns the fields of an entry, given without the empty line at its end; None if one of them is not text.

    The name of such a field precedes its bytes, as a line without `=`: so what looks like the end of the entry in them
    misleads nobody.
    """
    lines = text.decode(errors="replace").split("\n")
    pairs: list[Any] = [line.split("=", 1) for line in lines]
    try:
        fields: Entry = dict(pairs)
    except ValueError:
        return None
    return fields if len(fields) == len(lines) else _entry(pairs)


def _entry(pairs: Sequence[tuple[str, str]]) -> Entry:
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


@dataclass(slots=True)
class Exported:
    """Entries out of bytes as they come; `take` makes of one what is returned, or None if a field of it is not text."""

    take: Callable[[bytes], Any] = plain

    _rest: bytes = b""
    _pairs: list[tuple[str, str]] = field(default_factory=list)
    """The fields so far of an entry that is read field by field."""
    _kept: int = 0
    """The bytes of these fields."""
    _skip: int = 0
    """Bytes of a field that are still to be skipped."""
    _is_long_line: bool = False
    """Whether a field of text is skipped up to its line feed."""

    @property
    def held(self) -> int:
        """The bytes so far of the entry that is not complete."""
        return len(self._rest) + self._kept

    def feed(self, chunk: bytes) -> list[Any]:
        """Returns the entries that are complete now: what `take` makes of them, or their fields."""
        data, at, entries = self._rest + chunk, 0, list[Any]()
        while (after := self._step(data, at, entries)) is not None:
            at = after
        self._rest = data[at:]
        return entries

    def _step(self, data: bytes, at: int, entries: list[Any]) -> int | None:
        """Takes an entry, a field, or what is to be skipped; returns where it ends, None if more is needed."""
        if at >= len(data):
            return None
        if self._skip:
            skipped = min(self._skip, len(data) - at)
            self._skip -= skipped
            return at + skipped
        if self._is_long_line:
            end = data.find(b"\n", at)
            self._is_long_line = end < 0
            return end + 1 if end >= 0 else len(data)
        if not self._pairs:
            end = data.find(b"\n\n", at)
            if end < 0 and len(data) - at < _SMALL:
                return None
            if at < end <= at + MOST_BYTES and (entry := self.take(data[at:end])) is not None:
                entries.append(entry)
                return end + 2
        return self._field(data, at, entries)

    def _field(self, data: bytes, at: int, entries: list[Any]) -> int | None:
        end = data.find(b"\n", at, at + MOST_BYTES)
        if end == at:
            self._end_entry(entries)
            return at + 1
        name, is_text, value = data[at : end if end >= 0 else at + MOST_BYTES].partition(b"=")
        if end < 0:
            if len(data) - at < MOST_BYTES:
                return None
            self._is_long_line = True
            self._add(name, value)
            return at + MOST_BYTES
        if is_text:
            self._add(name, value)
            return end + 1
        return self._binary(data, end + 1, name)

    def _binary(self, data: bytes, at: int, name: bytes) -> int | None:
        start = at + _SIZE.size
        if len(data) < start:
            return None
        size: int = _SIZE.unpack_from(data, at)[0]
        kept = min(size, MOST_BYTES)
        if len(data) < start + kept:
            return None
        self._add(name, data[start : start + kept])
        end = start + size + 1
        self._skip = max(0, end - len(data))
        return min(end, len(data))

    def _add(self, name: bytes, value: bytes) -> None:
        value = value[: max(0, MOST_ENTRY - self._kept)]
        self._kept += len(name) + len(value)
        if self._kept <= MOST_ENTRY:
            self._pairs.append((name.decode(errors="replace"), value.decode(errors="replace")))

    def _end_entry(self, entries: list[Any]) -> None:
        if self._pairs:
            entries.append(_entry(self._pairs))
        self._pairs, self._kept = [], 0
