"""`add_fields`: sets the same fields in every event.

    {type: add_fields, fields: {service.name: shop, labels: {team: web}}}

The fields are stored once for the whole batch, so lines of text are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from shipper.plugin import BadOption, Batch, Fields, Processor
from shipper.sdk.fields import nested


class AddFields(Processor, frozen=True):
    """Sets fields in every event; replaces existing ones."""

    fields: dict[str, Any]
    """Names (dotted, or nested mappings) and their values."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise BadOption("name at least one field", "fields")
        _check_names(self.fields)
        try:
            orjson.dumps(self.fields)
        except TypeError as error:
            raise BadOption(f"no JSON value: {error}", "fields") from None

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the fields."""
        return batch.share(_nested(self.fields))


def _check_names(fields: Mapping[str, Any], *above: str) -> None:
    for name, value in fields.items():
        if not isinstance(name, str) or not all(name.split(".")):
            raise BadOption(f"{name!r} is no name of a field", "fields", *above)
        parts = name.split(".")
        prefix = next((up for up in (".".join(parts[:n]) for n in range(1, len(parts))) if up in fields), None)
        if prefix is not None:
            raise BadOption(f"{prefix} is set, and fields below it too: nest them", "fields", *above, name)
        if isinstance(value, Mapping):
            _check_names(value, *above, name)


def _nested(fields: Mapping[str, Any]) -> Fields:
    return nested({name: _nested(value) if isinstance(value, Mapping) else value for name, value in fields.items()})
