"""Turns lines without misfits into fields, in runs, for `parse`.

The result is that of `json_lines`. Here the text lines of a batch become documents with one call of the writer for each
run. Lines are read as JSON, or by a `Reading` of another format. If any line may have a misfit, all of them are placed
one by one; a line that is none of the format is a single exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from shipper.plugin import Batch, Fields, join
from shipper.sdk.columns import Column, encoded, escaped
from shipper.sdk.fields import merged, nested
from shipper_plugins.processors.formats.json_lines import INNER, PLAIN, is_even, is_name, is_plain
from shipper_plugins.processors.instants import are_exact

_RUN = 256
"""Objects in memory at once; those of a whole batch would exceed the CPU's cache (0.3 µs a line)."""
_MOST_DOTTED = 64
"""Dotted names of a run."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the lines of a format that is not JSON are read."""

    read: Callable[[Sequence[bytes]], Sequence[Fields | None]]
    """Returns the fields of each line, all texts or lists of texts; None: `one` makes the event of this line."""
    one: Callable[[Fields], Fields]
    """Returns an event of its own, from that of a line; such lines stay among the others."""


def at_once(
    batch: Batch,
    shape: Fields,
    target: str | None,
    reading: Reading | None = None,
    *,
    own: frozenset[str] | None = None,
) -> Batch:
    """Returns the batch with the fields of its lines, if none of them has a misfit.

    Lines of JSON lose their text; those of another `reading` keep it, unless a line has a `message` of its own. Raises
    ValueError or TypeError if all must be read one by one. `own` are the shared fields that some line is assumed to
    have too (None: those of the first line); if a line has another one, it starts again.
    """
    if target is not None and target.partition(".")[0] in shape:
        raise ValueError("fields have to be merged with those of the event")
    lines = batch.body.split(b"\n")[:-1]
    is_flat = reading is not None or _braces(batch.body) == len(lines)
    if own is None:
        objects, keys, _ = _objects(lines[:1], target, reading, is_flat=is_flat)
        own = _met(objects, keys, batch, shape, reading, is_flat=is_flat)
    offsets = list(map(int, batch.log_columns()[1])) if "log" in own else []
    documents: list[bytes] = []
    others: list[int] = []
    for at in range(0, len(lines), _RUN):
        run = lines[at : at + _RUN]
        objects, keys, places = _objects(run, target, reading, is_flat=is_flat)
        if met := _met(objects, keys, batch, shape, reading, is_flat=is_flat) - own:
            return at_once(batch, shape, target, reading, own=own | met)
        for key in own - _TEXT:
            _complete(objects, key, batch.shared.get(key, {}))
        if offsets:
            for made, place in zip(objects, places, strict=True):
                made["log"].setdefault("offset", offsets[at + place])
        if reading is not None and "message" in own:
            for made, place in zip(objects, places, strict=True):
                made.setdefault("message", run[place].decode())
        written = encoded(objects)
        if len(places) < len(run):
            others += [at + place for place in sorted(set(range(len(run))) - set(places))]
            written = _spread(written, places, len(run))
        documents += written
    shared = {key: value for key, value in batch.shared.items() if key not in own and key != "log"}
    body = _body(batch, documents, has_log=bool(offsets), has_message=reading is None or "message" in own)
    if others and reading is not None:
        body = _with_others(batch, shared, body, others, reading.one)
    return batch.rewritten(body, shared)


def of_documents(batch: Batch, shape: Fields, field: str, target: str | None, reading: Reading | None = None) -> Batch:
    """Returns the batch of documents with the fields of the texts in a top-level field, as `at_once` for lines.

    So JSON in the log of a container, which was read before, takes 5 µs and not 13. Raises ValueError or TypeError if
    all must be read one by one.
    """
    if batch.is_typed or (target is not None and target.partition(".")[0] in shape):
        raise ValueError("not at once")
    rows = batch.own()
    texts = [row.pop(field, None) for row in rows]
    own = set[str]().union(*rows)
    if set(map(type, texts)) != {str} or any("." in name for name in own):
        raise ValueError("not at once")
    events: list[Fields] = []
    for at in range(0, len(rows), _RUN):
        run, run_texts = rows[at : at + _RUN], texts[at : at + _RUN]
        objects, keys, places = _objects([text.encode() for text in run_texts], target, reading, is_flat=False)
        _met(objects, keys, batch, shape, reading, is_flat=False)
        clashing = (keys & own) - {"@timestamp"}
        if clashing - {"log"} or (clashing and not _fit_beside(run, objects, places)):
            raise ValueError("fields have to be merged with those of the event")
        made = dict(zip(places, objects, strict=True))
        for place, (row, text) in enumerate(zip(run, run_texts, strict=True)):
            if reading is None or place in made:
                events.append(_beside(row, made[place], {} if reading is None else {field: text}))
            else:
                events.append(reading.one({**row, field: text}))
    return batch.replace(events)


