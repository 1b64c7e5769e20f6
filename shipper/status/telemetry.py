"""The program's own metrics and log as documents of OTLP, in its JSON encoding. Pure.

Metrics have the names of `/metrics`, without the ending `_total`, which Prometheus gives to counters: what comes there
through a Collector is named as what it scrapes, so that rules and dashboards hold for both. Counters are cumulative
since the process began. A record of the log is a line of the log, which holds no secret and no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from shipper import __version__
from shipper.status.metrics import families

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

Json = dict[str, Any]

_SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
_SCOPE = {"name": "shipper", "version": __version__}
_CUMULATIVE = 2
_OF_THE_RESOURCE = ("@timestamp", "message", "log.level", "ecs.version", "service.name", "service.version")
_NAMES = {
    "error.type": "exception.type",
    "error.message": "exception.message",
    "error.stack_trace": "exception.stacktrace",
}
"""Names of OpenTelemetry for fields of ECS."""


def metrics(status: Mapping[str, Any], resource: Mapping[str, str], began: int, now: int) -> bytes:
    """Returns all metrics of a status as the body of a request; times are in nanoseconds since 1970."""
    times = {"startTimeUnixNano": str(began), "timeUnixNano": str(now)}
    found = [one for family in families(status) if (one := _metric(family, times)) is not None]
    return orjson.dumps({"resourceMetrics": [_of(resource, "scopeMetrics", "metrics", found)]})


def logs(lines: Iterable[bytes], resource: Mapping[str, str]) -> bytes:
    """Returns lines of the log, each a JSON object of ECS, as the body of a request."""
    return orjson.dumps({"resourceLogs": [_of(resource, "scopeLogs", "logRecords", [_record(line) for line in lines])]})


def _of(resource: Mapping[str, str], scopes: str, name: str, found: Sequence[Json]) -> Json:
    return {"resource": {"attributes": _attributes(resource)}, scopes: [{"scope": _SCOPE, name: found}]}


def _attributes(named: Mapping[str, Any]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in named.items()]


def _value(value: Any) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"stringValue": orjson.dumps(value).decode()}


# -- metrics -----------------------------------------------------------------------------------------------------------


def _metric(family: Metric, times: Mapping[str, str]) -> Json | None:
    """Returns a metric, or None if it has no number now."""
    if not family.samples:
        return None
    named = {"name": family.name, "description": family.documentation}
    if family.type == "histogram":
        points = [_distribution(labels, samples, times) for labels, samples in _series(family.samples)]
        return {**named, "histogram": {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}}
    points = [
        {"attributes": _attributes(sample.labels), **times, "asDouble": sample.value} for sample in family.samples
    ]
    if family.type == "counter":
        return {**named, "sum": {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True, "dataPoints": points}}
    return {**named, "gauge": {"dataPoints": points}}


def _series(samples: Iterable[Sample]) -> Iterator[tuple[Mapping[str, str], list[Sample]]]:
    """Yields the samples of a histogram by their labels, without the bound of a bucket."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        series.setdefault(labels, []).append(sample)
    yield from ((dict(labels), of_it) for labels, of_it in series.items())


def _distribution(labels: Mapping[str, str], samples: Sequence[Sample], times: Mapping[str, str]) -> Json:
    """Prometheus counts a bucket with all below it, OTLP each by itself."""
    buckets = [sample for sample in samples if "le" in sample.labels]
    upto = [int(sample.value) for sample in buckets]
    counts = [count - below for count, below in zip(upto, [0, *upto], strict=False)]
    point: Json = {"attributes": _attributes(labels), **times, "count": str(upto[-1])}
    point |= {"bucketCounts": [str(count) for count in counts]}
    point |= {"explicitBounds": [float(sample.labels["le"]) for sample in buckets[:-1]]}
    return point | {"sum": next(sample.value for sample in samples if sample.name.endswith("_sum"))}


# -- the log -----------------------------------------------------------------------------------------------------------


def _record(line: bytes) -> Json:
    fields: Json = orjson.loads(line)
    level = fields["log.level"]
    others = {_NAMES.get(key, key): value for key, value in fields.items() if key not in _OF_THE_RESOURCE}
    return {
        "timeUnixNano": str(nanoseconds(fields["@timestamp"])),
        "severityNumber": _SEVERITIES[level],
        "severityText": level.upper(),
        "body": {"stringValue": fields["message"]},
        "attributes": _attributes({key: value for key, value in others.items() if value is not None}),
    }


def nanoseconds(timestamp: str) -> int:
    """Returns a time of the log, which is in milliseconds, in nanoseconds since 1970."""
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000) * 1_000_000
