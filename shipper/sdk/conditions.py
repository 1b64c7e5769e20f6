r"""PUBLIC: conditions on events, as Beats users write them.

    or:
      - equals: {http.response.status_code: 200, url.path: /health}
      - regexp: {user_agent.original: '^kube-probe/'}
      - and: [{range: {event.duration: {lt: 1000}}}, {not: {has_fields: [error.message]}}]

A condition has exactly one key; if it names several fields, all must match. A list matches if one of its values does. A
missing field, or a value of another type, never matches.

A regular expression has the syntax of RE2, as in Beats (see `patterns`), and searches only the first 4096 characters of
a text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import compress, count
from operator import not_
from typing import Any

import msgspec

from shipper.sdk import patterns
from shipper.sdk.errors import BadOption
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields, find, look_up
from shipper.sdk.settings import Settings
from shipper.sdk.table import Cells, Table, Unfit, is_full

Scalar = str | int | float | bool
Test = Callable[[Callable[[str], Any]], bool]
"""Takes a look-up of dotted names; returns whether the event meets the condition."""

_LONGEST_TEXT = 4096


class Range(Settings, frozen=True):
    """Bounds for a number."""

    gte: float | None = None
    gt: float | None = None
    lte: float | None = None
    lt: float | None = None

    def __post_init__(self) -> None:
        if (self.gte, self.gt, self.lte, self.lt) == (None, None, None, None):
            raise ValueError("range: give at least one of gte, gt, lte, lt")

    def holds(self, value: Any) -> bool:
        """Returns whether `value` is a number within the bounds."""
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (self.gte is None or value >= self.gte)
            and (self.gt is None or value > self.gt)
            and (self.lte is None or value <= self.lte)
            and (self.lt is None or value < self.lt)
        )


class Condition(Settings, frozen=True):
    """A condition on an event; exactly one key."""

    equals: dict[str, Scalar] | None = None
    """The field has this value."""
    contains: dict[str, str] | None = None
    """The field's text contains this."""
    regexp: dict[str, str] | None = None
    """This regular expression (RE2: no look-around) is found in the first 4096 characters of the field's text."""
    range: dict[str, Range] | None = None
    """The field is a number within these bounds."""
    has_fields: list[str] | None = None
    """The event has all these fields."""
    and_: list[Condition] | None = msgspec.field(default=None, name="and")
    """All of these hold."""
    or_: list[Condition] | None = msgspec.field(default=None, name="or")
    """One of these holds."""
    not_: Condition | None = msgspec.field(default=None, name="not")
    """This does not hold."""

    def __post_init__(self) -> None:
        parts = {name.rstrip("_"): getattr(self, name) for name in self.__struct_fields__}
        given = [name for name, part in parts.items() if part is not None]
        if len(given) != 1:
            raise ValueError(f"a condition has exactly one of {', '.join(parts)}" + (f", not {given}" if given else ""))
        if not parts[given[0]]:
            raise BadOption("must not be empty", given[0])
        for name, pattern in (self.regexp or {}).items():
            patterns.check_pattern(pattern, "regexp", name)

    def searches(self) -> bool:
        """Returns whether the condition has a regular expression."""
        parts = [*(self.and_ or ()), *(self.or_ or ()), *filter(None, (self.not_,))]
        return self.regexp is not None or any(part.searches() for part in parts)

    def meet(self, batch: Batch) -> list[int]:
        """Returns the positions of the events that meet the condition."""
        test, shared = self.test(), batch.shared
        with suppress(Unfit):
            return list(compress(count(), self.met(batch.table(), shared)))
        return [at for at, own in enumerate(batch.own()) if test(look_up(own, shared))]

    def met(self, table: Table, shared: Fields) -> list[bool]:
        """Returns for each row whether it meets the condition; raises Unfit if columns do not tell."""
        met = self._met(table, shared)
        if table.odd:
            test = self.test()
            for place, own in table.odd.items():
                met[place] = test(look_up(own, shared))
        return met

    def _met(self, table: Table, shared: Fields) -> list[bool]:
        if self.not_ is not None:
            return list(map(not_, self.not_._met(table, shared)))
        parts = [condition._met(table, shared) for condition in self.and_ or self.or_ or ()]
        parts += [_column(table, shared, name, fits) for name, fits in self._fits()]
        return parts[0] if len(parts) == 1 else list(map(any if self.or_ else all, zip(*parts, strict=True)))

    def _fits(self) -> list[tuple[str, Callable[[Any], bool]]]:
        """Returns the fields that it looks at itself, and which values of them meet it."""
        if self.has_fields is not None:
            return [(name, lambda value: value is not None) for name in self.has_fields]
        tests: list[tuple[str, Callable[[Any], bool]]] = [
            *((name, partial(_equal, wanted)) for name, wanted in (self.equals or {}).items()),
            *((name, partial(_contains, wanted)) for name, wanted in (self.contains or {}).items()),
            *((name, _search(pattern)) for name, pattern in (self.regexp or {}).items()),
            *((name, bounds.holds) for name, bounds in (self.range or {}).items()),
        ]
        return [(name, _of_some(fits)) for name, fits in tests]

    def test(self) -> Test:
        """Returns the condition as a function of one event; make it once for a batch."""
        if self.not_ is not None:
            refused = self.not_.test()
            return lambda look: not refused(look)
        if self.and_ or self.or_:
            tests = [condition.test() for condition in self.and_ or self.or_ or ()]
            quantifier = all if self.and_ else any
            return lambda look: quantifier(test(look) for test in tests)
        fits = self._fits()
        return lambda look: all(fit(look(name)) for name, fit in fits)


def _column(table: Table, shared: Fields, name: str, fits: Callable[[Any], bool]) -> list[bool]:
    """Returns for each row whether a field, which may be a shared one, fits."""
    table = table.opened(name)
    below = find(shared, name)
    node = table.node(name)
    if not isinstance(node, Cells):
        if node is not None and not is_full(node):
            raise Unfit
        return [fits(below if node is None else {})] * table.count
    return node.each(table.count, lambda value: fits(below if value is None else value))


def _of_some(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns whether a value, or one in a list of them, fits."""
    return lambda value: any(map(fits, value)) if isinstance(value, list) else fits(value)


def _equal(wanted: Scalar, value: Any) -> bool:
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _contains(wanted: str, value: Any) -> bool:
    return isinstance(value, str) and wanted in value


def _search(pattern: str) -> Callable[[Any], bool]:
    found = patterns.searcher(pattern)
    return lambda value: isinstance(value, str) and found(value[:_LONGEST_TEXT])
