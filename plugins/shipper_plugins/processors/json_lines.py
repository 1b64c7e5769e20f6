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

Lines whose values can all stay where they are need not be read one by one: `json_runs`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from shipper.plugin import Fields, merged, nested, tagged
from shipper_plugins.processors.instants import instant

_MOST_PARTS = 20
"""Of a name: Elasticsearch's `index.mapping.depth.limit`."""
_DEEP = 200
"""Brackets and dots of a text, from which on it may have more levels than orjson writes (254)."""
_LONGEST = 100
"""Of the name of a label, in characters: else a line of many values below a long name would grow by the thousand."""
INNER = frozenset((dict, list))
"""Types of values that hold others."""
_GROUPS = ("log", "host", "agent", "data_stream", "event", "ecs", "error", "labels")
PLAIN = ("message", "tags")
_METADATA = (
    *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_field_names"),
    *("_ignored", "_nested_path", "_size", "_tier", "_doc_count"),
)
"""https://www.elastic.co/guide/en/elasticsearch/reference/current/mapping-fields.html"""
_REFUSED = object()
_SHAPE: Fields = {
    **{name: {} for name in _GROUPS},
    "log": {"offset": 0},
    **dict.fromkeys(PLAIN),
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
        if not is_name(key):
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
        return type(value) is not list or is_even(value)
    return (our is None or type(value) is type(our)) and is_plain(value)


def is_plain(value: Any) -> bool:
    """Whether it is no group, and a list without any."""
    return type(value) is not dict and (type(value) is not list or all(map(is_plain, value)))


def is_name(key: str) -> bool:
    """Whether Elasticsearch takes it for a name, dotted or not."""
    if "." not in key:
        return bool(key) and not key.isspace()
    parts = key.split(".", _MOST_PARTS)
    return len(parts) <= _MOST_PARTS and all(map(str.strip, parts))


def is_even(items: list[Any]) -> bool:
    """Whether no name in these items is a group in one place and a plain value in another, and each can stand."""
    if INNER.isdisjoint(map(type, items)):
        return True
    kinds: Fields = {}  # a tree by names, with the kind under the empty one: full names would grow with the depth
    open = [(kinds, item) for item in items]
    while open:
        kind, value = open.pop()
        if type(value) is list:
            open += [(kind, item) for item in value]
        elif value is not None:
            is_group = type(value) is dict
            if kind.setdefault("", is_group) != is_group or not all(map(is_name, value if is_group else ())):
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
        labels[label] = value if is_plain(value) else orjson.dumps(value).decode()
