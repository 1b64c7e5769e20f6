"""PUBLIC: documents by columns, of which the bytes are made when somebody asks for them. No I/O.

    fields   {"url": {"path": Cells, "query": Cells}, "message": Cells}     columns, nested as the documents are
    odd      {17: {"message": "…"}}                                         rows that are objects

`Batch.table` returns the events of a batch as a table, and `Batch.tabled` a batch of one. So a parser hands on what it
has found by columns, a condition looks at one column, an edit of a field replaces one, and the chain of processors
writes each document once, at its end. A table is never changed: an edit returns another one with the columns that stay.

A row that cannot be done by columns is odd: it is an object, and is read and changed alone, as `edited` does. In the
columns it has what some other row has, so that each cell is valid. What cannot be done by columns at all raises Unfit,
and whoever wanted it goes through the events one by one.

Both ways have the same result to the byte. So cells are JSON as orjson writes it, fields have one order in all rows,
and no name in a table is dotted. The cell of a row without the field is empty; a group is in each row that has a field
of it. ns a cell: 15 to pick, 200 to 400 to decode, change and encode, each different one once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, Union

import orjson

from shipper.sdk.columns import Column, encoded, escaped, join, line_count, numerals, offsets, rows
from shipper.sdk.fields import Fields, merged

T = TypeVar("T")

_MOST_SHAPES = 64
"""Sequences of names in the documents of a table; a search of each document for each name takes too long beyond."""
_RUN = 256
"""Documents that are objects at once; those of a whole batch would exceed the CPU's cache."""
_DEEP = 100
"""Brackets; orjson writes 254 levels."""
_FEW = 4
"""Rows for each different value from which on equal ones are written once."""
_MISSING = object()


class Unfit(ValueError):
    """It cannot be done by columns."""


class Cells:
    """A column: the JSON of each row's value, or nothing.

    `columns` are parts of it as for `join`: for each row, all of them together are its cell. If it is `sparse`, there
    is one, a list, and an empty cell means that the row has no such field.
    """

    __slots__ = ("_columns", "sparse")

    def __init__(self, *columns: Column | Callable[[], Sequence[Column]], sparse: bool = False) -> None:
        self._columns: tuple[Any, ...] = columns
        self.sparse = sparse

    @property
    def columns(self) -> tuple[Column, ...]:
        """Returns the parts; those that were given as a function are made when they are needed first."""
        if len(self._columns) == 1 and callable(self._columns[0]):
            self._columns = tuple(self._columns[0]())
        return self._columns

    @property
    def constant(self) -> bytes | None:
        """Returns the cell that all rows have; None if they may differ."""
        return b"".join(self.columns) if all(isinstance(one, bytes) for one in self.columns) else None  # type: ignore[arg-type]

    def texts(self, count: int) -> list[bytes]:
        """Returns the cell of each of so many rows."""
        if len(self.columns) == 1 and not isinstance(self.columns[0], bytes):
            return list(self.columns[0])
        return join(count, *self.columns, b"\n").split(b"\n")[:-1]

    def each(self, count: int, make: Callable[[Any], T]) -> list[T]:
        """Returns what `make` makes of the value of each row, of equal ones once; None is also that of no value."""
        if (text := self.constant) is not None:
            return [make(orjson.loads(text))] * count
        texts = self.texts(count)
        different = list(set(texts))
        made = dict(zip(different, map(make, _values(different)), strict=True))
        return list(map(made.__getitem__, texts))

    def changed(self, count: int, change: Callable[[Any], Any]) -> tuple[Cells, list[int]]:
        """Returns the cells with what `change` makes of each value but null, and the rows of which it raises
        ValueError."""
        texts = [self.constant] if self.constant is not None else self.texts(count)
        different = list(set(texts))
        made, refused = _changed(different, _values(different), change)
        if made == different and not refused:
            return self, []
        new = dict(zip(different, made, strict=True))
        left = [place for place, text in enumerate(texts) if text in refused] if refused else []
        if self.constant is not None:
            return Cells(new[texts[0]]), left and list(range(count))
        return Cells(list(map(new.__getitem__, texts)), sparse=self.sparse), left

    def has_null(self, count: int) -> bool:
        """Whether some row has null, which is as good as no value."""
        return self.constant == b"null" if self.constant is not None else b"null" in self.texts(count)

    def may_be_deep(self, count: int) -> bool:
        """Whether some value may have so many levels that more of them could not be written."""
        first = self.columns[0]
        if isinstance(first, bytes) and first.startswith(b'"'):
            return False
        return any(text[:1] in b"[{" and text.count(b"[") + text.count(b"{") > _DEEP for text in self.texts(count))

    def lines(self, count: int) -> bytes:
        """Returns the texts as lines of UTF-8, each with a line feed; raises Unfit if one is no text of one line."""
        texts = self.texts(count)
        if self.sparse or not all(text[:1] == b'"' for text in texts):
            raise Unfit
        block = b"\n".join([text[1:-1] for text in texts])
        if b"\\" in block:
            values = _values(texts)
            block = "\n".join(values).encode()
            if line_count(block) != count - 1:
                raise Unfit
        return block + b"\n"

    def pick(self, positions: Sequence[int]) -> Cells:
        """Returns the cells of these rows."""
        columns = [one if isinstance(one, bytes) else _picked(one, positions) for one in self.columns]
        return Cells(*columns, sparse=self.sparse)


