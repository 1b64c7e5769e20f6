r"""`parse`: a line of text becomes fields.

    {type: parse, format: nginx}
    {type: parse, format: json, field: message, target: app}

- `json`: the fields of the object become fields of the event (or of `target`), over those of the same name, and the
  text goes, since nothing of it is lost. Two things are refused: a text is written by whoever is logged, so it never
  says to which `data_stream` it goes; and a plain value never replaces a group of fields of the event (`{"log": "…"}`,
  as container runtimes write it, would take `log.file.path` away and be refused by the destination's mapping): use
  `target` there.
- `nginx`: the combined access log and the error log become ECS fields; `message` is kept. The error log has no time
  zone: its times are taken for local ones of this host. What nginx writes as `\xHH` is decoded.

An event that does not parse goes on as it is, tagged with the error.

Speed: where all text lines of a batch are objects, which need not be merged with anything, their fields go from JSON to
JSON in runs, by one call of the writer for each: 2.1 µs a line of 255 bytes and 8 fields, of which loading takes 0.9;
an event of its own for each: 5.8 µs. To parse a whole body as one array is no faster, and hostile lines (`{"a":[1`,
`2]}`, `{},{}`) could move fields from one event to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import orjson

from shipper.plugin import BadOption, Batch, Fields, Processor, encoded, join, merged, nested, tagged
from shipper_plugins.processors import nginx

_RUN = 256
"""Objects that are held at once; those of a whole batch would leave the processor's cache (0.3 µs a line)."""


class Parse(Processor, frozen=True):
    """Makes fields of a text."""

    format: Literal["json", "nginx"]
    """How the text is written."""
    field: str = "message"
    """The (dotted) name of the field that holds the text."""
    target: str | None = None
    """With `json`: the (dotted) name of the field below which to put the fields (default: the event itself)."""

    def __post_init__(self) -> None:
        if self.target is not None and self.format != "json":
            raise BadOption("only format json has a target", "target")
        for option, name in (("field", self.field), ("target", self.target)):
            if name is not None and not all(name.split(".")):
                raise BadOption(f"{name!r} is no name of a field", option)

    def process(self, batch: Batch) -> Batch:
        """The batch with the fields of each event that parses."""
        if batch.offset is not None and self.field == "message":
            with suppress(ValueError, TypeError):
                return self._at_once(batch)
        return batch.replace([self._parsed(event, batch.shared) for event in batch.own()])

    def _at_once(self, batch: Batch) -> Batch:
        if self.format == "json":
            return self._json_at_once(batch)
        return nginx.at_once(batch, lambda event: self._parsed(event, batch.shared))

    def _json_at_once(self, batch: Batch, own: frozenset[str] = frozenset()) -> Batch:
        """The common case: text lines that are all good; raises ValueError or TypeError for any other.

        `own` are the shared fields that some object is known to have too; if another is met, all begins again.
        """
        groups = _groups(batch.shared) | {"log"}
        lines = batch.body.split(b"\n")[:-1]
        tails: list[bytes] = []
        for at in range(0, len(lines), _RUN):
            objects = self._objects(lines[at : at + _RUN])
            keys = set[str]().union(*objects)
            if not keys.isdisjoint(groups):
                raise ValueError("a group may have to be merged")
            if not own.issuperset(keys & batch.shared.keys()):
                return self._json_at_once(batch, own.union(keys & batch.shared.keys()))
            for key in own:
                for made in objects:
                    made.setdefault(key, batch.shared[key])
            tails += [document[1:] for document in encoded(objects)]
        shared = {key: value for key, value in batch.shared.items() if key not in own and key != "log"}
        return batch.rewritten(join(batch.count, b"{", *batch.log_columns(), b",", tails, b"\n"), shared)

    def _objects(self, lines: list[bytes]) -> list[Fields]:
        objects = list(map(orjson.loads, lines))
        if set(map(type, objects)) != {dict}:
            raise ValueError("a text is not a JSON object")
        for key in reversed(self.target.split(".")) if self.target else ():
            objects = [{key: made} for made in objects]
        if not all(objects):
            raise ValueError("an object is empty")
        return objects

    def _parsed(self, event: Fields, shared: Fields) -> Fields:
        text = _find(event, self.field)
        text = text if text is not None else _find(shared, self.field)
        if not isinstance(text, str):
            return tagged(event, f"parse: there is no text in {self.field}")
        try:
            return self._from_json(event, shared, text) if self.format == "json" else nginx.fields(event, text)
        except ValueError as error:
            return tagged(event, f"parse: {error}")

    def _from_json(self, event: Fields, shared: Fields, text: str) -> Fields:
        made = self._object(text)
        if self.target is None:
            for key in _groups(merged(shared, event)) & made.keys():
                if key == "data_stream" or not isinstance(made[key], dict):
                    raise ValueError(f"the object may not set {key} here")
        return merged(_without(event, self.field), self._placed(made))

    def _object(self, text: str) -> Fields:
        try:
            made = orjson.loads(text)
            if type(made) is dict:
                orjson.dumps(self._placed(made))  # what is nested more deeply than it writes would stop the whole batch
        except (ValueError, TypeError):
            raise ValueError("the text is not JSON") from None
        if not isinstance(made, dict):
            raise ValueError("the text is not a JSON object")
        return made

    def _placed(self, made: Fields) -> Fields:
        return made if self.target is None else nested({self.target: made})


def _groups(event: Mapping[str, Any]) -> set[str]:
    """The keys that a text may not replace by a plain value."""
    return {key for key, value in event.items() if isinstance(value, Mapping)} | {"data_stream"}


def _find(fields: Mapping[str, Any], name: str) -> Any:
    for key in name.split("."):
        if not isinstance(fields, Mapping) or key not in fields:
            return None
        fields = fields[key]
    return fields


def _without(event: Fields, name: str) -> Fields:
    head, _, rest = name.partition(".")
    if rest and isinstance(event.get(head), dict):
        return {**event, head: _without(event[head], rest)}
    return {key: value for key, value in event.items() if key != name}
