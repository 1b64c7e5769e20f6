"""`copy`: copies fields to other names.

    {type: copy, fields: {message: event.original}}

An event without a field keeps the rest of its copies. An event that has a field of the new name already stays as it is
and is tagged, so that no value is lost.
"""

from __future__ import annotations

from collections.abc import Collection

from shipper.plugin import Batch, Fields, Processor, edited
from shipper.sdk.fields import check_pairs, find, put
from shipper.sdk.table import Cells, Table, Unfit


class Copy(Processor, frozen=True):
    """Copies fields to other names."""

    fields: dict[str, str]
    """The (dotted) name of each copy, by the name of the field; in this order."""

    def __post_init__(self) -> None:
        check_pairs("fields", self.fields)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the copies."""
        return edited(batch, [*self.fields, *self.fields.values()], self._copied, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        for source, target in self.fields.items():
            opened = table.opened(source, target)
            if (node := opened.node(source)) is None:
                continue
            if opened.node(target) is not None or (isinstance(node, Cells) and node.has_null(table.count)):
                raise Unfit
            table = opened.put(target, node)
        return table, ()

    def _copied(self, event: Fields) -> Fields:
        for source, target in self.fields.items():
            value = find(event, source)
            if value is None:
                continue
            if find(event, target) is not None:
                raise ValueError(f"copy: the event has {target} already")
            event = put(event, target, value)
        return event
