"""Turns lines of JSON without misfits into fields, in runs, for `parse`.

The result is that of `json_lines`. Here the text lines of a batch are converted from JSON to JSON with one call of the
writer for each run; if any line may have a misfit, `json_lines.fields` reads all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import orjson

from shipper.plugin import Batch, Fields, encoded, join, nested
from shipper_plugins.processors.instants import are_exact
from shipper_plugins.processors.json_lines import INNER, PLAIN, is_even, is_name, is_plain

_RUN = 256
"""Objects in memory at once; those of a whole batch would exceed the CPU's cache (0.3 µs a line)."""
_MOST_DOTTED = 64
"""Dotted names of a run."""


def at_once(batch: Batch, shape: Fields, target: str | None, own: frozenset[str] | None = None) -> Batch:
    """Returns the batch with the fields of its lines, if all are objects without misfits.

    Raises ValueError or TypeError if they must be read one by one. `own` are the shared fields that some line is
    assumed to have too (None: those of the first line); if a line has another one, it starts again.
    """
    if target is not None and target.partition(".")[0] in shape:
        raise ValueError("fields have to be merged with those of the event")
    lines = batch.body.split(b"\n")[:-1]
    is_flat = _braces(batch.body) == len(lines)
    own = own if own is not None else _own(lines[:1], batch, shape, target, is_flat=is_flat)
    offsets = list(map(int, batch.log_columns()[1])) if "log" in own else []
    documents: list[bytes] = []
    for at in range(0, len(lines), _RUN):
        objects, keys = _objects(lines[at : at + _RUN], target, is_flat=is_flat)
        if met := _met(objects, keys, batch, shape, is_flat=is_flat) - own:
            return at_once(batch, shape, target, own | met)
        for key in own:
            _complete(objects, key, batch.shared.get(key, {}))
        for made, offset in zip(objects, offsets[at : at + _RUN], strict=False):
            made["log"].setdefault("offset", offset)
        documents += encoded(objects) if offsets else [document[1:] for document in encoded(objects)]
    shared = {key: value for key, value in batch.shared.items() if key not in own and key != "log"}
    before = () if offsets else (b"{", *batch.log_columns(), b",")
    return batch.rewritten(join(batch.count, *before, documents, b"\n"), shared)


def _own(lines: Sequence[bytes], batch: Batch, shape: Fields, target: str | None, *, is_flat: bool) -> frozenset[str]:
    return _met(*_objects(lines, target, is_flat=is_flat), batch, shape, is_flat=is_flat)


def _objects(lines: Sequence[bytes], target: str | None, *, is_flat: bool) -> tuple[list[Fields], set[str]]:
    """Returns the nested objects of the lines, and their names; raises ValueError for an invalid name or list."""
    objects = list(map(orjson.loads, lines))
    if not set(map(type, objects)) <= {dict} or not all(objects):
        raise ValueError("a text is not a JSON object, or an empty one")
    names = set[str]().union(*objects)
    if not all(map(is_name, names)):
        raise ValueError("a name is not valid")
    if not is_flat and _known(objects) < _braces(b"".join(lines)) - len(lines):
        _check_inside(objects)
    dotted = [name for name in names if "." in name]
    if len(dotted) > _MOST_DOTTED:
        raise ValueError("a search of each line for each of many names takes too long")
    for name in dotted:
        _nest(objects, name)
        names = names - {name} | {name.partition(".")[0]}
    if target is not None:
        return [nested({target: made}) for made in objects], {target.partition(".")[0]}
    return objects, names


def _braces(text: bytes) -> int:
    return len(text) - len(text.replace(b"{", b""))


def _known(objects: Sequence[Fields]) -> int:
    """Returns the number of valid groups in places where the first object has a group too.

    Lines of one kind have no other groups, as a count of their braces shows: so most values need no check. Plain
    values, such as a list of numbers, are always valid.
    """
    known = 0
    for name, value in objects[0].items() if objects else ():
        if type(value) is dict or (type(value) is list and value and type(value[0]) is dict):
            groups = _column(objects, name)
            if type(value) is list and set(map(type, groups)) == {list}:
                groups = list(chain.from_iterable(groups))
                known += len(groups) if _are_simple(groups) else 0
            elif set(map(type, groups)) == {dict} and _are_plain_names(groups):
                known += len(groups) + _known(groups)
    return known


def _check_inside(level: Sequence[Fields]) -> None:
    while level:
        values = list(chain.from_iterable(map(dict.values, level)))
        lists = [value for value in values if type(value) is list]
        level = [value for value in values if type(value) is dict]
        if not _are_plain_names(level):
            raise ValueError("an inner name is not valid")
        if lists and not (_are_simple(list(chain.from_iterable(lists))) or all(map(is_even, lists))):
            raise ValueError("a list is not valid")


def _are_plain_names(objects: Iterable[Fields]) -> bool:
    return all("." not in name and is_name(name) for name in set[str]().union(*objects))


def _are_simple(items: Sequence[Any]) -> bool:
    """Returns whether these items of lists are certainly even: plain values, or groups of plain values."""
    types = set(map(type, items))
    if types != {dict}:
        return types.isdisjoint(INNER)
    return INNER.isdisjoint(map(type, chain.from_iterable(map(dict.values, items)))) and _are_plain_names(items)


def _nest(objects: Iterable[Fields], name: str) -> None:
    """Moves the values of a dotted name into groups."""
    *above, last = name.split(".")
    if above[0] in PLAIN:
        raise ValueError("a group has the name of a plain field")
    for made in objects:
        if name in made:
            at = made
            for key in above:
                at = at.setdefault(key, {})
                if type(at) is not dict:
                    raise ValueError("two values of a line do not fit")
            if last in at:
                raise ValueError("a line has two values of one name")
            at[last] = made.pop(name)


def _met(objects: Sequence[Fields], keys: set[str], batch: Batch, shape: Fields, *, is_flat: bool) -> frozenset[str]:
    """Returns the names that are shared fields too; raises ValueError for a misfit."""
    if "@timestamp" in keys and not are_exact(_column(objects, "@timestamp")):
        raise ValueError("a time has to be rewritten")
    if "data_stream" in keys:
        raise ValueError("a line names a data stream")
    for key in (keys & shape.keys()) - {"@timestamp"}:
        if not (shape[key] is None and is_flat) and not _fit(_column(objects, key), shape[key]):
            raise ValueError("a value has another shape than the event's")
    return frozenset(keys & (batch.shared.keys() | {"log"}))


def _fit(values: Sequence[Any], our: Any) -> bool:
    """Returns whether each value certainly fits the event's shape `our`."""
    if isinstance(our, dict):
        return set(map(type, values)) == {dict} and all(
            not isinstance(our[key], dict) and _fit(_column(values, key), our[key])
            for key in our.keys() & set[str]().union(*values)
        )
    types = set(map(type, values))
    return (our is None or types == {type(our)}) and (types.isdisjoint(INNER) or all(map(is_plain, values)))


def _column(objects: Iterable[Fields], key: str) -> list[Any]:
    return [made[key] for made in objects if key in made]


def _complete(objects: Sequence[Fields], key: str, shared: Any) -> None:
    """Adds a shared value to the objects that have none of their own."""
    if isinstance(shared, dict):
        for made in objects:
            made[key] = {**shared, **made[key]} if key in made else dict(shared)
    elif sum(key in made for made in objects) < len(objects):
        for made in objects:
            made.setdefault(key, shared)