class Lines(Cells):
    """A column of text lines, each ended by a line feed; they are escaped when that is needed."""

    __slots__ = ("_block",)

    def __init__(self, block: bytes) -> None:
        super().__init__(lambda: (b'"', escaped(block), b'"'))
        self._block = block

    def each(self, count: int, make: Callable[[Any], T]) -> list[T]:
        """As of other cells; lines are seldom equal."""
        return list(map(make, self._block[:-1].decode().split("\n")))

    def changed(self, count: int, change: Callable[[Any], Any]) -> tuple[Cells, list[int]]:
        """As of other cells."""
        before = self._block[:-1].decode().split("\n")
        made: list[Any] = []
        refused = []
        for place, text in enumerate(before):
            try:
                made.append(change(text))
            except ValueError:
                made.append(text)
                refused.append(place)
        return self if made == before else Cells(encoded(made)), refused

    def lines(self, count: int) -> bytes:
        """Returns them."""
        return self._block

    def pick(self, positions: Sequence[int]) -> Cells:
        """Returns these lines."""
        return Lines(b"".join(_picked(rows(self._block), positions)))


Node = Union[Cells, "Group"]
Group = dict[str, Node]


@dataclass(frozen=True, slots=True)
class Table:
    """So many documents by columns."""

    count: int
    fields: Group
    odd: Mapping[int, Fields] = field(default_factory=dict)

    @classmethod
    def of_lines(cls, body: bytes, offset: int, gap: int) -> Table:
        """Returns the events of text lines: see `Batch.lines`."""
        places = Cells(lambda: (numerals(offsets(body, offset, gap)),))
        return cls(line_count(body), {"message": Lines(body), "log": {"offset": places}})

    @classmethod
    def of_documents(cls, body: bytes) -> Table:
        """Returns documents; those with other names, or in another order, than the most are odd. Raises Unfit if that
        are many."""
        documents = rows(body)
        runs = [cls._of_run(documents[at : at + _RUN]) for at in range(0, len(documents), _RUN)]
        alike = len({tuple(run.fields) for run in runs}) == 1
        return _strung(runs) if alike else cls._of_run(documents)

    @classmethod
    def _of_run(cls, documents: Sequence[bytes]) -> Table:
        events = list(map(orjson.loads, documents))
        names = list(map(tuple, events))
        order = _order(dict.fromkeys(names))
        fitting = {shape: _is_ordered(shape, order) for shape in set(names)}
        odd = {place: events[place] for place, shape in enumerate(names) if not fitting[shape]}
        if 4 * len(odd) >= len(events):
            raise Unfit
        if odd:
            other = next(place for place, shape in enumerate(names) if fitting[shape])
            events = [events[other] if place in odd else event for place, event in enumerate(events)]
        return cls(len(events), _columns_of(events, order), odd)

    # -- looking into it -------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node | None:
        """Returns the column or the group of a (dotted) name in an `opened` table; None if no row has it."""
        at: Node | None = self.fields
        for key in name.split("."):
            if not isinstance(at, dict):
                return None
            at = at.get(key)
        return at

    def cells(self, name: str) -> Cells | None:
        """Returns the column of a name, as `node`; raises Unfit for a group."""
        found = self.node(name)
        if isinstance(found, dict):
            raise Unfit
        return found

    def opened(self, *names: str) -> Table:
        """Returns the table with columns for the groups above these names, as far as their cells have groups.

        Raises Unfit where some rows have a group and others not, or a list.
        """
        made = self
        for name in names:
            *above, _ = name.split(".")
            for depth in range(1, len(above) + 1):
                group = ".".join(above[:depth])
                found = made.node(group)
                if isinstance(found, Cells) and (columns := _opened(found, self.count)) is not None:
                    made = replace(made, fields=_with(made.fields, above[:depth], columns))
        return made

    def objects(self, positions: Sequence[int]) -> list[Fields]:
        """Returns the events of these rows, as new nested fields."""
        return list(map(orjson.loads, rows(self.pick(positions).body()))) if positions else []

    # -- changing it -----------------------------------------------------------------------------------------------

    def put(self, name: str, node: Node) -> Table:
        """Returns the table with a field in its place, or at the end of its group.

        Raises Unfit if a group above it is not in all rows, or is none, or a value may be nested too deeply to be read.
        """
        *above, _ = parts = name.split(".")
        if above and (not isinstance(node, Cells) or node.may_be_deep(self.count)):
            raise Unfit
        at: Node | None = self.fields
        for key in above:
            at = at.get(key) if isinstance(at, dict) else None
            if at is None:
                break
            if not isinstance(at, dict) or not is_full(at):
                raise Unfit
        return replace(self, fields=_with(self.fields, parts, node))

    def changed(self, name: str, change: Callable[[Any], Any]) -> tuple[Table, Sequence[int]]:
        """Returns the table with what `change` makes of each value of a field but null, and the rows of which it raises
        ValueError; raises Unfit for a group. A value may be changed once for several rows."""
        cells = self.cells(name)
        if cells is None:
            return self, ()
        made, refused = cells.changed(self.count, change)
        return self if made is cells else self.put(name, made), refused

    def without(self, name: str) -> Table:
        """Returns the table without a field, and without a group that it leaves empty."""
        return replace(self, fields=_without(self.fields, name.split(".")))

    def below(self, shared: Fields) -> Table:
        """Returns the table with these fields below those of each row, as `merged`."""
        if not shared:
            return self
        odd = {place: merged(shared, event) for place, event in self.odd.items()}
        return Table(self.count, _over(_constant(shared), self.fields, self.count), odd)

    def pick(self, positions: Sequence[int]) -> Table:
        """Returns the rows at these ascending positions."""
        odd = {}
        if self.odd:
            odd = {new: self.odd[old] for new, old in enumerate(positions) if old in self.odd}
        return Table(len(positions), _picked_group(self.fields, positions), odd)

    def names(self) -> set[str]:
        """Returns the names at the top of some row."""
        return set(self.fields).union(*self.odd.values())

    # -- the documents ---------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        """Returns one JSON object a line; raises TypeError if an odd one cannot be written."""
        if not self.count:
            return b""
        columns, _ = _members(self.fields, self.count)
        body = join(self.count, b"{", *columns, b"}\n")
        if not self.odd:
            return body
        documents = rows(body)
        for place, document in zip(self.odd, encoded(list(self.odd.values())), strict=True):
            documents[place] = document + b"\n"
        return b"".join(documents)


