"""How many events a second the whole shipper moves: from a file, through the durable spool, into a bulk endpoint.

    python tests/benchmarks/throughput.py --lines 1000000 --runs 5 --compression gzip

Each run is a fresh `shipper run` with an empty state directory, driven by the protocol as a supervisor does it. The
endpoint (`sink.c`) takes more than 3 million events a second, so it is not what is measured, though it shares the
machine's cores. A run ends when the shipper says that no event waits for an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "benchmarks"
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 600.0
_SEED = 26

POLICY = """\
version: 1
inputs:
  access:
    type: file
    paths: [{path}]
    stop_at_end: true
    data_stream: {{dataset: nginx.access}}
outputs:
  main:
    type: elasticsearch
    hosts: ["http://127.0.0.1:{port}"]
    compression: {compression}
"""


# -- what is shipped ---------------------------------------------------------------------------------------------------

_AGENTS = [
    "curl/8.5.0",
    "kube-probe/1.29",
    "Go-http-client/2.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko Firefox/128.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126.0.0.0",
]
_WORDS = ["cart", "item", "search", "user", "login", "static", "api", "v1", "order", "image", "checkout", "health"]
_REFERERS = ["-", "-", "https://shop.example/"]
_STATUSES = [200] * 12 + [304, 304, 301, 404, 404, 500, 503]


def access_log(lines: int) -> Path:
    """A file of varied nginx access-log lines of about 145 bytes, the same bytes each time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"access-{_SEED}-{lines}.log"
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(_access_lines(lines))
        part.rename(path)
    return path


def _access_lines(lines: int) -> Iterator[str]:
    chance = random.Random(_SEED)
    word = status = agent = referer = chance.choice
    for number in range(lines):
        bits = chance.getrandbits(64)
        address = f"{10 + bits % 200}.{bits >> 8 & 255}.{bits >> 16 & 255}.{bits >> 24 & 255}"
        moment = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        size = bits >> 44 & 0xFFFF
        path = f"/{word(_WORDS)}/{word(_WORDS)}/{bits >> 32 & 0xFFFFF}?q={bits >> 40 & 0xFFFFF:x}"
        yield (
            f"{address} - - [{1 + number // 86400 % 28:02d}/Jan/2026:{moment} +0000] "
            f'"GET {path} HTTP/1.1" {status(_STATUSES)} {size} "{referer(_REFERERS)}" "{agent(_AGENTS)}"\n'
        )


# -- where it goes -----------------------------------------------------------------------------------------------------


class Sink:
    """The running endpoint."""

    def __init__(self, port: int) -> None:
        self.port = port

    def counts(self) -> dict[str, int]:
        """Requests, items, bytes (decompressed) and wire_bytes since `reset`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/count", timeout=30) as answer:
            counts: dict[str, int] = json.load(answer)
        return counts

    def reset(self) -> None:
        """Count from zero."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/reset", data=b"", timeout=30).close()


