"""Vector, by path: its makers publish it in no package registry.

Batches are as large as its elasticsearch sink makes them by default (10 MB), closed after a second. Its disk buffer
syncs every half second; acknowledgements from end to end make its file source wait for what the sink has answered.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.peers.peer import Job, Peer

_BUFFERS = {
    "memory": "type: memory, max_events: 20000, when_full: block",
    "disk": "type: disk, max_size: 4294967296, when_full: block",
}


class Vector(Peer):
    name = "vector"
    binary = "vector"
    how_to_get = "--peer vector=PATH"
    queues = ("memory", "disk")
    configuration_name = "vector.yaml"

    def configuration(self, job: Job) -> str:
        return f"""\
data_dir: "{job.state}"
sources:
  access:
    type: file
    include: ["{job.log}"]
    read_from: beginning
    fingerprint: {{strategy: device_and_inode}}
sinks:
  sink:
    type: elasticsearch
    inputs: [access]
    endpoints: ["http://127.0.0.1:{job.port}"]
    api_version: v8
    mode: bulk
    bulk: {{action: create, index: logs-nginx.access-default}}
    compression: {job.compression}
    batch: {{timeout_secs: 1}}
    buffer: {{{_BUFFERS[job.queue]}}}
    acknowledgements: {{enabled: {str(job.queue == "disk").lower()}}}
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        return [str(self.program), "--config", str(configuration), "--log-format", "text", "--quiet"]
