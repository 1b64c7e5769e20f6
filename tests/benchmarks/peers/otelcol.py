"""An OpenTelemetry Collector, built from the makers' Go modules by their own builder.

Another job than the others': it ships by OTLP over HTTP (protobuf), which repeats nothing for an event, because the
module of its Elasticsearch exporter was not to be had with a verified checksum (see README.md).
The version is the newest tried for which the module proxy served the receiver, the storage and all that they need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Job, Peer, Unavailable

_VERSION, _STABLE = "0.151.0", "1.57.0"
_CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"
_CORE = "go.opentelemetry.io/collector"
_RECIPE = f"""\
dist: {{name: otelcol, output_path: ./build, version: {_VERSION}}}
extensions: [{{gomod: {_CONTRIB}/extension/storage/filestorage v{_VERSION}}}]
receivers:
- gomod: {_CONTRIB}/receiver/filelogreceiver v{_VERSION}
- gomod: {_CORE}/receiver/otlpreceiver v{_VERSION}
exporters: [{{gomod: {_CORE}/exporter/otlphttpexporter v{_VERSION}}}]
providers: [{{gomod: {_CORE}/confmap/provider/fileprovider v{_STABLE}}}]
conf_resolver: {{default_uri_scheme: file}}
"""


class Otelcol(Peer):
    name = "otelcol"
    binary = "otelcol"
    how_to_get = "--fetch builds it (with Go, about two minutes), or --peer otelcol=PATH"
    fetched = True
    sources = ("file", "otlp", "otlp-grpc")
    configuration_name = "otelcol.yaml"

    @classmethod
    def find(cls) -> Path | None:
        built = CACHE / "otelcol/otelcol"
        return built if built.exists() else super().find()

    @classmethod
    def fetch(cls) -> None:
        if not shutil.which("go"):
            raise Unavailable("go is not installed: the OpenTelemetry Collector is built with it")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="otelcol-", dir=CACHE) as part:
            Path(part, "recipe.yaml").write_text(_RECIPE)
            command = ["go", "run", f"{_CORE}/cmd/builder@v{_VERSION}", "--config", "recipe.yaml"]
            environment = os.environ | {"GOFLAGS": "-buildvcs=false"}
            build = subprocess.run(command, cwd=part, env=environment, capture_output=True, text=True, check=False)
            if build.returncode:
                raise Unavailable("the OpenTelemetry Collector was not built: " + build.stderr.strip()[-300:])
            shutil.rmtree(CACHE / "otelcol", ignore_errors=True)
            Path(part, "build").rename(CACHE / "otelcol")

    def configuration(self, job: Job) -> str:
        durable = job.queue != "memory"
        storage = "storage: file_storage" if durable else ""
        receivers = {
            "file": f"""\
filelog:
    include: ["{job.log}"]
    start_at: beginning
    retry_on_failure: {{enabled: true}}
    {storage}""",
            "otlp": f"otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{job.door}'}}}}}}",
            "otlp-grpc": f"otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{job.door}'}}}}}}",
        }
        receiver = receivers[job.source]
        return f"""\
extensions:
  file_storage: {{directory: "{job.state}", fsync: {str(job.queue == "synced").lower()}}}
receivers:
  {receiver}
exporters:
  otlphttp:
    endpoint: http://127.0.0.1:{job.port}
    compression: {job.compression}
    sending_queue:
      sizer: items
      queue_size: 100000
      num_consumers: 4
      block_on_overflow: true
      batch: {{flush_timeout: 200ms, min_size: 2048, max_size: 2048}}
      {storage}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines:
    logs: {{receivers: [{receiver.partition(":")[0]}], exporters: [otlphttp]}}
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        return [str(self.program), "--config", f"file:{configuration}"]
