"""The shipper of this checkout. Its queue is always sealed and synced.

Alone it is the sidecar, whose policy comes by the protocol, on stdin; `Supervised` is what people run: the supervisor,
with a policy in a file, and its sidecar.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shipper import __version__
from tests.benchmarks.peers.peer import SOURCES, Job, Launch, Peer


class Shipper(Peer):
    name = "shipper"
    binary = sys.executable
    how_to_get = "it is this checkout"
    queues = ("synced",)
    sources = SOURCES

    def configuration(self, job: Job) -> str:
        inputs = {
            "file": {"type": "file", "paths": [str(job.log)], "data_stream": {"dataset": "nginx.access"}},
            "http": {"type": "http", "address": f"127.0.0.1:{job.door}", "path": "/events"},
            "bulk": {"type": "elasticsearch", "address": f"127.0.0.1:{job.door}"},
            "otlp": {"type": "otlp", "grpc": None, "http": f"127.0.0.1:{job.door}"},
            "otlp-grpc": {"type": "otlp", "grpc": f"127.0.0.1:{job.door}", "http": None},
        }
        return f"""\
version: 1
inputs:
  access: {json.dumps(inputs[job.source])}
outputs:
  main:
    type: elasticsearch
    hosts: ["http://127.0.0.1:{job.port}"]
    compression: {job.compression}
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        return [str(self.program), "-m", "shipper", "run", "--state", str(configuration)]

    def launch(self, job: Job) -> Launch:
        messages = [
            {"type": "hello", "protocol": 1, "supervisor": "benchmark/1"},
            {"type": "policy", "revision": 1, "policy": self.configuration(job), "credentials": {}},
        ]
        stdin = "".join(json.dumps(message) + "\n" for message in messages).encode()
        return Launch(self.command(job.state / "state", job), stdin=stdin)

    def version(self) -> str:
        return f"shipper {__version__}"


class Supervised(Shipper):
    configuration_name = "policy.yaml"

    def launch(self, job: Job) -> Launch:
        return Peer.launch(self, job)

    def command(self, configuration: Path, job: Job) -> list[str]:
        return [str(self.program), "-m", "shipper", "supervise", str(configuration), "--state", f"{job.state}/state"]
