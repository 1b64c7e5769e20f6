"""Lines of JSON, as fields: for `parse`.

One rule decides where a value goes. Dotted names are nested ones. A value of the line that has the shape of the event's
own (a group for a group, text for text, a number for a number) takes its place, and what the event does not have is
added; so a line that is ECS keeps its `ecs.version`, `event.dataset`, `log.level` and `host.name`. A value that cannot
stand in its place goes to `labels`, under its name with `_` for the dots (and a number behind it if that is taken):

    {"host": "web-1", "log": {"file": "x"}}   labels.host: web-1, labels.log_file: x
    {"tags": {"a": 1, "b": 2}}                labels.tags: '{"a":1,"b":2}', since labels have no groups

- Another shape than the event has there, or than another value of the line that stood before it has. The names that
  every event of the shipper may have (`_SHAPE`) have their shape in all of them, since an index has one for each name.
- `data_stream.*`, always: a line is written by whoever is logged, so it never says where it goes. One that says the
  same as the event says nothing new.
- An `@timestamp` that is no time (see `instants`); such an event is tagged, and has its own.
- A name that Elasticsearch refuses: empty, blank, with an empty part (`a..b`), of more than 20 parts, or of its own
  metadata (`_id`).
- A list whose items do not fit each other (`[1, {"a": 2}]`).

`at_once` reads the text lines of a batch in runs, from JSON to JSON, by one call of the writer for each; it leaves all
to `fields` if a value of any line might have to be put elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import orjson

from shipper.plugin import Batch, Fields, encoded, join, merged, nested, tagged
from shipper_plugins.processors.instants import are_exact, instant

_RUN = 256
"""Objects that are held at once; those of a whole batch would leave the processor's cache (0.3 µs a line)."""
_MOST_PARTS = 20
"""Of a name: Elasticsearch's `index.mapping.depth.limit`."""
_MOST_DOTTED = 64
"""Names of a run."""
_DEEP = 200
"""Brackets and dots of a text, from which on it may have more levels than orjson writes (254)."""
_LONGEST = 100
"""Of the name of a label, in characters: else a line of many values below a long name would grow by the thousand."""
_INNER = frozenset((dict, list))
_GROUPS = ("log", "host", "agent", "data_stream", "event", "ecs", "error", "labels")
_PLAIN = ("message", "tags")
_METADATA = (
    *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_field_names"),
    *("_ignored", "_nested_path", "_size", "_tier", "_doc_count"),
)
"""https://www.elastic.co/guide/en/elasticsearch/reference/current/mapping-fields.html"""
_REFUSED = object()
_SHAPE: Fields = {
    **{name: {} for name in _GROUPS},
    "log": {"offset": 0},
    **dict.fromkeys(_PLAIN),
    **dict.fromkeys(_METADATA, _REFUSED),
}
"""Of an event: a group, anything but a group (None), or nothing at all."""
_NOTHING: Fields = {}
"""The shape of a place where the event has none."""

Spare = list[tuple[str, Any]]
"""Values that cannot stand in their place, by their dotted names."""


def shape(shared: Fields) -> Fields:
    """The shape that a batch gives to its events."""
    return merged(_SHAPE, shared)


# -- a line of any kind ------------------------------------------------------------------------------------------------


def fields(event: Fields, shape: Fields, text: str, target: str | None) -> Fields:
    """The event with the fields of a text, below `target` if there is one; raises ValueError if it is no object."""
    made = _object(text)
    try:
        done = _placed(event, shape, made if target is None else nested({target: made}))
        if _may_be_deep(text):
            orjson.dumps(done)  # what is nested more deeply than it writes would stop the whole batch
    except (TypeError, RecursionError):
        raise ValueError("the text is not JSON") from None
    return done


def _object(text: str) -> Fields:
    try:
        made = orjson.loads(text)
        if _may_be_deep(text):
            orjson.dumps(made)
    except (ValueError, TypeError):
        raise ValueError("the text is not JSON") from None
    if type(made) is not dict:
        raise ValueError("the text is not a JSON object")
    return made


def _may_be_deep(text: str) -> bool:
    return text.count("{") + text.count("[") + text.count(".") > _DEEP


