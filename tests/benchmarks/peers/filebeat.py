"""Filebeat, by path: its makers publish it in no package registry.

The settings are those of its output's `preset: throughput`, written out, since the preset compresses in any case; but
the memory queue is flushed after one second instead of five, which the last batch would have to wait. Its disk queue
has no setting for syncs.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.peers.peer import Job, Peer

_QUEUES = {
    "memory": "mem: {events: 12800, flush.min_events: 1600, flush.timeout: 1s}",
    "disk": "disk: {max_size: 8GB}",
}


class Filebeat(Peer):
    name = "filebeat"
    binary = "filebeat"
    how_to_get = "--peer filebeat=PATH"
    queues = ("memory", "disk")
    configuration_name = "filebeat.yml"

    def configuration(self, job: Job) -> str:
        return f"""\
filebeat.inputs:
  - type: filestream
    id: access
    paths: ["{job.log}"]
    # By fingerprint, the newer default, a file below 1 KiB would not be read.
    file_identity.native: ~
    prospector.scanner.fingerprint.enabled: false
queue:
  {_QUEUES[job.queue]}
output.elasticsearch:
  hosts: ["http://127.0.0.1:{job.port}"]
  allow_older_versions: true
  preset: custom
  worker: 4
  bulk_max_size: 1600
  compression_level: {1 if job.compression == "gzip" else 0}
setup.template.enabled: false
setup.ilm.enabled: false
http.enabled: false
logging: {{level: warning, to_stderr: true, metrics.enabled: false}}
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        paths = [f"--path.{kind}={job.state}/{kind}" for kind in ("home", "data", "logs")]
        return [str(self.program), "run", "-e", "-c", str(configuration), "--strict.perms=false", *paths]

    def version(self) -> str:
        return f"filebeat at {self.program}"
