"""A real OpenTelemetry Collector: the receiver and the exporters of OTLP.

It stands on both sides of the shipper, in one process with two pipelines, and has a way in and a way out for the test:

    test ── gRPC ──> `in` ── gRPC or HTTP ──> shipper ── gRPC or HTTP ──> `out` ── HTTP ──> `Sink` in the test

What comes to `out` may be metrics too. No pipeline has a queue: a receiver answers when its exporter was answered.
"""

from __future__ import annotations

import http.server
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from shipper_demo.ports import free_port
from tests.backends.collector_build import COLLECTOR
from tests.backends.recipe import Unavailable
from tests.programs import Running

__all__ = ["Collector", "Sink", "Unavailable", "running"]

PATIENCE = 60.0

_CONFIG = """\
receivers:
  otlp/in: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{way_in}"}}}}}}
  otlp/out:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  {exporter}
  otlp_http/sink: {{endpoint: "http://127.0.0.1:{sink}", compression: none, sending_queue: {{enabled: false}}}}
service:
  pipelines:
    logs/in: {{receivers: [otlp/in], exporters: [{name}]}}
    logs/out: {{receivers: [otlp/out], exporters: [otlp_http/sink]}}
    metrics: {{receivers: [otlp/out], exporters: [otlp_http/sink]}}
  telemetry: {{metrics: {{level: none}}}}
"""
_RETRY = "retry_on_failure: {initial_interval: 100ms, max_interval: 500ms}, sending_queue: {enabled: false}"
_EXPORTERS = {
    "grpc": "otlp_grpc/shipper: {{endpoint: '127.0.0.1:{port}', tls: {{insecure: true}}, headers: {headers}, {retry}}}",
    "http": "otlp_http/shipper: {{endpoint: 'http://127.0.0.1:{port}', headers: {headers}, {retry}}}",
    "json": "otlp_http/shipper: {{endpoint: 'http://127.0.0.1:{port}', encoding: json, headers: {headers}, {retry}}}",
}


class Sink:
    """Keeps the requests that the Collector hands over."""

    def __init__(self) -> None:
        self.requests: list[ExportLogsServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        else:
            self.requests.append(ExportLogsServiceRequest.FromString(body))


@dataclass
class Collector:
    """A Collector; `start` and `end` it as often as needed, with the same ports."""

    program: Path
    directory: Path
    way_in: int
    grpc: int
    http: int
    to_shipper: dict[str, int]
    """The port of the shipper's input by protocol: grpc, http."""
    sink: Sink
    sink_port: int
    process: Running | None = field(default=None, repr=False)

    def start(self, protocol: str = "grpc", token: str = "") -> None:
        """`protocol` is the one towards the shipper: grpc, http or json."""
        self.end()
        headers = f"{{authorization: 'Bearer {token}'}}" if token else "{}"
        port = self.to_shipper["grpc" if protocol == "grpc" else "http"]
        exporter = _EXPORTERS[protocol].format(port=port, headers=headers, retry=_RETRY)
        config = _CONFIG.format(
            way_in=self.way_in,
            grpc=self.grpc,
            http=self.http,
            sink=self.sink_port,
            exporter=exporter,
            name=exporter.partition(":")[0],
        )
        path = self.directory / "collector.yaml"
        path.write_text(config)
        self.process = Running([self.program, "--config", f"file:{path}"])
        self.process.wait(self._listens, PATIENCE)

    def _listens(self) -> bool:
        for port in (self.way_in, self.grpc, self.http):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True

    def end(self, *, at_once: bool = False) -> None:
        """At once: as kill -9 does it."""
        if self.process is not None:
            self.process.end(signal.SIGKILL if at_once else signal.SIGTERM)
            self.process = None

    def export(self, request: ExportLogsServiceRequest) -> None:
        """Send it through the Collector to the shipper; returns when the shipper has answered."""
        with grpc.insecure_channel(f"127.0.0.1:{self.way_in}") as channel:
            LogsServiceStub(channel).Export(request, timeout=PATIENCE)


@contextmanager
def running() -> Iterator[Collector]:
    """A Collector that is not started yet; raises Unavailable."""
    program = COLLECTOR.made() / "collector"
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="collector-")))
        sink = Sink()
        server = stack.enter_context(_serving(sink))
        way_in, over_grpc, over_http, *ours = (free_port() for _ in range(5))
        collector = Collector(
            program,
            directory,
            way_in,
            over_grpc,
            over_http,
            dict(zip(("grpc", "http"), ours, strict=True)),
            sink,
            server.server_address[1],
        )
        stack.callback(collector.end)
        yield collector


@contextmanager
def _serving(sink: Sink) -> Iterator[http.server.ThreadingHTTPServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sink.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
