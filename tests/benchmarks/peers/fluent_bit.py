"""Fluent Bit, by path: its makers publish it in no package registry.

`storage.sync full` is its way to sync what it has buffered (`synced`); it keeps the places in its files whatever the
queue is. It looks for new files each second, since by default it finds them within a minute. Answers of any size are
read: one that was cut would count as failed.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.peers.peer import Job, Peer

_STORAGE = {"memory": ("memory", "normal"), "disk": ("filesystem", "normal"), "synced": ("filesystem", "full")}


class FluentBit(Peer):
    name = "fluent-bit"
    binary = "fluent-bit"
    how_to_get = "--peer fluent-bit=PATH"
    sources = ("file", "http", "otlp")
    configuration_name = "fluent-bit.yaml"

    def configuration(self, job: Job) -> str:
        storage, sync = _STORAGE[job.queue]
        inputs = {
            "file": f"""\
name: tail
      path: "{job.log}"
      db: "{job.state}/position.db"
      key: message
      read_from_head: true
      refresh_interval: 1
      buffer_chunk_size: 512k
      buffer_max_size: 2m
      mem_buf_limit: 64m""",
            "http": f"name: http\n      listen: 127.0.0.1\n      port: {job.door}",
            "otlp": f"name: opentelemetry\n      listen: 127.0.0.1\n      port: {job.door}",
        }
        return f"""\
service:
  flush: 1
  grace: 10
  log_level: warn
  storage.path: "{job.state}/storage"
  storage.sync: {sync}
pipeline:
  inputs:
    - {inputs[job.source]}
      tag: access
      storage.type: {storage}
  outputs:
    - name: es
      match: "*"
      host: 127.0.0.1
      port: {job.port}
      index: logs-nginx.access-default
      suppress_type_name: true
      buffer_size: false
      workers: 2
      retry_limit: no_limits
      {"compress: gzip" if job.compression == "gzip" else ""}
"""

    def command(self, configuration: Path, job: Job) -> list[str]:
        return [str(self.program), "-c", str(configuration)]
