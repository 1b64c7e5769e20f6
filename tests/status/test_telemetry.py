"""Own metrics and log as OTLP, read again by the library of OpenTelemetry."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from shipper.process import log
from shipper.status import telemetry
from shipper.status.metrics import families
from tests.status.test_http import HEALTHY

RESOURCE = {"service.name": "shipper", "host.name": "web-1"}
BEGAN, NOW = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000

Key = tuple[str, tuple[tuple[str, str], ...]]


def metrics(status: dict[str, Any]) -> dict[str, Any]:
    """By name, the metrics as the library reads them."""
    body = telemetry.metrics(status, RESOURCE, BEGAN, NOW)
    request = json_format.Parse(body, ExportMetricsServiceRequest())
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    assert attributes(of_resource.resource.attributes) == tuple(sorted(RESOURCE.items()))
    return {metric.name: metric for metric in of_scope.metrics}


def attributes(pairs: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair.key, pair.value.string_value) for pair in pairs))


def test_each_number_of_a_scrape_is_a_point_under_the_same_name_and_labels() -> None:
    found = metrics(HEALTHY)
    points: dict[Key, float] = {}
    for name, metric in found.items():
        if metric.WhichOneof("data") != "histogram":
            shown = name + "_total" if metric.HasField("sum") else name
            points |= {
                (shown, attributes(p.attributes)): p.as_double
                for p in getattr(metric, metric.WhichOneof("data")).data_points
            }
    scraped = {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in families(HEALTHY)
        if family.type != "histogram"
        for sample in family.samples
    }

    assert len(scraped) > 40
    assert points == scraped


def test_a_counter_is_cumulative_since_the_process_began() -> None:
    counter = metrics(HEALTHY)["shipper_retries"].sum
    (point,) = counter.data_points

    assert counter.is_monotonic
    assert counter.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (point.start_time_unix_nano, point.time_unix_nano) == (BEGAN, NOW)


def test_a_bucket_is_counted_by_itself() -> None:
    (point,) = metrics(HEALTHY)["shipper_output_request_seconds"].histogram.data_points

    assert list(point.bucket_counts) == HEALTHY["outputs"]["main"]["buckets"]  # type: ignore[index]
    assert len(point.explicit_bounds) == len(point.bucket_counts) - 1
    assert (point.count, point.sum) == (9, 121.5)
    assert attributes(point.attributes) == (("output", "main"),)


def test_a_status_without_a_policy_has_metrics() -> None:
    found = metrics({"state": "STARTING", "units": [], "supervisor": None})

    assert {"shipper_state", "shipper_build_info"} <= found.keys()
    assert "shipper_retries" not in found


def test_a_line_of_the_log_is_a_record_with_its_level_time_and_fields() -> None:
    line = log.as_json(
        {
            "event": "events became dead letters",
            "logger": "shipper.pipeline.attempts.settling",
            "level": "warning",
            "output": "main",
            "events": 3,
            "hosts": ["a", "b"],
            "error.type": "ValueError",
        }
    )
    request = json_format.Parse(telemetry.logs([line], RESOURCE), ExportLogsServiceRequest())
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    values = {pair.key: pair.value for pair in record.attributes}

    assert record.body.string_value == "events became dead letters"
    assert (record.severity_text, record.severity_number) == ("WARNING", 13)
    assert record.time_unix_nano == telemetry.nanoseconds(json.loads(line)["@timestamp"])
    assert values["shipper.events"].int_value == 3
    assert values["shipper.hosts"].string_value == '["a","b"]'
    assert values["exception.type"].string_value == "ValueError"
    assert values["log.logger"].string_value == "shipper.pipeline.attempts.settling"


def test_a_time_keeps_its_milliseconds() -> None:
    assert telemetry.nanoseconds("2026-01-02T03:04:05.678Z") == 1_767_323_045_678_000_000
