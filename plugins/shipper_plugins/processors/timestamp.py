"""`timestamp`: reads the time of an event from a field.

    type: timestamp
    field: time
    layouts: ["02/Jan/2006:15:04:05 -0700", "2006-01-02T15:04:05.000Z07:00", UNIX_MS]
    timezone: Europe/Berlin        # of texts without a zone; default UTC
    test: ["17/May/2026:12:34:56 +0200"]

The first layout that the text matches is taken: see `layouts`. `test` has texts that one of the layouts must read, so
that a wrong layout is refused with the policy. The field itself stays; remove it with `drop_fields`.

An event without the field, or whose text matches no layout, keeps its time and is tagged.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec

from shipper.plugin import BadOption, Batch, Fields, Processor, edited
from shipper.sdk.fields import check_name, find, put
from shipper.sdk.table import Cells, Table, Unfit, constant, is_full
from shipper_plugins.processors.instants import arrival
from shipper_plugins.processors.layouts import Reading, reading

_TIME = "@timestamp"


class Timestamp(Processor, frozen=True):
    """Reads the time of an event from a field."""

    field: str
    """The (dotted) name of the field that holds the time."""
    layouts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
    """Layouts as in Beats (Go's reference time), `UNIX` or `UNIX_MS`; the first that fits is taken."""
    timezone: str = "UTC"
    """The zone of texts that name none, such as `Europe/Berlin`."""
    target_field: str = _TIME
    """The (dotted) name of the field to set."""
    test: tuple[str, ...] = ()
    """Texts that must be read; otherwise the policy is refused."""

    def __post_init__(self) -> None:
        check_name(self.field, "field")
        check_name(self.target_field, "target_field")
        try:
            zone = _zone(self.timezone)
        except (KeyError, ValueError, OSError):
            raise BadOption("this host knows no such time zone; write one such as Europe/Berlin", "timezone") from None
        for number, layout in enumerate(self.layouts):
            try:
                reading(layout, zone)
            except ValueError as error:
                raise BadOption(str(error), "layouts", number) from None
        for number, text in enumerate(self.test):
            try:
                self._read(text, datetime.now(UTC))
            except ValueError:
                raise BadOption("no layout reads this", "test", number) from None

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the times that could be read."""
        return edited(batch, [self.field, self.target_field, _TIME], self._timed, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        table = table.opened(self.field, self.target_field)
        texts, before = table.cells(self.field), table.cells(_TIME) or constant(None)
        if texts is None or texts.sparse or before.sparse:
            raise Unfit
        read = self._reader()
        if before.constant is None or texts.has_null(table.count):
            both = Cells(b"[", *texts.columns, b",", *before.columns, b"]")
            made, refused = both.changed(table.count, lambda pair: read(pair[0], arrival(pair[1])))
        else:
            now = arrival(before.each(1, lambda time: time)[0])
            made, refused = texts.changed(table.count, lambda value: read(value, now))
        if (there := table.node(self.target_field)) is not None and not is_full(there):
            raise Unfit
        return table.put(self.target_field, made), refused

    def _timed(self, event: Fields) -> Fields:
        value = find(event, self.field)
        if value is None:
            raise ValueError(f"timestamp: there is no {self.field}")
        try:
            return put(event, self.target_field, self._read(value, arrival(event.get(_TIME))))
        except ValueError:
            raise ValueError(f"timestamp: {self.field} is no time in any of the layouts") from None

    def _read(self, value: Any, now: datetime) -> str:
        return self._reader()(value, now)

    def _reader(self) -> Reading:
        zone = _zone(self.timezone)
        readings = [reading(layout, zone) for layout in self.layouts]

        def read(value: Any, now: datetime) -> str:
            for one in readings:
                try:
                    return one(value, now)
                except ValueError:
                    continue
            raise ValueError("not a time")

        return read


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
