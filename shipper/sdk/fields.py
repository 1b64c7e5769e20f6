"""PUBLIC: fields of events by their dotted names, for processors that read and change single fields.

A name means nested fields, or a key that is itself dotted, whichever an event has: `{"url": {"path": "/"}}` and
`{"url.path": "/"}` are the same field. What is written anew is nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from shipper.sdk.errors import BadOption

_NEVER_REMOVED = ("@timestamp", "data_stream", "data_stream.type", "data_stream.dataset", "data_stream.namespace")

Fields = dict[str, Any]
"""Nested fields of an event, with values of JSON."""

GONE = object()
"""What `changed` removes."""


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Fields:
    """Returns new nested fields: those of `below`, overridden by `above`."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def nested(flat: Mapping[str, Any]) -> Fields:
    """Returns dotted names as nested fields: {"service.name": "shop"} becomes {"service": {"name": "shop"}}."""
    result: Fields = {}
    for name, value in flat.items():
        *above, last = name.split(".")
        at = result
        for key in above:
            if not isinstance(at.get(key), dict):
                at[key] = {}
            at = at[key]
        old = at.get(last)
        at[last] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def find(fields: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a field, or None."""
    if name in fields:
        return fields[name]
    head, _, rest = name.partition(".")
    below = fields.get(head)
    return find(below, rest) if rest and isinstance(below, Mapping) else None


def look_up(own: Fields, shared: Fields) -> Callable[[str], Any]:
    """Returns a look-up of an event's values by names; its own values precede shared ones."""

    def look(name: str) -> Any:
        value = find(own, name)
        return value if value is not None else find(shared, name)

    return look


def without(fields: Fields, name: str) -> Fields:
    """Returns the fields without one, and without an object that it leaves empty."""
    if name in fields:
        return {key: value for key, value in fields.items() if key != name}
    head, _, rest = name.partition(".")
    below = fields.get(head)
    if not rest or not isinstance(below, dict):
        return fields
    left = without(below, rest)
    return {**fields, head: left} if left or not below else without(fields, head)


def put(fields: Fields, name: str, value: Any) -> Fields:
    """Returns the fields with one; raises ValueError where a field above it has a value of its own."""
    if name in fields:
        return {**fields, name: value}
    head, _, rest = name.partition(".")
    if not rest:
        return {**fields, head: value}
    below = fields.get(head, {})
    if not isinstance(below, dict):
        raise ValueError(f"{head} is no group of fields")
    return {**fields, head: put(below, rest, value)}


def changed(fields: Fields, name: str, change: Callable[[Any], Any]) -> Fields:
    """Returns the fields with what `change` makes of each value of a field; GONE removes it, and an object that it
    leaves empty.

    An event may have a field more than once: nested, dotted, partly both, and in the objects of a list. A reader takes
    all of them for the field, so all are changed; so is each field below it whose name is dotted.
    """
    made = fields
    below = f"{name}."
    whole = [(key, "") for key in fields if key.startswith(below)]
    for key, rest in (*_spellings(name), *whole) if whole else _spellings(name):
        if key in fields:
            value = fields[key]
            new = _changed_below(value, rest, change) if rest else change(value)
            if new is GONE or (rest and new == {} and value):
                made = {other: kept for other, kept in made.items() if other != key}
            elif new is not value:
                made = {**made, key: new}
    return made


def _changed_below(value: Any, name: str, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return changed(value, name, change)
    return [_changed_below(one, name, change) for one in value] if isinstance(value, list) else value


@lru_cache  # names come from policies, and each event asks for them
def _spellings(name: str) -> tuple[tuple[str, str], ...]:
    """Returns each way to divide a name into a key and the rest of the name."""
    parts = name.split(".")
    return tuple((".".join(parts[:n]), ".".join(parts[n:])) for n in range(1, len(parts) + 1))


def check_name(name: str, *at: str | int) -> None:
    """Raises BadOption, at these keys, for an invalid name of a field."""
    if not name or not all(name.split(".")):
        raise BadOption(f"{name!r} is no name of a field", *at)


def check_names(option: str, names: Sequence[str]) -> None:
    """Raises BadOption for the first invalid name of a list."""
    for number, name in enumerate(names):
        check_name(name, option, number)


def check_pairs(option: str, pairs: Mapping[str, str]) -> None:
    """Raises BadOption for a mapping of names to names that is empty, or has an invalid or a repeated one."""
    if not pairs:
        raise BadOption("name at least one field", option)
    targets = set[str]()
    for source, target in pairs.items():
        check_name(source, option)
        check_name(target, option, source)
        if target in targets or target == source:
            raise BadOption(f"{target} is the target of two fields, or of itself", option, source)
        targets.add(target)


def check_removable(option: str, names: Iterable[str]) -> None:
    """Raises BadOption for a field that every event must have."""
    for name in names:
        if name in _NEVER_REMOVED:
            raise BadOption(f"{name} cannot be removed: every event has it", option)
