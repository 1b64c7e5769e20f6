"""`drop_fields`: removes fields.

    {type: drop_fields, fields: [agent, log.offset, http.request.headers]}

A group is removed with all fields in it, and a field in each of its spellings: nested, dotted, and in the objects of a
list. `@timestamp` and `data_stream` stay: without them an event has no time, or no place to go.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from shipper.plugin import Batch, Fields, Processor, edited
from shipper.sdk.fields import GONE, changed, check_names, check_removable
from shipper.sdk.table import Table


class DropFields(Processor, frozen=True):
    """Removes fields."""

    fields: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The (dotted) names of the fields."""

    def __post_init__(self) -> None:
        check_names("fields", self.fields)
        check_removable("fields", self.fields)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch without the fields."""
        return edited(batch, self.fields, self._shortened, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        for name in self.fields:
            table = table.opened(name).without(name)
        return table, ()

    def _shortened(self, event: Fields) -> Fields:
        for name in self.fields:
            event = changed(event, name, lambda value: GONE)
        return event
