"""The interface of a peer for the driver: its program, its configuration for a job, its command line.

A peer ships files, or what clients post, into one endpoint and goes on watching; the driver ends it with SIGTERM. So
each of them is launched, fed and stopped alike, the shipper too. A peer gets the settings that its makers document for
throughput, and sends no more than a bulk request needs: the moment, the host and the line. (The shipper adds the file,
the offset, the data stream and an id; a column of the table says what an event of each weighs.)

Queues: `memory` is lost with the process. `disk` survives it: files as the makers' defaults have them, written by the
kernel when it likes. `synced` survives the machine too, since what was taken is synced before it counts as taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

QUEUES = ("memory", "disk", "synced")
COMPRESSIONS = ("none", "gzip")
SOURCES = ("file", "http", "bulk", "otlp", "otlp-grpc")
"""Where events come from: lines of files, JSON posted to `/events`, bulk requests of Elasticsearch, logs of
OpenTelemetry posted to `/v1/logs`, the same by gRPC."""


class Unavailable(Exception):
    """A peer is not available here; the text is one line with the reason and the remedy."""


@dataclass(frozen=True)
class Job:
    """Ship `log` (a path, or a pattern) to 127.0.0.1:`port`, with `state` as the only place to write to; or, with
    another source, what is posted to 127.0.0.1:`door`."""

    log: Path
    port: int
    state: Path
    queue: str
    compression: str
    source: str = "file"
    door: int = 0


@dataclass(frozen=True)
class Launch:
    """A command, what it needs in its environment, and what is written to its standard input, which stays open."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""


class Peer(ABC):
    """A log shipper, found at `program`."""

    name: ClassVar[str]
    binary: ClassVar[str]
    how_to_get: ClassVar[str]
    fetched: ClassVar[bool] = False
    """Whether `fetch` can get it from a package registry."""
    queues: ClassVar[tuple[str, ...]] = QUEUES
    compressions: ClassVar[tuple[str, ...]] = COMPRESSIONS
    sources: ClassVar[tuple[str, ...]] = ("file",)
    configuration_name: ClassVar[str]
    version_option: ClassVar[str] = "--version"

    def __init__(self, program: Path) -> None:
        self.program = program

    @classmethod
    def find(cls) -> Path | None:
        """The program: the installed one, or what `fetch` left; None if there is neither."""
        installed = shutil.which(cls.binary)
        return Path(installed) if installed else None

    @classmethod
    def fetch(cls) -> None:
        """Get it into the cache from the registry where its makers publish it; raises `Unavailable`."""
        raise Unavailable(f"{cls.name} is in no package registry: {cls.how_to_get}")

    @abstractmethod
    def configuration(self, job: Job) -> str:
        """The text of its configuration file."""

    @abstractmethod
    def command(self, configuration: Path, job: Job) -> list[str]:
        """What runs it in the foreground."""

    def environment(self) -> dict[str, str]:
        """What it needs in its environment."""
        return {}

    def launch(self, job: Job) -> Launch:
        """Write its configuration into the state directory; what starts it."""
        path = job.state / self.configuration_name
        path.write_text(self.configuration(job))
        return Launch(self.command(path, job), self.environment())

    def version(self) -> str:
        """The first line that it says about its version."""
        command = [self.program, self.version_option]
        environment = os.environ | self.environment()
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        return (said.stdout or said.stderr).partition("\n")[0].strip()

    def fault(self) -> str:
        """Returns why it cannot be run, in one line; empty if it can."""
        try:
            self.version()
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return ""
