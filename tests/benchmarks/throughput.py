"""How many events a second the whole shipper moves: from a file, through the durable spool, into a bulk endpoint.

    python tests/benchmarks/throughput.py --lines 1000000 --runs 5 --compression gzip

Each run is a fresh `shipper run` with an empty state directory, driven by the protocol as a supervisor does it. The
endpoint (`sink.c`) takes more than 3 million events a second, so it is not what is measured, though it shares the
machine's cores. A run ends when the shipper says that no event waits for an answer.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.child import PATIENCE, Shipper, shipper
from tests.benchmarks.job import CACHE, access_log
from tests.benchmarks.sink import Sink, sink

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
    deadline = time.monotonic() + PATIENCE
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
