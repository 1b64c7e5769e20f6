"""A member of the campaign: its processes, its logs, its way to the API server, and what is done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from tests.backends.kubernetes_proxy import Proxy
from tests.campaign_fleet import recorder
from tests.campaign_kubernetes.transcript import Transcript
from tests.canary import EVENT
from tests.story.fleet import Host

SIDECAR = (sys.executable, "-P", "-m", "shipper", "run")


class Member(Host):
    """`lock` is held by whatever is done to it."""

    def __init__(self, directory: Path, name: str, section: Mapping[str, Any], proxy: Proxy, user: str) -> None:
        path = directory / "transcript"
        sidecar = [sys.executable, "-S", "-E", recorder.__file__, str(path), *SIDECAR]
        super().__init__(directory, name, name, {"sidecar": sidecar, "kubernetes": dict(section)})
        self.transcript = Transcript(path)
        self.proxy, self.user = proxy, user
        self.holds = section.get("on_lapse") == "hold"
        self.labels: Mapping[str, str] = section["labels"]
        self.lock = trio.Lock()
        self.written: Counter[str] = Counter()
        """Lines, by log."""
        self.launches = 0
        self.doing = "runs"
        self.variables |= {"LOGS": str(directory), "MEMBER": name}

    def start(self) -> None:
        """Starts a supervisor."""
        self.launches += 1
        command = [sys.executable, "-m", "shipper", "supervise", "--kubernetes", "--state", str(self.state)]
        command += ["--config", str(self.directory / "supervise.yaml"), "--grace", "10s", "--json"]
        environment = {**os.environ, "PYTHONPATH": "", **self.variables}
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_of(self, policy: str) -> Path:
        return self.directory / f"{policy}.log"

    def write_lines(self, policy: str, count: int) -> None:
        """Writes numbered lines into the log that a policy ships."""
        first = self.written[policy]
        with self.log_of(policy).open("a") as file:
            file.write("".join(f"{EVENT} {self.name} {policy} {n}\n" for n in range(first, first + count)))
        self.written[policy] += count

    # -- its processes -------------------------------------------------------------------------------------------------

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
        self.signal_sidecar(number)

    def signal_sidecar(self, number: int) -> None:
        """The recorder, and the program itself; also those of an earlier supervisor, which may still end in order."""
        for one in self.said("launched")[-3:]:
            with suppress(ProcessLookupError, FileNotFoundError):
                if str(self.transcript.path).encode() in Path(f"/proc/{one['pid']}/cmdline").read_bytes():
                    os.killpg(one["pid"], number)

    def signal_supervisor(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill_supervisor(self) -> None:
        """Its sidecar sees the end of its standard input."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end_at_once(self) -> None:
        """Kills what still runs."""
        if self.is_running():
            self.kill()
        self.signal_sidecar(signal.SIGKILL)

    def memory(self) -> float:
        """Returns the memory of the supervisor, in MiB."""
        if self.process is None or not self.is_running():
            return 0.0
        with suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            )
            return int(fields["VmRSS"].split()[0]) / 1024
        return 0.0

    def shows(self, text: bytes) -> bool:
        """Whether its processes have written a text to their logs."""
        return text in self.out.read_bytes()

    # -- for people ----------------------------------------------------------------------------------------------------

    def picture(self) -> str:
        """What it is doing, in some lines."""
        process = "no process" if self.process is None else f"supervisor {self.process.pid} {self.process.poll()}"
        lines = [f"{self.name}: {self.doing}; {process}; {self.launches} launches; now {time.monotonic():.3f}"]
        lines += [f"    {line}" for line in self.transcript.again().newest[-6:]]
        with suppress(ValueError, KeyError):
            lines += [f"    said {json.dumps(one)[:400]}" for one in [*self._reports()][-6:]]
        if len(lines) == 1:
            lines.append(self.out.read_text(errors="replace")[-1500:])
        return "\n".join(lines)
