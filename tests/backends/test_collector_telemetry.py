"""A real OpenTelemetry Collector gets the metrics and the log of the program itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.testing import Document, Reply, Request
from tests.backends.collector import Collector
from tests.story.driver import Sidecar, launched
from tests.story.world import open_world
from tests.supervise.driver import Site

pytestmark = pytest.mark.backend

PATIENCE = 60.0
DELIVERED = "shipper_events", frozenset({("output", "main"), ("outcome", "delivered")})
TOKEN = "Bearer not-for-the-log-of-anybody"


@asynccontextmanager
async def exporting(state: Path, collector: Collector, **env: str) -> AsyncIterator[Sidecar]:
    """A sidecar that sends its metrics four times a second."""
    env = {"OTEL_METRIC_EXPORT_INTERVAL": "250", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test%20bed", **env}
    async with launched(state, "--otlp", f"http://127.0.0.1:{collector.http}", env=env) as sidecar:
        await sidecar.hello()
        yield sidecar


def rejecting(request: Request, documents: list[Document]) -> Reply:
    return Reply(items=dict.fromkeys(range(len(documents)), (400, "mapper_parsing_exception")))


async def until(condition: Callable[[], Any]) -> Any:
    """Waits for what other processes do."""
    with trio.fail_after(PATIENCE):
        while not (found := condition()):  # noqa: ASYNC110
            await trio.sleep(0.05)
        return found


def named(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}


def numbers(collector: Collector) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The last numbers that the Collector has, by name and attributes."""
    found = {}
    for request in list(collector.sink.metrics):
        for of_resource in request.resource_metrics:
            for metric in of_resource.scope_metrics[0].metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    number = point.count if metric.HasField("histogram") else point.as_double
                    found[metric.name, frozenset(named(point.attributes).items())] = number
    return found


def lines(collector: Collector) -> list[str]:
    """The messages of the log, in the order in which they came."""
    requests = [of for request in list(collector.sink.requests) for of in request.resource_logs]
    return [record.body.string_value for of in requests for scope in of.scope_logs for record in scope.log_records]


async def test_a_collector_has_the_metrics_and_the_log_of_a_sidecar(tmp_path: Path, collector: Collector) -> None:
    collector.sink.metrics.clear()
    collector.sink.requests.clear()
    collector.start()
    took = "shipper_output_request_seconds", frozenset({("output", "main")})
    async with open_world(tmp_path, "a") as world, exporting(world.state, collector) as sidecar:
        await world.settled(sidecar, 1, "a")
        world.write(7)
        await world.delivered()
        await until(lambda: numbers(collector).get(DELIVERED) == 7 and numbers(collector).get(took, 0) >= 1)
        world.destination.script = rejecting
        world.write(2)
        await until(lambda: "events became dead letters" in lines(collector))
        degraded = frozenset({("state", "DEGRADED")})
        await until(lambda: numbers(collector).get(("shipper_state", degraded)) == 1)
        world.destination.script = None
        world.write(1)
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0)
        await sidecar.stop()
        resource = named(collector.sink.metrics[-1].resource_metrics[0].resource.attributes)

    assert resource["service.name"] == "shipper"
    assert resource["service.instance.id"].endswith(f":{world.state}")
    assert resource["deployment.environment"] == "test bed"


async def test_the_last_numbers_are_sent_at_the_end_of_the_process(tmp_path: Path, collector: Collector) -> None:
    collector.sink.metrics.clear()
    collector.start()
    hourly = {"OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
    async with open_world(tmp_path, "a") as world, exporting(world.state, collector, **hourly) as sidecar:
        await until(lambda: collector.sink.metrics)
        await world.settled(sidecar, 1, "a")
        world.write(5)
        await world.delivered()
        await sidecar.stop()

    assert numbers(collector)[DELIVERED] == 5


async def test_a_supervisor_sends_its_own_lines_and_has_its_sidecar_send_the_metrics(
    tmp_path: Path, collector: Collector
) -> None:
    collector.sink.metrics.clear()
    collector.sink.requests.clear()
    collector.start()
    site = Site(tmp_path, fake_sidecar=False)
    site.environment["OTEL_METRIC_EXPORT_INTERVAL"] = "250"
    (tmp_path / "config.yaml").write_text(json.dumps({"otlp": f"http://127.0.0.1:{collector.http}"}))
    async with site.supervisor():
        await until(lambda: any(line.startswith("sidecar is ready") for line in lines(collector)))
        await until(lambda: any(name == "shipper_supervisor_restarts" for name, _ in numbers(collector)))
    (request, *_) = collector.sink.requests
    logs = named(request.resource_logs[0].resource.attributes)
    metrics = named(collector.sink.metrics[-1].resource_metrics[0].resource.attributes)

    assert logs["service.instance.id"].endswith(f":{site.state}")
    assert metrics["service.instance.id"].endswith(f":{site.state}/sidecar")


async def test_while_the_collector_is_away_events_are_shipped_and_lines_wait(
    tmp_path: Path, collector: Collector
) -> None:
    collector.sink.requests.clear()
    collector.end()
    headers = f"authorization={TOKEN.replace(' ', '%20')}"
    async with (
        open_world(tmp_path, "a") as world,
        exporting(world.state, collector, OTEL_EXPORTER_OTLP_HEADERS=headers) as sidecar,
    ):
        await world.settled(sidecar, 1, "a")
        world.write(5)
        await world.delivered()
        await until(lambda: b"own metrics cannot be exported" in sidecar.log)
        collector.start()
        await until(lambda: b"own logs are exported again" in sidecar.log)
        await until(lambda: "own metrics cannot be exported" in lines(collector))
        observed = await sidecar.observe()
        collector.end()
        await sidecar.stop()
        log = sidecar.log

    assert observed["state"] == "HEALTHY"
    assert log.count(b"own metrics cannot be exported") <= 2
    assert TOKEN.encode() not in log