def constant(value: Any) -> Cells:
    """Returns a column with the same value in all rows."""
    return Cells(orjson.dumps(value))


# -- values ------------------------------------------------------------------------------------------------------------


def _values(texts: Sequence[bytes]) -> list[Any]:
    whole: list[Any] = orjson.loads(b"[%b]" % b",".join([text or b"null" for text in texts]))
    return whole


def _changed(
    texts: Sequence[bytes], values: Sequence[Any], change: Callable[[Any], Any]
) -> tuple[list[bytes], set[bytes]]:
    made: list[Any] = []
    refused = set[bytes]()
    for text, value in zip(texts, values, strict=True):
        try:
            made.append(None if value is None else change(value))
        except ValueError:
            made.append(value)
            refused.add(text)
    return [new if text else text for new, text in zip(encoded(made), texts, strict=True)], refused


def _picked(column: Sequence[T], positions: Sequence[int]) -> Sequence[T]:
    if len(positions) > 1:
        return itemgetter(*positions)(column)  # type: ignore[no-any-return]
    return [column[position] for position in positions]


def _picked_group(group: Group, positions: Sequence[int]) -> Group:
    return {
        key: _picked_group(node, positions) if isinstance(node, dict) else node.pick(positions)
        for key, node in group.items()
    }


# -- groups ------------------------------------------------------------------------------------------------------------


