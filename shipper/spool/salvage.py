"""Copies the rows of one table that can be read, whatever the damage.

SQLite reads a table in the order of its key, and raises where a page is damaged. A table that is not read in one pass
is read from both ends; if its key is a whole number, what is left between them is halved until the damage is enclosed:

    ████████████████ xx ████████ x █████     forward until it raises, backward until it raises,
    ───────────────> ·············· <───     then the halves of the rest, from both ends again

Of the rows of 470 files that needed a repair (bad pages and sectors, flipped bytes, cuts), this saves, in the median
and on average:

    one pass, up to the first damage     92.6 %    79.0 %
    both ends                            99.58 %   86.9 %
    both ends, and halves                99.71 %   90.0 %

Rejected: halves of keys of several columns too, and a file for the readable parts of lost rows. For twice the code it
saves 99.71 % and 92.9 %; the gain is in files with a hundred damages or more.

Rows are moved as they are found: only those that are reachable through their table. A search of all pages would bring
back deleted rows, and settled events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from shipper.spool import database

Key = tuple[Any, ...]
Row = tuple[Any, ...]

_LARGEST = 2**63 - 1
_ALL = -1
"""As the limit of a query."""
_MOST_STEPS = 10_000
"""The most stretches and false rows of one table: damage at its root encloses every number that a key can have, and
from some damaged pages SQLite reads rows again and again, in effect without end."""


class Table(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    found: tuple[str, ...]
    """The columns of the old table; where names are damaged, their places count."""
    key: tuple[str, ...]
    has_rowid: bool

    def pairs(self) -> list[tuple[str, str]]:
        """Returns the pairs of old and new columns."""
        if len(self.found) == len(self.columns):
            return list(zip(self.found, self.columns, strict=True))
        return [(name, name) for name in self.columns if name in self.found]


class _Stretch(NamedTuple):
    """The keys between two others; None: an end of the table."""

    low: Key | None = None
    high: Key | None = None

    def has(self, key: Key) -> bool:
        """Whether a key is one of them; on damaged pages it may not be, and be of any type."""
        try:
            return (self.low is None or self.low < key) and (self.high is None or key < self.high)
        except TypeError:
            return False

    def room(self) -> int:
        """Returns how many keys there can be, where keys are whole numbers from 0."""
        return self._end() - self._begin() - 1

    def halves(self) -> tuple[_Stretch, _Stretch]:
        """Returns the upper half and the lower one, where keys are whole numbers."""
        middle = (self._begin() + self._end()) // 2
        return _Stretch((middle,), self.high), _Stretch(self.low, (middle + 1,))

    def _begin(self) -> int:
        return self.low[0] if self.low else -1

    def _end(self) -> int:
        return self.high[0] if self.high else _LARGEST


class Salvage:
    """Copies the rows of one table that can be read.

    `patient`: raises where the disk fails to read, since the next attempt may succeed.
    """

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, table: Table, *, patient: bool) -> None:
        self._source, self._target, self._table, self._patient = source, target, table, patient
        pairs = table.pairs()
        renamed = {new: old for old, new in pairs}
        self._key = [quoted(renamed.get(name, name)) for name in table.key]
        self._old, new = [quoted(old) for old, _ in pairs], [quoted(new) for _, new in pairs]
        if table.key == ("rowid",):
            self._old, new = ["rowid", *self._old], ["rowid", *new]
        marks = ", ".join("?" * len(new))
        self._insertion = f"INSERT INTO {quoted(table.name)} ({', '.join(new)}) VALUES ({marks})"
        self.lost = 0
        """How many rows cannot be read, at most; unless all are counted, how many stretches of them."""
        self.is_counted = True
        self._is_damaged = False
        self._steps = _MOST_STEPS

    def run(self) -> None:
        """Moves the table: in one pass, or by stretches if that meets damage."""
        if not self._table.found:
            self._lose(is_counted=False)
        elif not self._walked(_Stretch(), False, _ALL)[1]:
            self._target.execute(f"DELETE FROM {quoted(self._table.name)}")
            self._is_damaged, self.lost, self.is_counted = True, 0, True
            self._move_stretches()
            if not self.lost:
                self._lose(is_counted=False)

    def _move_stretches(self) -> None:
        stretches = [_Stretch()]
        while stretches and self._may_go_on():
            rest = self._moved(stretches.pop())
            stretches += () if rest is None else self._divided(rest)
        if stretches:
            self._lose(is_counted=False)

    def _moved(self, stretch: _Stretch) -> _Stretch | None:
        """Moves rows from both ends of a stretch; returns the rest of it, or None.

        A cursor reads a row ahead, and fails for both: so the last one is read again, alone.
        """
        for backward in (False, True):
            for limit in (_ALL, 1):
                stretch, is_done = self._walked(stretch, backward, limit)
                if is_done:
                    return None
        return stretch

    def _walked(self, stretch: _Stretch, backward: bool, limit: int) -> tuple[_Stretch, bool]:
        """Moves rows from one end of a stretch; returns the rest of it, and whether these were all."""
        width = len(self._key)
        for row in self._rows(stretch, backward, limit):
            key = row[:width]
            if row and stretch.has(key) and (not self._is_damaged or self._is_found(row)):
                self._insert(row[width:])
                stretch = stretch._replace(high=key) if backward else stretch._replace(low=key)
            elif not (row and self._is_passed()):
                return stretch, False
        return stretch, limit == _ALL

    def _is_passed(self) -> bool:
        """Whether a false row is passed over; its damaged key may hide others."""
        self.is_counted = False
        return self._is_damaged and self._may_go_on()

    def _may_go_on(self) -> bool:
        """Takes a step of those that one table may cost."""
        self._steps -= 1
        return self._steps > 0

    def _divided(self, rest: _Stretch) -> tuple[_Stretch, ...]:
        """Returns the parts of a stretch that are read next; one that has none is lost."""
        if not self._table.has_rowid:
            self._lose(is_counted=False)
        elif rest.room() > 1:
            return rest.halves()
        else:
            self.lost += rest.room()
        return ()

    def _rows(self, stretch: _Stretch, backward: bool, limit: int) -> Iterator[Row]:
        """Yields the rows of a stretch, each after its key; one without values where the next cannot be read."""
        columns, marks = ", ".join(self._key), ", ".join("?" * len(self._key))
        bounds = [(key, operator) for key, operator in zip(stretch, "><", strict=True) if key is not None]
        where = " AND ".join(f"({columns}) {operator} ({marks})" for _, operator in bounds) or "true"
        order = "ORDER BY " + ", ".join(f"{column} DESC" if backward else column for column in self._key)
        try:
            yield from self._select(where, [value for key, _ in bounds for value in key], f"{order} LIMIT {limit}")
        except database.UNREADABLE as error:
            self._tolerate(error)
            yield ()

    def _is_found(self, row: Row) -> bool:
        """Whether a look-up by its key finds this row: a damaged page also shows false ones."""
        where = " AND ".join(f"{column} = ?" for column in self._key)
        try:
            return bool(self._select(where, row[: len(self._key)]).fetchone() == row)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return False

    def _tolerate(self, error: Exception) -> None:
        if self._patient and database.is_io(error):
            raise error

    def _select(self, where: str, values: Sequence[Any], order: str = "") -> sqlite3.Cursor:
        table = quoted(self._table.name) + (" NOT INDEXED" if self._table.has_rowid else "")
        columns = ", ".join([*self._key, *self._old])
        return self._source.execute(f"SELECT {columns} FROM {table} WHERE {where} {order}", values)

    def _insert(self, row: Row) -> None:
        try:
            self._target.execute(self._insertion, row)
        except sqlite3.IntegrityError:
            self._lose()  # damaged, such as a row without a value

    def _lose(self, *, is_counted: bool = True) -> None:
        self.lost += 1
        self.is_counted = self.is_counted and is_counted


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
