"""A real OpenTelemetry Collector on either side of the shipper: every record once, with its types."""

from collections import Counter
from pathlib import Path

import pytest
import trio
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from shipper_plugins.otlp import protobuf
from shipper_plugins.otlp.model import Group, Record, Resource, Scope
from tests.story.driver import launched, policy

pytestmark = pytest.mark.backend

VALUES = [(1 << 63) - 1, -(1 << 63), b"\0\xff", "", {}, [], None, float("nan"), -0.0, True, {"a": [1.0, {"b": b"x"}]}]
OUTPUTS = {
    "grpc": "{{type: otlp, endpoint: 'http://127.0.0.1:{0.grpc}'}}",
    "http": "{{type: otlp, protocol: http, endpoint: 'http://127.0.0.1:{0.http}'}}",
    "json": "{{type: otlp, protocol: http, encoding: json, endpoint: 'http://127.0.0.1:{0.http}'}}",
}


def text(collector, out="grpc", more=""):
    ports = collector.to_shipper
    at = f"grpc: '127.0.0.1:{ports['grpc']}', http: '127.0.0.1:{ports['http']}'"
    output = OUTPUTS[out].format(collector)
    return policy(inputs=f"  apps: {{type: otlp, {at}{more}}}\n", outputs=f"  main: {output}\n")


def request(first, count):
    groups = [
        Group(
            resource=Resource(attributes={"service.name": "shop", "value": value}, schema_url="https://example.org/r"),
            scope=Scope(name="lib", version="1", attributes={"value": value}),
            records=[
                Record(
                    time=number + 1,
                    observed=number + 2,
                    severity=number % 25,
                    severity_text="INFO",
                    body=value,
                    attributes={"number": number, "value": value},
                    dropped=number,
                    flags=1,
                    trace_id=number.to_bytes(16, "big") if number else b"",
                    span_id=b"\2" * 8,
                    event_name="sold",
                )
                for number in range(first + place, first + count, len(VALUES))
            ],
        )
        for place, value in enumerate(VALUES)
    ]
    return ExportLogsServiceRequest.FromString(protobuf.encoded(groups))


def records(requests):
    """How often each record is there, with its resource, its scope and the types of its values."""
    found: Counter[str] = Counter()
    for one in requests:
        for group in protobuf.decoded(one.SerializeToString()).groups:
            found.update(repr((group.resource, group.scope, record)) for record in group.records)
    return found


@pytest.mark.parametrize(("to_shipper", "out"), [("grpc", "grpc"), ("http", "http"), ("json", "json")])
async def test_every_record_goes_through_once_with_its_types(collector, tmp_path: Path, to_shipper, out) -> None:
    collector.sink.requests.clear()
    sent = [request(first, 500) for first in range(0, 2000, 500)]

    await trio.to_thread.run_sync(collector.start, to_shipper)
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(collector, out))
        await sidecar.ack(1, "active")
        for one in sent:
            await trio.to_thread.run_sync(collector.export, one)
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0, seconds=60)
        stopped = await sidecar.stop()

    assert records(collector.sink.requests) == records(sent)
    assert stopped["undelivered"] == 0


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_no_record_is_lost_when_the_collector_is_killed_and_comes_back(
    collector, tmp_path: Path, protocol
) -> None:
    collector.sink.requests.clear()
    sent = [request(first, 300) for first in range(0, 1800, 300)]

    await trio.to_thread.run_sync(collector.start, protocol)
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(collector, protocol))
        await sidecar.ack(1, "active")
        for number, one in enumerate(sent):
            await trio.to_thread.run_sync(collector.export, one)
            if number % 2:
                await trio.to_thread.run_sync(lambda: collector.end(at_once=True))
                await trio.to_thread.run_sync(collector.start, protocol)
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0, seconds=60)
        await sidecar.stop()

    assert records(collector.sink.requests).keys() == records(sent).keys()


async def test_the_collector_waits_while_its_key_is_refused_and_goes_on_with_the_new_one(
    collector, tmp_path: Path
) -> None:
    collector.sink.requests.clear()
    secrets = {"one": {"bearer_token": "first-key"}, "two": {"bearer_token": "second-key"}}
    sent = [request(0, 50), request(50, 50)]

    await trio.to_thread.run_sync(collector.start, "grpc", "first-key")
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, text(collector, more=", credentials: [one]"), {"one": secrets["one"]})
        await sidecar.ack(1, "active")
        await trio.to_thread.run_sync(collector.export, sent[0])
        await sidecar.policy(2, text(collector, more=", credentials: [two]"), {"two": secrets["two"]})
        await sidecar.ack(2, "active")
        with pytest.raises(Exception, match="authenticate"):
            await trio.to_thread.run_sync(collector.export, sent[1])
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0, seconds=60)
        await trio.to_thread.run_sync(collector.start, "grpc", "second-key")
        await trio.to_thread.run_sync(collector.export, sent[1])
        await sidecar.state(lambda observed: observed["queue"]["events"] == 0, seconds=60)
        await sidecar.stop()

    assert records(collector.sink.requests) == records(sent)