def _placed(event: Fields, shape: Fields, made: Fields) -> Fields:
    into: Fields = {}
    spare: Spare = []
    if any("." in key for key in event):
        dotted, event = event, {}
        _fit(dotted, event, {}, "", spare)
    ours = merged(shape, event)
    ours.pop("@timestamp", None)
    _fit(made, into, ours, "", spare)
    _forget_stream(into, ours, spare)
    is_timed = _set_time(into, spare)
    if not is_timed and "message" in into.get("error", ()):
        spare.append(("error.message", into["error"].pop("message")))
    if spare:
        _set_labels(into, ours, spare)
    done = merged(event, into)
    return done if is_timed else tagged(_tags(ours) | done, "parse: the @timestamp of the line is no time")


def _forget_stream(into: Fields, ours: Fields, spare: Spare) -> None:
    own = ours["data_stream"] if isinstance(ours["data_stream"], dict) else {}
    said = into.pop("data_stream", {})
    if other := {key: value for key, value in said.items() if key not in own or own[key] != value}:
        spare.append(("data_stream", other))


def _tags(ours: Fields) -> Fields:
    return {} if ours["tags"] is None else {"tags": ours["tags"]}


def _set_time(into: Fields, spare: Spare) -> bool:
    """False if the line has a time that is none."""
    if "@timestamp" not in into:
        return True
    written = into.pop("@timestamp")
    try:
        into["@timestamp"] = instant(written)
    except ValueError:
        spare.append(("@timestamp", written))
        return False
    return True


def _fit(made: Fields, into: Fields, ours: Fields, above: str, spare: Spare) -> None:
    """Put what can stand there into `into`, where nothing of `ours` or of `into` has another shape."""
    for key, value in made.items():
        if not _is_name(key):
            spare.append((above + key, value))
            continue
        if "." in key:
            key, _, rest = key.partition(".")
            value = {rest: value}
        our = ours.get(key, _NOTHING)
        if type(value) is dict and isinstance(our, dict) and type(into.setdefault(key, {})) is dict:
            _fit(value, into[key], our, f"{above}{key}."[:_LONGEST], spare)
        elif key not in into and _stands(value, our):
            into[key] = value
        else:
            spare.append((above + key, value))


def _stands(value: Any, our: Any) -> bool:
    """Whether a value that is not put together with a group fits where the event has this."""
    if our is _NOTHING:
        return type(value) is not list or _is_even(value)
    return (our is None or type(value) is type(our)) and _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Whether it is no group, and a list without any."""
    return type(value) is not dict and (type(value) is not list or all(map(_is_plain, value)))


def _is_name(key: str) -> bool:
    if "." not in key:
        return bool(key) and not key.isspace()
    parts = key.split(".", _MOST_PARTS)
    return len(parts) <= _MOST_PARTS and all(map(str.strip, parts))


def _is_even(items: list[Any]) -> bool:
    """Whether no name in these items is a group in one place and a plain value in another, and each can stand."""
    if _INNER.isdisjoint(map(type, items)):
        return True
    kinds: Fields = {}  # a tree by names, with the kind under the empty one: full names would grow with the depth
    open = [(kinds, item) for item in items]
    while open:
        kind, value = open.pop()
        if type(value) is list:
            open += [(kind, item) for item in value]
        elif value is not None:
            is_group = type(value) is dict
            if kind.setdefault("", is_group) != is_group or not all(map(_is_name, value if is_group else ())):
                return False
            for key, inner in value.items() if is_group else ():
                head, _, rest = key.partition(".")
                open.append((kind.setdefault(head, {}), {rest: inner} if rest else inner))
    return True


def _set_labels(into: Fields, ours: Fields, spare: Spare) -> None:
    labels = into.setdefault("labels", {})
    taken = {*labels, *(ours["labels"] if isinstance(ours["labels"], dict) else ())}
    numbers = Counter[str]()
    for name, value in spare:
        while type(value) is dict and len(value) == 1:
            ((key, value),) = value.items()
            name = f"{name}.{key}"[:_LONGEST]
        label = first = name[:_LONGEST].replace(".", "_").strip() or "_"
        while label in taken:
            numbers[first] += 1
            label = f"{first}_{numbers[first] + 1}"
        taken.add(label)
        labels[label] = value if _is_plain(value) else orjson.dumps(value).decode()


# -- the lines of a batch ----------------------------------------------------------------------------------------------


def at_once(batch: Batch, shape: Fields, target: str | None, own: frozenset[str] | None = None) -> Batch:
    """Text lines that are all objects whose values can stand in their places.

    Raises ValueError or TypeError where all must be read one by one. `own` are the shared fields that some line is
    taken to have too (None: those of the first line); if another is met, all begins again.
    """
    if target is not None and target.partition(".")[0] in shape:
        raise ValueError("fields are to be put together with those of the event")
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
    """What the lines hold, nested, and the names of it; raises ValueError where a name or a list cannot stand."""
    objects = list(map(orjson.loads, lines))
    if not set(map(type, objects)) <= {dict} or not all(objects):
        raise ValueError("a text is not a JSON object, or an empty one")
    names = set[str]().union(*objects)
    if not all(map(_is_name, names)):
        raise ValueError("a name cannot stand")
    if not is_flat and _known(objects) < _braces(b"".join(lines)) - len(lines):
        _check_inside(objects)
    dotted = [name for name in names if "." in name]
    if len(dotted) > _MOST_DOTTED:
        raise ValueError("each of many names would be looked for in each line")
    for name in dotted:
        _nest(objects, name)
        names = names - {name} | {name.partition(".")[0]}
    if target is not None:
        return [nested({target: made}) for made in objects], {target.partition(".")[0]}
    return objects, names


def _braces(text: bytes) -> int:
    return len(text) - len(text.replace(b"{", b""))


def _known(objects: Sequence[Fields]) -> int:
    """How many groups can stand that have a place in which the first object has one, too.

    Lines of one kind have no others, as the braces of their text tell: so most values need not be looked at. What is
    only plain values, such as a list of numbers, can stand anyway.
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
            raise ValueError("a name inside cannot stand")
        if lists and not (_are_simple(list(chain.from_iterable(lists))) or all(map(_is_even, lists))):
            raise ValueError("a list cannot stand")


