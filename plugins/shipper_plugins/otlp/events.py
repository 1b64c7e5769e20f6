"""Converts log records to events and back, with the names of Elasticsearch's mappings for OpenTelemetry. No I/O.

| OTLP | field of the event |
|---|---|
| resource: attributes, dropped count, schema | `resource.attributes`, `.dropped_attributes_count`, `.schema_url` |
| scope: name, version, and the same | `scope.name`, `scope.version`, and the same |
| time, otherwise observed time | `@timestamp`, in nanoseconds; and the column `timestamps`, of the time only |
| observed time | `observed_timestamp` |
| severity | `severity_number`, `severity_text`; and the column `severities` |
| body: an object, or a list with an object in it | `body.structured` |
| body: any other value | `body.text`, with its own type |
| attributes, dropped count | `attributes`, `dropped_attributes_count` |
| ids of trace and span | `trace_id`, `span_id`, in hex |
| flags, name of the event | `flags`, `event_name` |

Names of attributes keep their dots: `attributes` is flat. Empty values are omitted, but `resource` and `scope` always
exist: they mark an event of OTLP. The events of a batch share them; one with a value that JSON cannot represent exactly
(bytes, NaN) is in each event instead. A text is not repeated as `message`: in Elasticsearch's mappings for
OpenTelemetry that name is an alias of `body.text`, which no document may have.

*The reverse*: an event of another origin has its `message` as body; its `host`, `agent`, `service`, `container` and
`cloud` become attributes of the resource, and all other fields attributes of the record, with dotted names. So do
fields that processors added to a record. An integer of more than 64 bits becomes the text of its digits. A severity of
syslog or of the journal (`log.syslog.severity.code`) is the severity number too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from shipper.plugin import Batch, Fields
from shipper.sdk.fields import find, merged
from shipper_plugins.otlp.model import Group, Record, Resource, Scope, TooHeavy, Value

One = TypeVar("One")

BATCH_BYTES = 1 << 20
MOST_WEIGHT = 64 << 20
"""The most bytes of a request's resources and scopes, each once for each of its records."""
MOST_GROUPS = 100
"""The most groups of a request that become batches of their own; with more, each record has its resource and scope."""

MOST_TIME = 1 << 63
"""The first time that is too late, in nanoseconds."""
SEVERITIES = range(25)
"""Those of the column."""
_OF_SYSLOG = (21, 19, 18, 17, 13, 10, 9, 5)
"""By the code of syslog, from emergency to debug, as in the appendix B of OpenTelemetry's data model of logs."""
LONGEST_ID = 64
"""Bytes of an id of a trace or span."""
NAMES = frozenset(
    {
        "@timestamp",
        "observed_timestamp",
        "severity_number",
        "severity_text",
        "body",
        "attributes",
        "dropped_attributes_count",
        "trace_id",
        "span_id",
        "flags",
        "event_name",
    }
)
"""The fields of an event beside what it shares with others."""
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|z|[+-]\d\d:?\d\d)", re.ASCII)
_SOURCE = frozenset({"resource", "scope"})
_OF_RESOURCE = frozenset({"agent", "cloud", "container", "host", "service"})
_RESOURCE_FIELDS: Mapping[str, type] = {"attributes": dict, "dropped_attributes_count": int, "schema_url": str}
_SCOPE_FIELDS: Mapping[str, type] = {**_RESOURCE_FIELDS, "name": str, "version": str}


# -- records to batches ------------------------------------------------------------------------------------------------


def taken(groups: Sequence[Group]) -> tuple[list[Group], int, str]:
    """Returns the groups without invalid records, the number of these, and the reason of the first."""
    rejected, first = 0, ""
    kept = []
    for group in groups:
        sound = []
        for record in group.records:
            if reason := _unfit(record):
                rejected, first = rejected + 1, first or reason
            else:
                sound.append(record)
        kept.append(Group(resource=group.resource, scope=group.scope, records=sound))
    return kept, rejected, first


def _unfit(record: Record) -> str:
    if record.time >= MOST_TIME or record.observed >= MOST_TIME:
        return "a time is after the year 2262"
    if max(len(record.trace_id), len(record.span_id)) > LONGEST_ID:
        return f"an id of a trace or span has more than {LONGEST_ID} bytes"
    return ""


def batches(groups: Sequence[Group]) -> list[Batch]:
    """Returns typed batches of about 1 MiB, in the order of the records; empty groups make none.

    Raises TooHeavy if the resource and scope of each record take more than MOST_WEIGHT together.
    """
    filled = [Filled(fields_of(group), group.records) for group in groups if group.records]
    check_weight(filled)
    if len(filled) > MOST_GROUPS:
        return [batch for run in _runs(filled) for batch in _with_own(run)]
    return [batch for one in filled for batch in _batches(one)]


class Filled(NamedTuple, Generic[One]):
    """Records with the fields of their resource and scope."""

    fields: Fields
    records: Sequence[One]

    @property
    def weight(self) -> int:
        """The bytes of these fields in all records."""
        return len(self.records) * self.own_bytes

    @property
    def own_bytes(self) -> int:
        return len(msgspec.msgpack.encode(self.fields))


