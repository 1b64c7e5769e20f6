"""A member of the campaign: its processes, its logs, its way to the API server, and what is done to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.backends.kubernetes_proxy import Proxy
from tests.campaign_fleet.recorded import RecordedHost
from tests.campaign_kubernetes.transcript import Transcript
from tests.canary import EVENT


class Member(RecordedHost):
    """With what the campaign knows of it."""

    transcript: Transcript

    def __init__(self, directory: Path, name: str, section: Mapping[str, Any], proxy: Proxy, user: str) -> None:
        super().__init__(directory, name, Transcript(directory / "transcript"), {"kubernetes": dict(section)})
        self.proxy, self.user = proxy, user
        self.holds = section.get("on_lapse") == "hold"
        self.labels: Mapping[str, str] = section["labels"]
        self.written: Counter[str] = Counter()
        """Lines, by log."""
        self.variables |= {"LOGS": str(directory)}

    def start(self) -> None:
        """Starts a supervisor."""
        self.launches += 1
        command = [sys.executable, "-m", "shipper", "supervise", "--kubernetes", "--state", str(self.state)]
        command += ["--config", str(self.directory / "supervise.yaml"), "--grace", "10s", "--json"]
        environment = {**os.environ, "PYTHONPATH": "", **self.variables}
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def log_of(self, policy: str) -> Path:
        return self.directory / f"{policy}.log"

    def write_lines(self, policy: str, count: int) -> None:
        """Writes numbered lines into the log that a policy ships."""
        first = self.written[policy]
        with self.log_of(policy).open("a") as file:
            file.write("".join(f"{EVENT} {self.name} {policy} {n}\n" for n in range(first, first + count)))
        self.written[policy] += count

    def shows(self, text: bytes) -> bool:
        """Whether its processes have written a text to their logs."""
        return text in self.out.read_bytes()