def _fit_beside(rows: Sequence[Fields], objects: Sequence[Fields], places: Sequence[int]) -> bool:
    """Returns whether the `log` of each object has other names than that of its event."""
    logs = [(rows[place].get("log", {}), made.get("log", {})) for place, made in zip(places, objects, strict=True)]
    return all(type(our) is dict and our.keys().isdisjoint(log) for our, log in logs)


def _beside(row: Fields, made: Fields, text: Fields) -> Fields:
    log = {"log": {**row["log"], **made["log"]}} if "log" in row and "log" in made else {}
    return {**row, **text, **made, **log}


_TEXT = frozenset(("message",))
_PLACEHOLDER = b'{"":0}'
"""Of a line whose event is its own."""


def _body(batch: Batch, documents: Sequence[bytes], *, has_log: bool, has_message: bool) -> bytes:
    before: list[Column] = []
    if not has_log:
        before += [*batch.log_columns(), b","]
    if not has_message:
        before += [b'"message":"', escaped(batch.body), b'",']
    if not before:
        return join(batch.count, documents, b"\n")
    return join(batch.count, b"{", *before, [document[1:] for document in documents], b"\n")


def _spread(documents: Sequence[bytes], places: Sequence[int], count: int) -> list[bytes]:
    spread = [_PLACEHOLDER] * count
    for place, document in zip(places, documents, strict=True):
        spread[place] = document
    return spread


def _with_others(
    batch: Batch, shared: Fields, body: bytes, others: Sequence[int], one: Callable[[Fields], Fields]
) -> bytes:
    lines = batch.own()
    return with_others(batch, shared, body, {place: one(lines[place]) for place in others})


def with_others(batch: Batch, shared: Fields, body: bytes, others: Mapping[int, Fields]) -> bytes:
    """Returns the documents of a body with those of `others`, by their place, in the place of placeholders.

    `shared` are the fields that the batch will share. Raises ValueError if one of the others has one of its own.
    """
    replaced = {key: value for key, value in batch.shared.items() if key not in shared}
    documents = body.split(b"\n")
    events = [merged(replaced, event) for event in others.values()]
    if not all(map(shared.keys().isdisjoint, events)):
        raise ValueError("not at once")
    for place, document in zip(others, encoded(events), strict=True):
        documents[place] = document
    return b"\n".join(documents)


def _objects(
    lines: Sequence[bytes], target: str | None, reading: Reading | None, *, is_flat: bool
) -> tuple[list[Fields], set[str], Sequence[int]]:
    """Returns the nested objects of the lines, their names, and their places among the lines; raises ValueError for an
    invalid name or list."""
    places: Sequence[int] = range(len(lines))
    if reading is None:
        objects: list[Fields] = list(map(orjson.loads, lines))
    else:
        read = reading.read(lines)
        objects = [made for made in read if made is not None]
        if len(objects) < len(read):
            places = [place for place, made in enumerate(read) if made is not None]
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
        return [nested({target: made}) for made in objects], {target.partition(".")[0]}, places
    return objects, names, places


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


def _met(
    objects: Sequence[Fields], keys: set[str], batch: Batch, shape: Fields, reading: Reading | None, *, is_flat: bool
) -> frozenset[str]:
    """Returns the names that are shared fields too; raises ValueError for a misfit."""
    if "@timestamp" in keys and not are_exact(_column(objects, "@timestamp")):
        raise ValueError("a time has to be rewritten")
    if "data_stream" in keys:
        raise ValueError("a line names a data stream")
    if reading is not None and "message" in keys and set(map(type, _column(objects, "message"))) != {str}:
        raise ValueError("a list does not fit the text of the event")
    for key in (keys & shape.keys()) - {"@timestamp"}:
        if not (shape[key] is None and is_flat) and not _fit(_column(objects, key), shape[key]):
            raise ValueError("a value has another shape than the event's")
    return frozenset(keys & (batch.shared.keys() | {"log"} | (_TEXT if reading is not None else set())))


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
