"""The shipper of this checkout. Its queue is always sealed and synced; the policy comes by the protocol, on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shipper import __version__
from tests.benchmarks.peers.peer import Job, Launch, Peer


class Shipper(Peer):
    name = "shipper"
    binary = sys.executable
    how_to_get = "it is this checkout"
    queues = ("synced",)

    def configuration(self, job: Job) -> str:
        return f"""\
version: 1
inputs:
  access:
    type: file
    paths: [{json.dumps(str(job.log))}]
    data_stream: {{dataset: nginx.access}}
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
