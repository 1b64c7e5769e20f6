"""`aggregate`: merges events with equal fields into one.

    type: aggregate
    group_by: [service.name, http.response.status_code]
    window: 10s
    fields: {http.response.bytes: sum, event.duration: max, url.path: first}

Events with the same values of `group_by` become one, with these values, their number (`count_field`) and the merged
values of `fields`: `sum`, `min` and `max` of numbers (other values are ignored), `first` and `last` of any value. A
window begins with the first event, and ends for all groups together. Events with different targets or outputs are never
merged.

Events are held in memory for a window, and acknowledged when their aggregate is stored: the client of an input waits
until then, and after a crash unstored events are sent or read again. So nothing is lost, and nothing is counted twice.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from shipper.plugin import BadOption, Batch, Duration, Fields, Part, Processor, Size, Stage, StageContext
from shipper.sdk.fields import check_names, look_up, nested
from shipper_plugins.processors import keys

Merge = Literal["sum", "min", "max", "first", "last"]
_LONGEST_WINDOW = 3600
_GROUP_BYTES = 500
"""The memory of a group, in addition to its values."""
_LARGEST = 1 << 63
_MOST_BRACKETS = 200
"""The writer of JSON takes 254 levels, of which the names of fields take some."""


class Aggregate(Processor, frozen=True, kw_only=True):
    """Merges events with the same values of some fields into one."""

    keeps: ClassVar[str] = (
        "the groups of one window, at most `max_groups` of them and about `max_bytes`. At either limit the window ends "
        "early. No event is lost with it, since events are acknowledged only afterwards."
    )

    group_by: tuple[str, ...] = ()
    """The fields whose values make a group (default: all events are one group)."""
    window: Duration = Duration(10)
    """How long events are gathered, at most 1h."""
    fields: dict[str, Merge] = msgspec.field(default_factory=dict)
    """By field: how its values are merged."""
    count_field: str = "event.count"
    """The field that has the number of events."""
    max_groups: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """The number of groups that ends a window early."""
    max_bytes: Size = Size(16 << 20)
    """The memory of groups that ends a window early."""

    def __post_init__(self) -> None:
        check_names("group_by", self.group_by)
        names = [*self.group_by, *self.fields, self.count_field]
        for name in (*self.fields, self.count_field):
            if not all(name.split(".")):
                raise BadOption(f"{name!r} is no name of a field", "fields" if name in self.fields else "count_field")
        for name in names:
            if names.count(name) > 1 or any(other.startswith(f"{name}.") for other in names):
                raise BadOption(f"{name} is set twice, or a field below it is: each needs a name of its own", "fields")
        if not 0 < self.window <= _LONGEST_WINDOW:
            raise BadOption(f"must be above 0 and at most 1h, not {self.window}", "window")

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        """Acquires nothing."""
        yield _Aggregate(self, context)


@dataclass(slots=True)
class _Group:
    values: list[Any]
    """The values of `group_by`."""
    outputs: frozenset[str] | None
    route: str | None
    count: int = 0
    merged: dict[str, Any] = field(default_factory=dict)


class _Aggregate(Stage):
    def __init__(self, settings: Aggregate, context: StageContext) -> None:
        self._settings, self._context = settings, context
        self._groups: dict[tuple[frozenset[str] | None, str | None, bytes], _Group] = {}
        self._bytes = 0
        self._ends: float | None = None

    def process(self, part: Part) -> Sequence[Part]:
        """Returns nothing yet."""
        settings, batch = self._settings, part.batch
        looks = [look_up(own, batch.shared) for own in batch.own()]
        rows = [(keys.values(look, settings.group_by), keys.values(look, tuple(settings.fields))) for look in looks]
        texts = [keys.encoded(values) for values, _ in rows]
        if any(map(_may_be_deep, map(keys.encoded, rows))):
            raise ValueError("a value is nested too deeply")
        for (values, others), text in zip(rows, texts, strict=True):
            self._add(self._group(part.outputs, batch.route, text, values), others)
        if rows and self._ends is None:
            self._ends = self._context.now() + settings.window
        return []

    def _group(self, outputs: frozenset[str] | None, route: str | None, text: bytes, values: list[Any]) -> _Group:
        key = outputs, route, text
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(values, outputs, route)
            self._bytes += 2 * len(text) + _GROUP_BYTES
        return group

    def _add(self, group: _Group, values: Sequence[Any]) -> None:
        group.count += 1
        for (name, merge), value in zip(self._settings.fields.items(), values, strict=True):
            if value is None or not (merge in ("first", "last") or _is_number(value)):
                continue
            old = group.merged.get(name)
            group.merged[name] = value if old is None else _MERGE[merge](old, value)
            if old is None or merge == "last":
                self._bytes += len(keys.encoded(value)) - (0 if old is None else len(keys.encoded(old)))

    def flush(self) -> Sequence[Part]:
        """Returns one event for each group."""
        gathered: dict[tuple[frozenset[str] | None, str | None], list[Fields]] = {}
        for group in self._groups.values():
            gathered.setdefault((group.outputs, group.route), []).append(self._event(group))
        self.rollback()
        return [
            Part(replace(Batch.events(events), route=route), outputs) for (outputs, route), events in gathered.items()
        ]

    def _event(self, group: _Group) -> Fields:
        named = zip(self._settings.group_by, group.values, strict=True)
        fields = {name: value for name, value in named if value is not None}
        merged = {name: _written(value) for name, value in group.merged.items()}
        return nested({**fields, **merged, self._settings.count_field: group.count})

    @property
    def due(self) -> float | None:
        """The end of the window, or at once if there are too many groups."""
        is_full = len(self._groups) >= self._settings.max_groups or self._bytes >= self._settings.max_bytes
        return self._context.now() if is_full and self._ends is not None else self._ends

    def rollback(self) -> None:
        """Forgets all groups."""
        self._groups, self._bytes, self._ends = {}, 0, None


_MERGE: Mapping[Merge, Callable[[Any, Any], Any]] = {
    "sum": lambda old, new: old + new,
    "min": min,
    "max": max,
    "first": lambda old, new: old,
    "last": lambda old, new: new,
}


def _may_be_deep(text: bytes) -> bool:
    """Returns whether a group with these values may be nested too deeply to be written: that would fail every flush."""
    return text.count(b"{") + text.count(b"[") > _MOST_BRACKETS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _written(value: Any) -> Any:
    """Returns the value as a reader of JSON takes it: a very large sum is no integer there."""
    return float(value) if isinstance(value, int) and not -_LARGEST <= value < _LARGEST else value
