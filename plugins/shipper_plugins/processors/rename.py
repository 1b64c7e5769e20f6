"""`rename`: gives fields other names.

    {type: rename, fields: {msg: message, ctx.user: user.name}}

An event without a field keeps the rest of its renames. An event that has a field of the new name already stays as it is
and is tagged, so that no value is lost.
"""

from __future__ import annotations

from collections.abc import Collection

from shipper.plugin import Batch, Fields, Processor, edited
from shipper.sdk.fields import check_pairs, check_removable, find, put, without
from shipper.sdk.table import Cells, Table, Unfit


class Rename(Processor, frozen=True):
    """Gives fields other names."""

    fields: dict[str, str]
    """The new (dotted) name of each field, by its present one; in this order."""

    def __post_init__(self) -> None:
        check_pairs("fields", self.fields)
        check_removable("fields", self.fields)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the new names."""
        return edited(batch, [*self.fields, *self.fields.values()], self._renamed, self._columns)

    def _columns(self, table: Table) -> tuple[Table, Collection[int]]:
        for source, target in self.fields.items():
            opened = table.opened(source, target)
            if (node := opened.node(source)) is None:
                continue
            if opened.node(target) is not None or (isinstance(node, Cells) and node.has_null(table.count)):
                raise Unfit
            table = opened.without(source).put(target, node)
        return table, ()

    def _renamed(self, event: Fields) -> Fields:
        for source, target in self.fields.items():
            value = find(event, source)
            if value is None:
                continue
            if find(event, target) is not None:
                raise ValueError(f"rename: the event has {target} already")
            event = put(without(event, source), target, value)
        return event
