"""PUBLIC: rows by columns: joins, escapes and counts thousands of small texts without a step of Python for each.

A column is one `bytes` for all rows, or a list with one for each row. The speed of the program depends on these
functions; here are their costs, and those of rejected ways (ns a row, 150 bytes a line):

    join        104   one list of cells, filled by slices; `chain(zip(…))` 190, `format % tuple` 142
    escaped     153   one JSON string for all lines; its line feeds are DEL, which JSON does not escape, so that the
                      text stays ASCII (a private-use character makes it two bytes wide: 347); a call for each: 900
    escaped_rows 101  the end of a row is put behind each line before it is cut off, and not when all is joined
    rows         25   the C library looks for line feeds (of 550 bytes 54); `split` looks at each byte: 56 (205)
    offsets      55   lines are let go once they are measured; all lines of `split`: 133
    line_count   22   `bytes.count` looks at each byte: 65
    encoded     430   one call for many objects; a call for each, of objects with 8 fields: 1,700 (orjson begins with
                      1024 bytes for each result: fresh pages, where they are kept)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from itertools import accumulate, count
from operator import add
from typing import Any

import orjson

Column = bytes | Sequence[bytes]

_DELETE = "\x7f"
_PRIVATE = "\ue000"
_EMPTY = b"{}\n"


def join(rows: int, *columns: Column) -> bytes:
    """Returns the columns, concatenated row by row; raises ValueError if a list has not one element for each row."""
    row: list[bytes] = []
    lists: dict[int, Sequence[bytes]] = {}
    constant = False
    for column in columns:
        if not isinstance(column, bytes):
            lists[len(row)] = column
            row.append(b"")
        elif constant:
            row[-1] += column
        else:
            row.append(column)
        constant = isinstance(column, bytes)
    cells: list[Any] = row * rows
    for place, column in lists.items():
        if len(column) != rows:
            raise ValueError(f"a column of {len(column)} for {rows} rows")
        cells[place :: len(row)] = column
    return b"".join(cells)


def escaped(lines: bytes) -> list[bytes]:
    """Returns each line escaped for a JSON string, without quotes; `lines` is UTF-8, each line ended by a line feed."""
    if not lines:
        return []
    if b"\x7f" not in lines:
        return _escaped(lines[:-1].replace(b"\n", b"\x7f").decode(), _DELETE)
    parts = _escaped(lines[:-1].decode().replace("\n", _PRIVATE), _PRIVATE)
    return parts if len(parts) == line_count(lines) else [orjson.dumps(line)[1:-1] for line in _texts(lines)]


def escaped_rows(lines: bytes, end: bytes) -> list[bytes]:
    """Returns each line as `escaped`, followed by `end`, which has a line feed at its end and nowhere else."""
    if b"\x7f" in lines:
        return [line + end for line in escaped(lines)]
    return rows(orjson.dumps(lines.replace(b"\n", b"\x7f").decode())[1:-1].replace(b"\x7f", end))


def _escaped(text: str, separator: str) -> list[bytes]:
    return orjson.dumps(text)[1:-1].split(separator.encode())


def _texts(lines: bytes) -> list[str]:
    return lines[:-1].decode().split("\n")


def quoted(texts: Sequence[str]) -> list[bytes]:
    """Returns each text escaped for a JSON string, without quotes."""
    parts = _escaped(_DELETE.join(texts), _DELETE)
    return parts if len(parts) == len(texts) else [orjson.dumps(text)[1:-1] for text in texts]


def encoded(objects: Sequence[Any], default: Callable[[Any], Any] | None = None) -> list[bytes]:
    """Returns each object as JSON; raises TypeError if orjson cannot write one. `default` converts other values."""
    cells = [_DELETE] * (2 * len(objects))
    cells[::2] = objects
    try:
        parts = orjson.dumps(cells[:-1], default)[1:-1].split(b',"%b",' % _DELETE.encode()) if cells else []
    except TypeError:  # perhaps it is too deep only as an item of this list
        parts = []
    return parts if len(parts) == len(objects) else [orjson.dumps(one, default) for one in objects]


def begun(documents: Sequence[bytes], before: bytes) -> tuple[Column, ...]:
    """Returns columns of JSON objects, each with a line feed, that begin with other fields.

    `before` is an object with these, without its last brace.
    """
    if _EMPTY in documents:
        return (before, [b"," + own[1:] if own != _EMPTY else b"}\n" for own in documents])
    return (before + b",", [own[1:] for own in documents])


def begun_each(documents: Sequence[bytes], before: Sequence[bytes]) -> tuple[Column, ...]:
    """Returns columns of JSON objects as `begun`, with other fields for each, or none."""
    if _EMPTY in documents or b"{" in before:
        return ([_begun(text, own) for text, own in zip(before, documents, strict=True)],)
    return (before, [b"," + own[1:] for own in documents])


def _begun(before: bytes, document: bytes) -> bytes:
    if document == _EMPTY:
        return before + b"}\n"
    return document if before == b"{" else before + b"," + document[1:]


def numerals(numbers: Iterable[int]) -> list[bytes]:
    """Returns each number in decimal."""
    text = orjson.dumps(list(numbers))[1:-1]
    return text.split(b",") if text else []


def offsets(lines: bytes, first: int, gap: int) -> list[int]:
    """Returns the offset of each line in its source, if the first begins at `first` and `gap` bytes end each."""
    *begins, _ = accumulate(map(len, BytesIO(lines)), initial=first)
    return begins if gap == 1 else list(map(add, begins, count(0, gap - 1)))


def rows(lines: bytes) -> list[bytes]:
    """Returns the lines, each with its line feed."""
    return BytesIO(lines).readlines()


def line_count(lines: bytes) -> int:
    """Returns the number of line feeds."""
    return len(lines) - len(lines.replace(b"\n", b""))
