"""Reads a damaged table, row by row.

SQLite reads a table in the order of its key and raises where a page is damaged. So each table is read from both ends,
and the range between them is halved by key until the damage is enclosed:

    ████████████████ xx ████████ x █████     forward until it raises, backward until it raises,
    ───────────────> ·············· <───     then the middle of the rest, from both ends again

A row with a readable key and an unreadable body is lost alone; its readable parts go to a quarantine file (sealed bytes
stay sealed). A range of keys that cannot be looked up is a *gap*: the number of its rows is unknown, so the report
names its keys. Damaged pages also show false rows: in a table that has shown damage, a row counts only if a look-up by
its key finds it.

Only rows that are reachable through their table are moved. Searching all pages for rows would restore deleted ones, and
settled events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shipper.spool import database
from shipper.spool.report import Key, Remains, Report

Row = tuple[Any, ...]

_LARGEST = 2**63 - 1
_PROBES = 20_000
_STRAYS = 3000
"""Rows out of order in one walk: more than a damaged page can hold. For some damaged pages SQLite returns rows again
and again, in effect without end."""
_LEADS_ASTRAY = 100
"""The cost in probes of a walk that met so many."""


@dataclass(frozen=True, slots=True)
class Table:
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


@dataclass(frozen=True, slots=True)
class _Low:
    """The lower end of a range of keys; the upper end is a key (or a prefix of one) outside of it."""

    key: Key
    included: bool


class _Unwritable(Exception):
    """The new database failed, not the old one."""

    def __init__(self, cause: sqlite3.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Salvage:
    """Copies the readable rows of one table."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        table: Table,
        remains: Remains,
        report: Report,
        *,
        patient: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._table = table
        self._remains = remains
        self._report = report
        self._patient = patient
        self._probes = 0
        pairs = table.pairs()
        renamed = {new: old for old, new in pairs}
        self._old_key = [quoted(renamed.get(name, name)) for name in table.key]
        self._old = [quoted(old) for old, _ in pairs]
        self._new = [quoted(new) for _, new in pairs]
        if table.key == ("rowid",):
            self._old, self._new = ["rowid", *self._old], ["rowid", *self._new]
        marks = ", ".join("?" * len(self._new))
        self._insertion = f"INSERT INTO {quoted(table.name)} ({', '.join(self._new)}) VALUES ({marks})"
        report.rows[table.name] = 0

    def run(self) -> None:
        """Moves the table: in one pass, or by ranges if that meets damage."""
        try:
            if not self._table.found:
                self._gap(None, None)
            elif not self._move_all():
                self._target.execute(f"DELETE FROM {quoted(self._table.name)}")
                self._report.rows[self._table.name] = 0
                self._move_stretches()
        except _Unwritable as error:
            raise error.cause from None

    def _move_all(self) -> bool:
        """Moves the rows in one pass; returns False where one cannot be read, or is out of order."""
        last: _Low | None = None
        try:
            for key, row in self._rows(None, backward=False):
                if not (_inside(last, key, None) and self._insert(row)):
                    return False
                last = _Low(key, False)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return False
        return True

    def _move_stretches(self) -> None:
        """Reads from both ends, then halves the rest, lower half first."""
        stretches: list[tuple[_Low | None, Key | None]] = [(None, None)]
        while stretches:
            low, high, done = self._narrow(*stretches.pop())
            if done:
                continue
            middle = _middle(low, high, len(self._table.key)) if self._probes < _PROBES else None
            if middle is None:
                self._gap(low, high)
            else:
                stretches += [(_Low(middle, True), high), (low, middle)]

    def _narrow(self, low: _Low | None, high: Key | None) -> tuple[_Low | None, Key | None, bool]:
        """Moves rows from both ends of a range; returns the rest of it, and whether it is empty."""
        for backward in (False, True):
            while self._can_seek(low, high, backward):
                last, done = self._walk(low, high, backward)
                low, high = _beyond(last, low, high, backward)
                if done:
                    return low, high, True
                key = self._step(low, high, backward)
                low, high = _beyond(key, low, high, backward)
                if key is None:
                    break
        return low, high, False

    def _can_seek(self, low: _Low | None, high: Key | None, backward: bool) -> bool:
        """Whether SQLite can seek to this end of a range."""
        self._probes += 1
        try:
            self._first(self._old_key, low, high, backward)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return False
        return True

    def _walk(self, low: _Low | None, high: Key | None, backward: bool) -> tuple[Key | None, bool]:
        """Moves rows until one cannot be read; returns the key of the last, and whether all were moved.

        The far end is not a condition of the query: a damaged key beyond it would end the walk too early.
        """
        last, strayed, strays = None, False, 0
        try:
            for key, row in self._rows(high if backward else low, backward=backward):
                near = _inside(None, key, high) if backward else _inside(low, key, None)
                if not (near and self._is_found(key, row)):
                    strayed, strays = True, strays + 1
                    if strays > _STRAYS:
                        self._probes += _LEADS_ASTRAY
                        return last, False
                    continue
                if strayed:
                    self._gap(*((_Low(key, False), high) if backward else (low, key)))
                    strayed = False
                if not _inside(low, key, high):
                    return last, True
                self._move(key, row)
                last = key
                low, high = _beyond(key, low, high, backward)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return last, False
        if strayed:
            self._gap(low, high)
        return last, True

    def _step(self, low: _Low | None, high: Key | None, backward: bool) -> Key | None:
        """Moves or loses the row that stopped a walk, or the one before: a cursor reads one row ahead, and fails for
        both."""
        width = len(self._old_key)
        try:
            row = self._first([*self._old_key, *self._old], low, high, backward)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return self._lose_next(low, high, backward)
        if row is None or not (_inside(low, row[:width], high) and self._is_found(row[:width], row[width:])):
            return None
        self._move(row[:width], row[width:])
        return row[:width]

    def _move(self, key: Key, row: Row) -> None:
        if not self._insert(row):
            self._remains.add(self._table.name, key, dict(zip(self._new, row, strict=True)))
            self._count_lost()

    def _insert(self, row: Row) -> bool:
        """Inserts a row; returns False if the new table refuses it, such as a damaged one without a value."""
        try:
            self._target.execute(self._insertion, row)
        except sqlite3.IntegrityError:
            return False
        except sqlite3.Error as error:
            raise _Unwritable(error) from error
        self._report.rows[self._table.name] += 1
        return True

    # -- reading -------------------------------------------------------------------------------------------------------

    def _rows(self, start: _Low | Key | None, *, backward: bool) -> Iterator[tuple[Key, Row]]:
        width = len(self._old_key)
        low, high = (start, None) if isinstance(start, _Low) else (None, start)
        for row in self._select([*self._old_key, *self._old], low, high, backward):
            yield row[:width], row[width:]

    def _first(self, wanted: list[str], low: _Low | None, high: Key | None, backward: bool) -> Row | None:
        row: Row | None = self._select(wanted, low, high, backward, limit=True).fetchone()
        return row

    def _is_found(self, key: Key, row: Row) -> bool:
        """Whether a look-up by its key finds this row: a damaged page also shows false rows."""
        try:
            return bool(self._look_up(self._old, key).fetchone() == row)
        except database.UNREADABLE as error:
            self._tolerate(error)
            return False

    def _look_up(self, wanted: list[str], key: Key) -> sqlite3.Cursor:
        where = " AND ".join(f"{column} = ?" for column in self._old_key)
        return self._source.execute(f"SELECT {', '.join(wanted)} FROM {quoted(self._table.name)} WHERE {where}", key)

    def _select(
        self, wanted: list[str], low: _Low | None, high: Key | None, backward: bool, *, limit: bool = False
    ) -> sqlite3.Cursor:
        conditions: list[str] = []
        values: list[Any] = []
        if low is not None:
            conditions.append(self._compared(low.key, ">=" if low.included else ">"))
            values += low.key
        if high is not None:
            conditions.append(self._compared(high, "<"))
            values += high
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        order = ", ".join(f"{column} DESC" if backward else column for column in self._old_key)
        table = quoted(self._table.name) + (" NOT INDEXED" if self._table.has_rowid else "")
        query = f"SELECT {', '.join(wanted)} FROM {table} {where} ORDER BY {order}"
        return self._source.execute(f"{query} LIMIT 1" if limit else query, values)

    def _compared(self, key: Key, operator: str) -> str:
        columns, marks = ", ".join(self._old_key[: len(key)]), ", ".join("?" * len(key))
        return f"({columns}) {operator} ({marks})"

    def _tolerate(self, error: Exception) -> None:
        if self._patient and database.is_io(error):
            raise error

    # -- losses --------------------------------------------------------------------------------------------------------

    def _lose_next(self, low: _Low | None, high: Key | None, backward: bool) -> Key | None:
        """Counts the unreadable row at an end of a range as lost, if its key is known."""
        try:
            key = self._first(self._old_key, low, high, backward)
            if (
                key is None
                or not _inside(low, key, high)
                or self._look_up(self._old_key, key).fetchone() != key
                or self._is_readable(key)
            ):
                return None
        except database.UNREADABLE as error:
            self._tolerate(error)
            return None
        columns = {new.strip('"'): self._column(old, key) for old, new in zip(self._old, self._new, strict=True)}
        self._remains.add(self._table.name, key, columns)
        self._count_lost()
        return key

    def _is_readable(self, key: Key) -> bool:
        """Whether the row with this key can be read; then it is not the lost one."""
        try:
            self._look_up(self._old, key).fetchone()
        except database.UNREADABLE as error:
            self._tolerate(error)
            return False
        return True

    def _column(self, column: str, key: Key) -> Any:
        try:
            return self._look_up([column], key).fetchone()[0]
        except (*database.UNREADABLE, TypeError):
            return self._beginning(column.strip('"'), key)

    def _beginning(self, column: str, key: Key) -> bytes:
        """Returns the bytes of a body up to the damage."""
        read = bytearray()
        try:
            with self._source.blobopen(self._table.name, column, key[0], readonly=True) as blob:
                while chunk := blob.read(4096):
                    read += chunk
        except (*database.UNREADABLE, TypeError):
            pass
        return bytes(read)

    def _gap(self, low: _Low | None, high: Key | None) -> None:
        if low and not low.included and high == (*low.key[:-1], _following(low.key[-1])):
            return
        gaps = self._report.gaps.setdefault(self._table.name, [])
        after = low.key if low else None
        if gaps and gaps[-1][1] == after and after is not None:
            gaps[-1] = (gaps[-1][0], high)
            return
        gaps.append((after, high))
        self._count_lost()

    def _count_lost(self) -> None:
        self._report.lost[self._table.name] += 1