def _order(shapes: Iterable[tuple[str, ...]]) -> list[str]:
    """Returns all names, each behind the one that is before it in the first shape with it."""
    order: list[str] = []
    for number, shape in enumerate(shapes):
        if number >= _MOST_SHAPES:
            raise Unfit
        known, at = set(order), 0
        for name in shape:
            if name in known:
                at = order.index(name) + 1
            else:
                order.insert(at, name)
                at += 1
    return order


def _is_ordered(shape: tuple[str, ...], order: Sequence[str]) -> bool:
    left = iter(order)
    return bool(shape) and all(name in left and "." not in name for name in shape)


def _strung(runs: Sequence[Table]) -> Table:
    """Returns the rows of several tables that have the same columns, and no groups yet."""
    if len(runs) == 1:
        return runs[0]
    begins = accumulate([run.count for run in runs], initial=0)
    odd = {begin + place: event for begin, run in zip(begins, runs, strict=False) for place, event in run.odd.items()}
    fields: Group = {}
    for name in runs[0].fields:
        cells = [cells for run in runs if (cells := run.cells(name)) is not None]
        texts = chain.from_iterable([one.texts(run.count) for one, run in zip(cells, runs, strict=True)])
        fields[name] = Cells(list(texts), sparse=any(one.sparse for one in cells))
    return Table(sum(run.count for run in runs), fields, odd)


def _columns_of(events: Sequence[Fields], order: Sequence[str]) -> Group:
    shape = tuple(order)
    if all(tuple(event) == shape for event in events):
        columns: Iterable[Sequence[Any]] = zip(*map(dict.values, events), strict=True)
        return {name: Cells(encoded(column)) for name, column in zip(order, columns, strict=True)}
    made: Group = {}
    for name in order:
        values = [event.get(name, _MISSING) for event in events]
        if _MISSING in values:
            written = encoded([None if value is _MISSING else value for value in values])
            texts = [b"" if value is _MISSING else text for value, text in zip(values, written, strict=True)]
            if any(texts):  # otherwise only odd events have it
                made[name] = Cells(texts, sparse=True)
        else:
            made[name] = Cells(encoded(values))
    return made


def _opened(cells: Cells, count: int) -> Group | None:
    """Returns the columns of a group; None for plain values."""
    texts = [cells.constant] if cells.constant is not None else cells.texts(count)
    kinds = {text[:1] for text in texts} - {b""}
    if kinds.isdisjoint((b"{", b"[")):
        return None
    if kinds != {b"{"}:
        raise Unfit
    if cells.constant is not None:
        return _constant(orjson.loads(cells.constant) or {".": 0})
    values = [value for value in _values(texts) if value is not None]
    names = list(map(tuple, values))
    order = _order(dict.fromkeys(names))
    if not all(_is_ordered(shape, order) for shape in set(names)):
        raise Unfit
    columns = _columns_of(values, order)
    return columns if len(values) == count else _spread(columns, texts)


def _spread(group: Group, texts: Sequence[bytes]) -> Group:
    """Returns columns of the rows that have a group, as columns of all rows; `texts` is empty for the others."""
    spread: Group = {}
    for name, node in group.items():
        assert isinstance(node, Cells)
        left = iter(node.texts(0))
        spread[name] = Cells([next(left) if text else b"" for text in texts], sparse=True)
    return spread


