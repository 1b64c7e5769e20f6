"""The templates that Elasticsearch and OpenSearch should have for the data streams of a policy. No I/O.

    component template  shipper@mappings          the fields that inputs and processors make
    index template      shipper-logs-nginx.access  for logs-nginx.access-*, of data streams

- Texts are `keyword` unless they are searched by words; a text is never taken for a date, so one odd value does not
  decide the type of a field for all that follow.
- Their priority is above that of Elasticsearch's own `logs-*-*` (100), of whose parts they are made too, where it has
  them: so its lifecycle stays. It is below that of its integrations (200), which go before them.
- A digest in `_meta` says which form a template has. So it is written once, a newer form of it replaces an older one,
  and what a person has changed below it stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from shipper.plugin.asking import State

Kind = Literal["component template", "index template"]

MAPPINGS = "shipper@mappings"
PRIORITY = 150
_OWNER = "shipper"
_STREAM = re.compile(r"(?P<type>[a-z]+)-(?P<dataset>[^-*]+)-[^*]+")
_PATHS: Mapping[Kind, str] = {"component template": "_component_template", "index template": "_index_template"}


class Template(msgspec.Struct, frozen=True):
    """A template, without what says whose it is."""

    kind: Kind
    name: str
    body: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Its path in a URL."""
        return f"/{_PATHS[self.kind]}/{self.name}"

    @property
    def digest(self) -> str:
        """Equal for equal templates."""
        return hashlib.sha256(msgspec.json.encode(self.body, order="deterministic")).hexdigest()[:16]

    @property
    def content(self) -> Mapping[str, Any]:
        """The template as it is written."""
        return {**self.body, "_meta": {"managed_by": _OWNER, "digest": self.digest}}

    def state(self, found: Any) -> State:
        """Returns the state of what a backend has under this name; None: nothing."""
        if found is None:
            return "missing"
        meta = found.get("_meta") if isinstance(found, dict) else None
        if not isinstance(meta, dict) or meta.get("managed_by") != _OWNER:
            return "foreign"
        return "same" if meta.get("digest") == self.digest else "different"


def stock(targets: Iterable[str]) -> list[str]:
    """Returns the component templates that Elasticsearch itself may have for these places: their lifecycle, and the
    fields of ECS."""
    types = sorted({found["type"] for found in map(_STREAM.fullmatch, targets) if found})
    of_types = [f"{type}@{part}" for type in types for part in ("mappings", "settings")]
    return [*of_types, "ecs@mappings"] if types else []


def templates(targets: Iterable[str], there: Collection[str] = ()) -> list[Template]:
    """Returns the templates for these places, in the order in which they are written; a place that is not named like a
    data stream needs none. Those of the `stock` that are `there` are part of them."""
    streams = list(_streams(targets, there))
    mappings = Template("component template", MAPPINGS, {"template": {"mappings": _MAPPINGS}})
    return [mappings, *streams] if streams else []


def _streams(targets: Iterable[str], there: Collection[str]) -> Iterator[Template]:
    kinds = {(found["type"], found["dataset"]) for found in map(_STREAM.fullmatch, targets) if found}
    for type, dataset in sorted(kinds):
        own = [name for name in stock([f"{type}-{dataset}-x"]) if name in there]
        body = {
            "index_patterns": [f"{type}-{dataset}-*"],
            "data_stream": {},
            "composed_of": [*own, MAPPINGS],
            "priority": PRIORITY,
        }
        yield Template("index template", f"{_OWNER}-{type}-{dataset}", body)


_KEYWORD = {"type": "keyword", "ignore_above": 1024}
_TEXT = {"type": "text", "norms": False}
_LONG, _DATE = {"type": "long"}, {"type": "date"}
_IP = {"type": "ip", "ignore_malformed": True}


def _object(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


_MAPPINGS: Mapping[str, Any] = {
    "date_detection": False,
    "dynamic_templates": [
        {"addresses": {"match_mapping_type": "string", "match": "ip", "mapping": _IP}},
        {"texts": {"match_mapping_type": "string", "mapping": _KEYWORD}},
    ],
    "properties": {
        "@timestamp": _DATE,
        "message": _TEXT,
        "error": _object(message=_TEXT),
        "event": _object(created=_DATE, ingested=_DATE, duration=_LONG),
        "http": _object(
            request=_object(body=_object(bytes=_LONG), bytes=_LONG),
            response=_object(status_code=_LONG, body=_object(bytes=_LONG), bytes=_LONG),
        ),
        "log": _object(offset=_LONG),
        "process": _object(pid=_LONG),
    },
}