def _middle(low: _Low | None, high: Key | None, width: int) -> Key | None:
    """Returns a key between two others, at the first column that has room for one, or None.

    Only whole numbers have a middle; keys below zero are not searched.
    """
    bottom, top = low.key if low else (), high or ()
    for at in range(width):
        below = bottom[at] if at < len(bottom) else -1
        above = top[at] if at < len(top) else _LARGEST
        if not (isinstance(below, int) and isinstance(above, int)):
            return None
        prefix = bottom[:at]
        if above - below >= 2:
            return (*prefix, (below + above) // 2)
        if above == below:
            continue
        if len(top) > at + 1:
            return (*prefix, above)
        if at >= len(bottom):
            return None
        top = ()
    return None


def _following(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else None


def _beyond(key: Key | None, low: _Low | None, high: Key | None, backward: bool) -> tuple[_Low | None, Key | None]:
    """Returns the rest of a range after a row at one of its ends."""
    if key is None:
        return low, high
    return (low, key) if backward else (_Low(key, False), high)


def _inside(low: _Low | None, key: Key, high: Key | None) -> bool:
    """Whether a key lies inside its range; on damaged pages it may not."""
    try:
        above = low is None or key > low.key or (low.included and key[: len(low.key)] == low.key)
        return above and (high is None or key[: len(high)] < high)
    except TypeError:
        return False


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
