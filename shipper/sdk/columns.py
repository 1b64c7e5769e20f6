"""Rows by columns: thousands of small texts put together, escaped and counted without a step of Python for each.

A column is one `bytes` that stands in every row, or a list with one for each row. On these few functions rests the
speed of the program, so each stands here with what it costs and what was refused (ns a row, 150 bytes a line):

    join        104   one list of cells, filled by slices; `chain(zip(…))` 190, `format % tuple` 142
    escaped     153   one JSON string for all lines; its line feeds stand as DEL, which JSON leaves alone, so that the
                      text stays ASCII (a private-use character makes it two bytes wide: 347); a call for each: 900
    offsets     165   `map(str, …)` and a lambda in `accumulate`: 283
    line_count   22   `bytes.count` looks at each byte: 65
    encoded     430   one call for many objects; a call for each, of objects with 8 fields: 1,700 (orjson begins with
                      1024 bytes for each result: fresh pages, where they are kept)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, count
from operator import add
from typing import Any

import orjson

Column = bytes | Sequence[bytes]

_DELETE = "\x7f"
_PRIVATE = "\ue000"


def join(rows: int, *columns: Column) -> bytes:
    """Concatenate columns row by row; raises ValueError if a list has not one element for each row."""
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
    """Each line as it stands between the quotes of a JSON string; `lines` is UTF-8, each line ended by a line feed."""
    if not lines:
        return []
    if b"\x7f" not in lines:
        return _escaped(lines[:-1].replace(b"\n", b"\x7f").decode(), _DELETE)
    parts = _escaped(lines[:-1].decode().replace("\n", _PRIVATE), _PRIVATE)
    return parts if len(parts) == line_count(lines) else [orjson.dumps(line)[1:-1] for line in _texts(lines)]


def _escaped(text: str, separator: str) -> list[bytes]:
    return orjson.dumps(text)[1:-1].split(separator.encode())


def _texts(lines: bytes) -> list[str]:
    return lines[:-1].decode().split("\n")


def quoted(texts: Sequence[str]) -> list[bytes]:
    """Each text as it stands between the quotes of a JSON string."""
    parts = _escaped(_DELETE.join(texts), _DELETE)
    return parts if len(parts) == len(texts) else [orjson.dumps(text)[1:-1] for text in texts]


def encoded(objects: Sequence[Any], default: Callable[[Any], Any] | None = None) -> list[bytes]:
    """Each object as JSON; raises TypeError if orjson cannot write one. `default` is asked what a value is as JSON."""
    cells = [_DELETE] * (2 * len(objects))
    cells[::2] = objects
    try:
        parts = orjson.dumps(cells[:-1], default)[1:-1].split(b',"%b",' % _DELETE.encode()) if cells else []
    except TypeError:  # it may be one level too deep in this list alone
        parts = []
    return parts if len(parts) == len(objects) else [orjson.dumps(one, default) for one in objects]


def numerals(numbers: Iterable[int]) -> list[bytes]:
    """Each number in decimal."""
    text = orjson.dumps(list(numbers))[1:-1]
    return text.split(b",") if text else []


def offsets(lines: bytes, first: int, gap: int) -> list[int]:
    """Where each line begins in its source, if the first begins at `first` and `gap` bytes ended each."""
    if not lines:
        return []
    ends = accumulate(map(len, lines.split(b"\n")[:-2]), initial=first)
    return list(map(add, ends, count(0, gap)))


def line_count(lines: bytes) -> int:
    """How many line feeds there are."""
    return len(lines) - len(lines.replace(b"\n", b""))