def build() -> Path:
    """The compiled endpoint; built where its source is newer."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = HERE / "sink.c"
    program = CACHE / f"sink-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        command = ["cc", "-O2", "-o", str(program), str(source)]
        if subprocess.run([*command, "-DWITH_ZLIB", "-lz"], capture_output=True).returncode:
            subprocess.run(command, check=True)
    return program


@contextmanager
def sink() -> Iterator[Sink]:
    """Run the endpoint on any free port."""
    with subprocess.Popen([build()], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Sink(int(process.stdout.readline()))
        finally:
            process.kill()


# -- the shipper, by its protocol --------------------------------------------------------------------------------------


class Shipper:
    """A child that speaks the control protocol; messages arrive in a queue."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-m", "shipper", "run", "--state", str(state)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def say(self, **message: Any) -> None:
        """Send one message."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of a type, and with these fields; a refusal or the end of the child ends the benchmark."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            if message is None:
                raise SystemExit(f"the shipper ended with status {self.process.wait()} while {kind} was awaited")
            if message["type"] in ("nack", "error"):
                raise SystemExit(f"the shipper refused: {message}")
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def cpu_seconds(self) -> float:
        """User and system time of the whole process, its threads included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_mib(self) -> float:
        """The largest resident set so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def shipper(state: Path) -> Iterator[Shipper]:
    """Launch a shipper; it is stopped in order, and killed if that takes long."""
    child = Shipper(state)
    try:
        yield child
        child.say(type="stop", within_seconds=5)
        child.process.wait(30)
    finally:
        child.process.kill()
        child.process.wait()


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What one run took; `start` is what it took until `ready`, the rest what the events took."""

    events: int
    seconds: float
    cpu: float
    start_seconds: float
    start_cpu: float
    peak_mib: float
    wire_bytes: int

    @property
    def per_second(self) -> float:
        """Events a second, from the policy to the last final answer."""
        return self.events / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Events a CPU second of the whole process, its start included."""
        return self.events / self.cpu


def measure(log: Path, lines: int, compression: str, target: Sink) -> Run:
    """Ship the file once."""
    target.reset()
    state = Path(tempfile.mkdtemp(prefix="shipper-benchmark-", dir=CACHE))
    launched = time.monotonic()
    try:
        with shipper(state) as child:
            child.say(type="hello", protocol=1, supervisor="benchmark/1")
            child.wait("ready")
            ready, start_cpu = time.monotonic(), child.cpu_seconds()
            text = POLICY.format(path=json.dumps(str(log)), port=target.port, compression=compression)
            child.say(type="policy", revision=1, policy=text, credentials={})
            child.wait("ack", stage="active")
            _until_settled(child, target, lines)
            end, cpu, peak = time.monotonic(), child.cpu_seconds(), child.peak_mib()
    finally:
        shutil.rmtree(state, ignore_errors=True)
    counts = target.counts()
    if counts["items"] != lines:
        raise SystemExit(f"{lines} lines were shipped as {counts['items']} events")
    return Run(lines, end - ready, cpu, ready - launched, start_cpu, peak, counts["wire_bytes"])


def _until_settled(child: Shipper, target: Sink, lines: int) -> None:
    """Until all is delivered and the shipper says that nothing waits."""
    deadline = time.monotonic() + _PATIENCE
    while target.counts()["items"] < lines:
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"not all was shipped: {target.counts()}")
        time.sleep(0.01)
    while True:
        child.say(type="observe")
        if child.wait("observed")["queue"]["events"] == 0:
            return
        time.sleep(0.002)


def report(runs: list[Run]) -> str:
    """Medians, and the spread of the speed."""

    def median(name: str) -> float:
        return statistics.median([float(getattr(run, name)) for run in runs])

    speeds = sorted(run.per_second for run in runs)
    return (
        f"{median('per_second'):>10,.0f} events/s        (from {speeds[0]:,.0f} to {speeds[-1]:,.0f})\n"
        f"{median('per_cpu_second'):>10,.0f} events/CPU second, the start included ({median('cpu'):.2f} s)\n"
        f"{median('start_seconds'):>10.2f} s to start         ({median('start_cpu'):.2f} CPU seconds)\n"
        f"{median('peak_mib'):>10,.0f} MiB at most\n"
        f"{median('wire_bytes') / runs[0].events:>10,.0f} bytes of request bodies an event"
    )


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--compression", choices=["none", "gzip", "both"], default="both")
    options = parser.parse_args()
    log = access_log(options.lines)
    print(f"{options.lines:,} lines of {log.stat().st_size / options.lines:.0f} bytes, median of {options.runs} runs")
    with sink() as target:
        for compression in ("none", "gzip") if options.compression == "both" else (options.compression,):
            runs = [measure(log, options.lines, compression, target) for _ in range(options.runs)]
            print(f"compression {compression}\n{report(runs)}", flush=True)


if __name__ == "__main__":
    main()
