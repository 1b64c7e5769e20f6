"""Reads lines of separated values (RFC 4180), for `parse` of `csv`.

    columns: [time, user.name, "", amount]         17:00,ann,x,"1,5"    time: 17:00, user.name: ann, amount: 1,5

A line has one value for each column; a column without a name is skipped, and so is an empty value. A line with another
number of values has no fields, since one missing separator would move all values behind it. Lines without quotes are
split; any others are read by Python's `csv`, in strict mode.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from shipper.plugin import Fields

_NEVER = frozenset('"\\\r\n')


def check_separator(text: str) -> None:
    """Raises ValueError unless the text can separate values."""
    if len(text) != 1 or text in _NEVER or not text.isascii():
        raise ValueError('a separator is one ASCII character, such as ";" or "\\t", and no quote')


def read(lines: Sequence[bytes], columns: Sequence[str], separator: str) -> list[Fields | None]:
    """Returns the values of each line of UTF-8, by the names of their columns; None for a line that does not fit."""
    texts = [line.decode() for line in lines]
    return [
        _fields(columns, row) if row is not None and len(row) == len(columns) else None
        for row in _rows(texts, separator)
    ]


def _rows(texts: Sequence[str], separator: str) -> Sequence[Sequence[str] | None]:
    whole = "\n".join(texts)
    if '"' not in whole and "\r" not in whole and whole.count("\n") == len(texts) - 1:
        return [text.split(separator) for text in texts]
    try:
        rows = list(csv.reader(texts, delimiter=separator, strict=True))
    except csv.Error:
        rows = []
    if len(rows) == len(texts):  # each row begins and ends with its line
        return rows
    return [_row(text, separator) for text in texts] if len(texts) > 1 else [None]


def _row(text: str, separator: str) -> Sequence[str] | None:
    (row,) = _rows([text], separator)
    return row


def _fields(columns: Sequence[str], row: Sequence[str]) -> Fields | None:
    return {name: value for name, value in zip(columns, row, strict=True) if name and value} or None
