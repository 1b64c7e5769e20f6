r"""`parse`: turns a text into fields.

    {type: parse, format: nginx}
    {type: parse, format: json, field: message, target: app}

- `json`: the fields of the object become fields of the event (or of `target`) and replace those of the same name; the
  text is removed. Dotted names are nested ones. A value of the wrong shape (`{"host": "web-1"}`, where `host` is a
  group), or one that is not allowed (`data_stream`: the logged application writes the text, so it must not choose the
  destination), becomes a label: `json_lines` has the rule.
- `nginx`: the combined access log and the error log become ECS fields; `message` is kept. The error log has no time
  zone: its times count as local ones of this host. `\xHH` of nginx is decoded.

An event that does not parse stays unchanged, and is tagged with the error.

Speed: text lines without misfits are converted in runs, with one call of the writer for each: 1.3 µs a line of 195
bytes and 8 fields, 2.3 with groups in it, 3.2 with the dotted names of ECS; read one by one, 20 µs. To parse a whole
body as one array is no faster, and hostile lines (`{"a":[1`, `2]}`, `{},{}`) could move fields from one event to
another.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from shipper.plugin import BadOption, Batch, Fields, Processor, tagged
from shipper.sdk.fields import check_name, find, without
from shipper_plugins.processors import json_lines, json_runs, nginx


class Parse(Processor, frozen=True):
    """Turns a text into fields."""

    format: Literal["json", "nginx"]
    """The format of the text."""
    field: str = "message"
    """The (dotted) name of the field that holds the text."""
    target: str | None = None
    """With `json`: the (dotted) name of the field below which to put the fields (default: the event itself)."""

    def __post_init__(self) -> None:
        if self.target is not None and self.format != "json":
            raise BadOption("only format json has a target", "target")
        for option, name in (("field", self.field), ("target", self.target)):
            if name is not None:
                check_name(name, option)

    def process(self, batch: Batch) -> Batch:
        """Returns the batch with the fields of each event that parses."""
        if batch.offset is not None and self.field == "message":
            with suppress(ValueError, TypeError, RecursionError):
                return self._at_once(batch)
        shape = json_lines.shape(batch.shared)
        return batch.replace([self._parsed(event, shape) for event in batch.own()])

    def _at_once(self, batch: Batch) -> Batch:
        if self.format == "json":
            return json_runs.at_once(batch, json_lines.shape(batch.shared), self.target)
        return nginx.at_once(batch, lambda event: self._parsed(event, batch.shared))

    def _parsed(self, event: Fields, shape: Fields) -> Fields:
        text = find(event, self.field)
        text = text if text is not None else find(shape, self.field)
        if not isinstance(text, str):
            return tagged(event, f"parse: there is no text in {self.field}")
        try:
            if self.format == "json":
                return json_lines.fields(without(event, self.field), shape, text, self.target)
            return nginx.fields(event, text)
        except ValueError as error:
            return tagged(event, f"parse: {error}")