def _constant(fields: Fields) -> Group:
    if any("." in name for name in fields):
        raise Unfit
    return {
        name: _constant(value) if isinstance(value, dict) and value else constant(value)
        for name, value in fields.items()
    }


def _over(below: Group, above: Group, count: int) -> Group:
    """Returns two groups merged; `below` has the same in all rows."""
    made = dict(below)
    for name, node in above.items():
        made[name] = _over_one(below[name], node, count) if name in below else node
    return made


def _over_one(below: Node, above: Node, count: int) -> Node:
    if isinstance(below, dict):
        if isinstance(above, Cells):
            columns = _opened(above, count)
            if columns is None:
                return _whole(above)
            above = columns
        return _over(below, above, count)
    if isinstance(above, dict):
        if not is_full(above):
            raise Unfit
        return above
    if not above.sparse:
        return above
    text = below.constant or b""
    return Cells([own or text for own in above.texts(count)])


def _whole(cells: Cells) -> Cells:
    if cells.sparse:
        raise Unfit
    return cells


def _with(group: Group, parts: Sequence[str], node: Node) -> Group:
    head, *rest = parts
    if not rest:
        return {**group, head: node}
    below = group.get(head, {})
    assert isinstance(below, dict)
    return {**group, head: _with(below, rest, node)}


def _without(group: Group, parts: Sequence[str]) -> Group:
    head, *rest = parts
    node = group.get(head)
    left = _without(node, rest) if rest and isinstance(node, dict) else node if rest else None
    if left:
        return {**group, head: left}
    return {name: other for name, other in group.items() if name != head}


# -- documents ---------------------------------------------------------------------------------------------------------


def is_full(node: Node) -> bool:
    """Whether each row has it."""
    return any(map(is_full, node.values())) if isinstance(node, dict) else not node.sparse


class _Member(NamedTuple):
    """A field as it is written."""

    key: bytes
    columns: Sequence[Any]
    """Of its value. If not all rows have it, there is one, which lacks the braces of a group; none if no row has it."""
    is_full: bool
    lacks_braces: bool = False

    def between(self, before: bytes, after: bytes) -> Sequence[bytes]:
        """Returns the column of a field that not all rows have, with these texts around it where it is."""
        (texts,) = self.columns
        begin, end = (b"{", b"}") if self.lacks_braces else (b"", b"")
        begin, end = before + self.key + begin, end + after
        different = set(texts)
        if _FEW * len(different) > len(texts):
            return [begin + text + end if text else b"" for text in texts]
        made = {text: begin + text + end if text else b"" for text in different}
        return list(map(made.__getitem__, texts))


def _members(group: Group, count: int) -> tuple[list[Column], bool]:
    """Returns columns of `"name":value,…`, and whether each row has a field; if not, they are one column, or none."""
    members = [member for name, node in group.items() if (member := _member(name, node, count)).columns]
    first = next((place for place, member in enumerate(members) if member.is_full), None)
    if first is None:
        return _few_members(members, count), False
    columns: list[Column] = [member.between(b"", b",") for member in members[:first]]
    columns += [members[first].key, *members[first].columns]
    for member in members[first + 1 :]:
        columns += [b"," + member.key, *member.columns] if member.is_full else [member.between(b",", b"")]
    return columns, True


def _few_members(members: Sequence[_Member], count: int) -> list[Column]:
    if len(members) < 2:
        return [member.between(b"", b"") for member in members]
    whole = join(count, *[member.between(b",", b"") for member in members], b"\n")
    return [[text[1:] for text in whole.split(b"\n")[:-1]]]


def _member(name: str, node: Node, count: int) -> _Member:
    key = orjson.dumps(name) + b":"
    if isinstance(node, Cells):
        columns = node.columns
        return _Member(key, () if node.sparse and not any(columns[0]) else columns, not node.sparse)
    members, are_in_all = _members(node, count)
    return _Member(key, [b"{", *members, b"}"] if are_in_all else members, are_in_all, lacks_braces=not are_in_all)