def check_weight(filled: Iterable[Filled[Any]]) -> None:
    """Raises TooHeavy if the resource and scope of each record take more than MOST_WEIGHT together: as soon as they do,
    since a resource may have many scopes."""
    weight = 0
    for one in filled:
        weight += one.weight
        if weight > MOST_WEIGHT:
            raise TooHeavy("its records take too much memory, each with its resource and scope: send them in parts")


def fields_of(group: Group) -> Fields:
    """Returns what the records of a group share."""
    return {"resource": _resource(group.resource), "scope": _scope(group.scope)}


def _runs(filled: Sequence[Filled[Record]]) -> Iterator[list[Filled[Record]]]:
    """Yields records with fields of their own, some MiB of them at once."""
    run, held = list[Filled[Record]](), 0
    for one in filled:
        size = one.own_bytes
        most = max(1, BATCH_BYTES // size)
        for first in range(0, len(one.records), most):
            part = one._replace(records=one.records[first : first + most])
            if run and held + size * len(part.records) > BATCH_BYTES:
                yield run
                run, held = [], 0
            run.append(part)
            held += size * len(part.records)
    if run:
        yield run


def _with_own(run: Sequence[Filled[Record]]) -> Iterator[Batch]:
    events = [one.fields | event_of(record) for one in run for record in one.records]
    return _columned(events, {}, [record for one in run for record in one.records])


def _batches(one: Filled[Record]) -> Iterator[Batch]:
    shared = {name: value for name, value in one.fields.items() if is_exact(value)}
    if shared == one.fields:
        yield from _columned([event_of(record) for record in one.records], shared, one.records)
        return
    own = {name: value for name, value in one.fields.items() if name not in shared}
    for run in _runs([Filled(own, one.records)]):
        for batch in _with_own(run):
            yield replace(batch, shared=shared)


def _columned(events: list[Fields], shared: Fields, records: Sequence[Record]) -> Iterator[Batch]:
    batch = Batch.typed(
        events,
        shared=shared,
        timestamps=[record.time or None for record in records],
        severities=[record.severity if record.severity in SEVERITIES else None for record in records],
    )
    return batch.pieces(BATCH_BYTES)


def is_exact(value: Value) -> bool:
    """Returns whether JSON represents the value exactly."""
    match value:
        case dict():
            return all(map(is_exact, value.values()))
        case list():
            return all(map(is_exact, value))
        case float():
            return value - value == 0
        case _:
            return not isinstance(value, bytes)


def _without_empty(**fields: Any) -> Fields:
    return {name: value for name, value in fields.items() if value}


def _resource(resource: Resource) -> Fields:
    dropped = resource.dropped
    return _without_empty(
        attributes=resource.attributes, dropped_attributes_count=dropped, schema_url=resource.schema_url
    )


def _scope(scope: Scope) -> Fields:
    return _without_empty(
        name=scope.name,
        version=scope.version,
        attributes=scope.attributes,
        dropped_attributes_count=scope.dropped,
        schema_url=scope.schema_url,
    )


def event_of(record: Record) -> Fields:
    """Returns a record as an event, without what it shares with others."""
    event: Fields = {}
    if time := record.time or record.observed:
        event["@timestamp"] = written(time)
    if record.observed:
        event["observed_timestamp"] = written(record.observed)
    if record.severity:
        event["severity_number"] = record.severity
    if record.severity_text:
        event["severity_text"] = record.severity_text
    if record.body is not None:
        event["body"] = {"structured" if is_structured(record.body) else "text": record.body}
    if record.attributes:
        event["attributes"] = record.attributes
    if record.dropped:
        event["dropped_attributes_count"] = record.dropped
    if record.trace_id:
        event["trace_id"] = record.trace_id.hex()
    if record.span_id:
        event["span_id"] = record.span_id.hex()
    if record.flags:
        event["flags"] = record.flags
    if record.event_name:
        event["event_name"] = record.event_name
    return event


def is_structured(body: Value) -> bool:
    """Returns whether a body stands in `body.structured`."""
    return isinstance(body, dict) or (isinstance(body, list) and any(isinstance(one, dict) for one in body))


def written(ns: int) -> str:
    """Returns a time as text, with all its nanoseconds."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{second_of(seconds)}.{rest:09}Z"


@lru_cache(1024)
def second_of(seconds: int) -> str:
    """Returns a second as text, without its zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# -- batches to records ------------------------------------------------------------------------------------------------


def groups(batch: Batch) -> list[Group]:
    """Returns the records of a batch, by resource and scope: those that share these with others (`Batch.ways`) in one
    group; of the others, neighbours with the same ones."""
    times = batch.timestamps if batch.timestamps is not None else [None] * batch.count
    severities = batch.severities if batch.severities is not None else [None] * batch.count
    found: list[Group] = []
    of_shared: dict[int, Group] = {}
    for own, shared, time, severity in zip(batch.own(), batch.each_shared(), times, severities, strict=True):
        event = merged(shared, own)
        if own.keys().isdisjoint(_SOURCE | _OF_RESOURCE):
            group = of_shared.get(id(shared)) or _group(found, source_of(shared))
            of_shared[id(shared)] = group
        else:
            group = _group(found, source_of(event))
        group.records.append(_record(event, time, severity, is_timed=batch.timestamps is not None))
    return found


def _group(found: list[Group], source: tuple[Resource, Scope]) -> Group:
    """Returns the last group if it has this source, else a new one."""
    if not found or source != (found[-1].resource, found[-1].scope):
        found.append(Group(resource=source[0], scope=source[1], records=[]))
    return found[-1]


def source_of(event: Fields) -> tuple[Resource, Scope]:
    """Returns the resource and the scope that the fields of an event say."""
    if not is_by_otlp(event):
        fields = {name: event[name] for name in sorted(_OF_RESOURCE & event.keys())}
        return Resource(attributes=flat(fields)), Scope()
    resource, scope = event["resource"], event["scope"]
    return (
        Resource(
            attributes=resource.get("attributes", {}),
            dropped=resource.get("dropped_attributes_count", 0),
            schema_url=resource.get("schema_url", ""),
        ),
        Scope(
            name=scope.get("name", ""),
            version=scope.get("version", ""),
            attributes=scope.get("attributes", {}),
            dropped=scope.get("dropped_attributes_count", 0),
            schema_url=scope.get("schema_url", ""),
        ),
    )


def is_by_otlp(event: Fields) -> bool:
    """Returns whether an event came by OTLP."""
    return _has(event.get("resource"), _RESOURCE_FIELDS) and _has(event.get("scope"), _SCOPE_FIELDS)


def _has(value: Value, fields: Mapping[str, type]) -> bool:
    """Returns whether the value is an object of only these fields, each of its type."""
    return isinstance(value, dict) and all(
        name in fields and type(one) is fields[name] and (name != "dropped_attributes_count" or _is_u32(one))
        for name, one in value.items()
    )


def _record(event: Fields, time: int | None, severity: int | None, *, is_timed: bool) -> Record:
    """Removes the fields of a record from `event`; the others are attributes."""
    record = Record(
        time=max(time or 0, 0),
        observed=_taken(event, "observed_timestamp", _ns) or 0,
        severity=_taken(event, "severity_number", _enumerated) or severity or _of_syslog(event),
        severity_text=_taken(event, "severity_text", _text) or "",
        dropped=_taken(event, "dropped_attributes_count", _u32) or 0,
        flags=_taken(event, "flags", _u32) or 0,
        trace_id=_taken(event, "trace_id", _id) or b"",
        span_id=_taken(event, "span_id", _id) or b"",
        event_name=_taken(event, "event_name", _text) or "",
        body=_body(event),
    )
    at = _taken(event, "@timestamp", _ns) or 0
    if not record.time and not (is_timed and record.observed):
        record.time = at
    attributes = _taken(event, "attributes", _object) or {}
    if is_by_otlp(event):
        for name in ("resource", "scope", "data_stream"):
            event.pop(name, None)
    else:
        for name in _OF_RESOURCE:
            event.pop(name, None)
    record.attributes = {**flat(event), **attributes} if event else attributes
    return record


def _of_syslog(event: Fields) -> int:
    """Returns the severity number of an event with a severity of syslog or of the journal; 0 for any other."""
    code = find(event, "log.syslog.severity.code")
    return _OF_SYSLOG[code] if type(code) is int and 0 <= code < len(_OF_SYSLOG) else 0


def _body(event: Fields) -> Value:
    match event.get("body"):
        case {"text": value, **rest} | {"structured": value, **rest} if not rest:
            del event["body"]
            return value
        case _:
            return event.pop("message", None)


def _taken(event: Fields, name: str, read: Any) -> Any:
    """Removes a field and returns its value; returns None, and keeps the field, if its value is invalid."""
    value = event.get(name)
    found = None if value is None else read(value)
    if found is not None:
        del event[name]
    return found


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: Value) -> Fields | None:
    return value if isinstance(value, dict) else None


def _is_u32(value: Value) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _u32(value: Value) -> int | None:
    return value if _is_u32(value) else None


def _enumerated(value: Value) -> int | None:
    return value if type(value) is int and -(1 << 31) <= value < 1 << 31 else None


def _id(value: Value) -> bytes | None:
    is_id = isinstance(value, str) and len(value) <= 2 * LONGEST_ID and _HEX.fullmatch(value)
    return bytes.fromhex(value) if is_id else None


def _ns(value: Value) -> int | None:
    """Returns the nanoseconds of a time of RFC 3339; None for an invalid one, and for one before 1970."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    second, fraction, zone = found.groups()
    try:
        seconds = _seconds(second, zone)
    except (ValueError, OverflowError):
        return None
    ns = seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    return ns if 0 <= ns < MOST_TIME else None


@lru_cache(1024)
def _seconds(second: str, zone: str) -> int:
    return int(datetime.fromisoformat(second.upper() + zone.upper()).timestamp())


def flat(fields: Mapping[str, Value]) -> Fields:
    """Returns nested fields by their dotted names; an empty object stays one."""
    result: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            result.update({f"{name}.{below}": one for below, one in flat(value).items()})
        else:
            result[name] = value
    return result
