"""Turns lines of JSON into fields, for `parse`.

One rule decides the place of a value. Dotted names are nested ones. A value of the line with the same shape as the
event's own (a group for a group, text for text, a number for a number) replaces it, and a field that the event lacks is
added; so a line of ECS keeps its `ecs.version`, `event.dataset`, `log.level` and `host.name`. A misfit, whose value is
not allowed in its place, goes to `labels`, under its name with `_` for the dots (and a number after a name in use):

    {"host": "web-1", "log": {"file": "x"}}   labels.host: web-1, labels.log_file: x
    {"tags": {"a": 1, "b": 2}}                labels.tags: '{"a":1,"b":2}', since labels have no groups

Misfits are:

- A value of another shape than the event's, or than an earlier value of the line with the same name. Names that every
  event of the shipper may have (`_SHAPE`) have a fixed shape, since an index has one for each name.
- `data_stream.*`, always: the logged application writes the line, so it must not choose the destination. A part that
  equals the event's own is ignored.
- An invalid `@timestamp` (see `instants`); the event is tagged, and keeps its own.
- A name that Elasticsearch refuses: empty, blank, with an empty part (`a..b`), of more than 20 parts, or of its own
  metadata (`_id`).
- A list of items with different shapes (`[1, {"a": 2}]`).

Lines without misfits are parsed in runs: `json_runs`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from shipper.plugin import Fields, tagged
from shipper.sdk.fields import merged, nested
from shipper_plugins.processors.instants import instant

_MOST_PARTS = 20
"""The limit of a name's parts: Elasticsearch's `index.mapping.depth.limit`."""
_DEEP = 200
"""A text with more brackets and dots may have more levels than orjson writes (254)."""
_LONGEST = 100
"""The longest name of a label: a line of many values below a long name would grow a thousandfold without a limit."""
INNER = frozenset((dict, list))
"""Types of values that contain others."""
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
"""The shape of every event: a group, any value but a group (None), or no value at all (_REFUSED)."""
_NOTHING: Fields = {}
"""The shape of a field that the event lacks."""

Misfits = list[tuple[str, Any]]
"""Values that are not allowed in their place, by their dotted names."""


def shape(shared: Fields) -> Fields:
    """Returns the shape of a batch's events."""
    return merged(_SHAPE, shared)


def fields(event: Fields, shape: Fields, text: str, target: str | None) -> Fields:
    """Returns the event with the fields of a text, below `target` if set; raises ValueError if it is no object."""
    made = _object(text)
    try:
        done = placed(event, shape, made, target)
        if _may_be_deep(text):
            orjson.dumps(done)  # too many levels would fail the whole batch later
    except (TypeError, RecursionError):
        raise ValueError("the text is not JSON") from None
    return done


def placed(event: Fields, shape: Fields, made: Fields, target: str | None) -> Fields:
    """Returns the event with these fields, below `target` if set, by the rule of this module."""
    return _placed(event, shape, made if target is None else nested({target: made}))


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
    misfits: Misfits = []
    if any("." in key for key in event):
        dotted, event = event, {}
        _put(dotted, event, {}, "", misfits)
    ours = merged(shape, event)
    ours.pop("@timestamp", None)
    _put(made, into, ours, "", misfits)
    _forget_stream(into, ours, misfits)
    is_timed = _set_time(into, misfits)
    if not is_timed and "message" in into.get("error", ()):
        misfits.append(("error.message", into["error"].pop("message")))
    if misfits:
        _set_labels(into, ours, misfits)
    done = merged(event, into)
    return done if is_timed else tagged(done, "parse: the @timestamp of the line is no time", ours)


def _forget_stream(into: Fields, ours: Fields, misfits: Misfits) -> None:
    own = ours["data_stream"] if isinstance(ours["data_stream"], dict) else {}
    written = into.pop("data_stream", {})
    if other := {key: value for key, value in written.items() if key not in own or own[key] != value}:
        misfits.append(("data_stream", other))


def _set_time(into: Fields, misfits: Misfits) -> bool:
    """Returns False if the time of the line is invalid."""
    if "@timestamp" not in into:
        return True
    written = into.pop("@timestamp")
    try:
        into["@timestamp"] = instant(written)
    except ValueError:
        misfits.append(("@timestamp", written))
        return False
    return True


def _put(made: Fields, into: Fields, ours: Fields, above: str, misfits: Misfits) -> None:
    """Puts values into `into` if they have the shape of `ours` and of `into`; adds the others to the misfits."""
    for key, value in made.items():
        if not is_name(key):
            misfits.append((above + key, value))
            continue
        if "." in key:
            key, _, rest = key.partition(".")
            value = {rest: value}
        our = ours.get(key, _NOTHING)
        if type(value) is dict and isinstance(our, dict) and type(into.setdefault(key, {})) is dict:
            _put(value, into[key], our, f"{above}{key}."[:_LONGEST], misfits)
        elif key not in into and _fits(value, our):
            into[key] = value
        else:
            misfits.append((above + key, value))


def _fits(value: Any, our: Any) -> bool:
    """Returns whether a value that is not merged with a group fits the event's shape `our`."""
    if our is _NOTHING:
        return type(value) is not list or is_even(value)
    return (our is None or type(value) is type(our)) and is_plain(value)


def is_plain(value: Any) -> bool:
    """Returns whether the value is no group, and no list with a group."""
    return type(value) is not dict and (type(value) is not list or all(map(is_plain, value)))


def is_name(key: str) -> bool:
    """Returns whether Elasticsearch accepts the name, dotted or not."""
    if "." not in key:
        return bool(key) and not key.isspace()
    parts = key.split(".", _MOST_PARTS)
    return len(parts) <= _MOST_PARTS and all(map(str.strip, parts))


def is_even(items: list[Any]) -> bool:
    """Returns whether every name in these items is valid, and is not a group in one item and a plain value in
    another."""
    if INNER.isdisjoint(map(type, items)):
        return True
    kinds: Fields = {}  # a tree by names, with the kind under the empty name: full names would grow with the depth
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


def _set_labels(into: Fields, ours: Fields, misfits: Misfits) -> None:
    labels = into.setdefault("labels", {})
    taken = {*labels, *(ours["labels"] if isinstance(ours["labels"], dict) else ())}
    numbers = Counter[str]()
    for name, value in misfits:
        while type(value) is dict and len(value) == 1:
            ((key, value),) = value.items()
            name = f"{name}.{key}"[:_LONGEST]
        label = first = name[:_LONGEST].replace(".", "_").strip() or "_"
        while label in taken:
            numbers[first] += 1
            label = f"{first}_{numbers[first] + 1}"
        taken.add(label)
        labels[label] = value if is_plain(value) else orjson.dumps(value).decode()
