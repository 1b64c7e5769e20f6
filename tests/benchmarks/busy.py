"""Real hosts with traffic in a fleet of the benchmark: `shipper supervise`, a log that grows, and an archive.

Each host ships its own log to its own file, whatever happens to the store. In the end every line must be there.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.child import COMPILED
from tests.benchmarks.members import FLEET, KEY

POLICY = {
    "inputs": {"app": {"type": "file", "paths": ["${LOG}"]}},
    "outputs": {"main": {"type": "file", "path": "${ARCHIVE}"}},
}
"""What the hosts run; it names files by variables of each host."""
_STEP = 0.1
_READY = 120.0


@dataclass(frozen=True)
class Traffic:
    """What became of the lines, of all hosts."""

    written: int
    meanwhile: int
    """Lines that arrived while the store was away."""
    lost: int
    twice: int
    restarts: int
    """Launches of supervisors and sidecars beyond the first of each."""


class Host:
    """A supervisor with its sidecar."""

    def __init__(self, place: Path, name: str, urls: Sequence[str], lease: float) -> None:
        place.mkdir()
        self.log, self._archive, self._said = place / "app.log", place / "archive.ndjson", place / "said"
        self.log.touch()
        (place / "fleet.key").write_text(base64.b64encode(KEY).decode())
        (place / "fleet.key").chmod(0o600)
        section = {"name": FLEET, "member": name, "etcd": [*urls], "keys": [{"file": "fleet.key"}]}
        (place / "supervise.yaml").write_text(json.dumps({"fleet": section | {"lease": f"{lease:g}s"}}))
        command = [sys.executable, "-m", "shipper", "supervise", "--state", "state", "--config", "supervise.yaml"]
        environment = COMPILED | {"LOG": str(self.log), "ARCHIVE": str(self._archive)}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=place, stdout=said, stderr=said, env=environment)
        self.written = 0

    def write(self, count: int) -> None:
        with self.log.open("a") as file:
            file.write("".join(f"line {n}\n" for n in range(self.written, self.written + count)))
        self.written += count

    def arrived(self) -> Counter[str]:
        """How often each line is in the archive."""
        if not self._archive.exists():
            return Counter()
        lines = self._archive.read_bytes().split(b"\n")[:-1]  # the last one may not be whole yet
        return Counter(json.loads(line)["message"] for line in lines)

    def launches(self) -> int:
        """Of the sidecar."""
        return self._said.read_bytes().count(b'"launched"')

    def end(self) -> None:
        """Ends it in order."""
        with self.process:
            self.process.terminate()


class Hosts:
    """Some of them, of which the logs grow all the time until `end`."""

    def __init__(self, hosts: Sequence[Host], rate: int) -> None:
        self.hosts, self._rate = hosts, rate
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def _write(self) -> None:
        while not self._ended.wait(_STEP):
            for host in self.hosts:
                host.write(max(1, int(self._rate * _STEP)))

    def stop(self) -> None:
        """Ends the writing."""
        self._ended.set()
        self._writer.join()

    def arrived(self) -> int:
        return sum(host.arrived().total() for host in self.hosts)

    def end(self, meanwhile: int) -> Traffic:
        """Ends the writing, and waits until each line has arrived, for a while; takes over the count of `meanwhile`."""
        self.stop()
        deadline = time.monotonic() + _READY
        while self.arrived() < sum(host.written for host in self.hosts) and time.monotonic() < deadline:
            time.sleep(0.2)
        counts = [(host.written, host.arrived()) for host in self.hosts]
        dead = sum(host.process.poll() is not None for host in self.hosts)
        return Traffic(
            written=sum(written for written, _ in counts),
            meanwhile=meanwhile,
            lost=sum(written - len(found) for written, found in counts),
            twice=sum(found.total() - len(found) for _, found in counts),
            restarts=sum(host.launches() - 1 for host in self.hosts) + dead,
        )


@contextmanager
def busy(place: Path, urls: Sequence[str], lease: float, count: int, rate: int) -> Iterator[Hosts]:
    """Starts so many hosts, each with `rate` lines a second; they end with the block."""
    place.mkdir()
    with ExitStack() as stack:
        hosts = []
        for number in range(count):
            host = Host(place / f"busy-{number}", f"busy-{number}", urls, lease)
            stack.callback(host.end)
            hosts.append(host)
        running = Hosts(hosts, rate)
        stack.callback(running.stop)
        yield running