def _are_plain_names(objects: Iterable[Fields]) -> bool:
    return all("." not in name and _is_name(name) for name in set[str]().union(*objects))


def _are_simple(items: Sequence[Any]) -> bool:
    """Whether these items of lists are even for sure: plain values, or groups of plain values."""
    types = set(map(type, items))
    if types != {dict}:
        return types.isdisjoint(_INNER)
    return _INNER.isdisjoint(map(type, chain.from_iterable(map(dict.values, items)))) and _are_plain_names(items)


def _nest(objects: Iterable[Fields], name: str) -> None:
    """Put the values of a dotted name into groups."""
    *above, last = name.split(".")
    if above[0] in _PLAIN:
        raise ValueError("a plain field is to be a group")
    for made in objects:
        if name in made:
            at = made
            for key in above:
                at = at.setdefault(key, {})
                if type(at) is not dict:
                    raise ValueError("two values of a line do not fit")
            if last in at:
                raise ValueError("a value stands twice in a line")
            at[last] = made.pop(name)


def _met(objects: Sequence[Fields], keys: set[str], batch: Batch, shape: Fields, *, is_flat: bool) -> frozenset[str]:
    """The fields that are shared, too; raises ValueError where a value does not stand in its place."""
    if "@timestamp" in keys and not are_exact(_column(objects, "@timestamp")):
        raise ValueError("a time is to be written anew")
    if "data_stream" in keys:
        raise ValueError("a line says a data stream")
    for key in (keys & shape.keys()) - {"@timestamp"}:
        if not (shape[key] is None and is_flat) and not _stand(_column(objects, key), shape[key]):
            raise ValueError("a value has another shape than the event's")
    return frozenset(keys & (batch.shared.keys() | {"log"}))


def _stand(values: Sequence[Any], our: Any) -> bool:
    """Whether each fits where the event has this; False also where it takes a closer look."""
    if isinstance(our, dict):
        return set(map(type, values)) == {dict} and all(
            not isinstance(our[key], dict) and _stand(_column(values, key), our[key])
            for key in our.keys() & set[str]().union(*values)
        )
    types = set(map(type, values))
    return (our is None or types == {type(our)}) and (types.isdisjoint(_INNER) or all(map(_is_plain, values)))


def _column(objects: Iterable[Fields], key: str) -> list[Any]:
    return [made[key] for made in objects if key in made]


def _complete(objects: Sequence[Fields], key: str, shared: Any) -> None:
    """What is shared, where the objects do not say something else."""
    if isinstance(shared, dict):
        for made in objects:
            made[key] = {**shared, **made[key]} if key in made else dict(shared)
    elif sum(key in made for made in objects) < len(objects):
        for made in objects:
            made.setdefault(key, shared)
