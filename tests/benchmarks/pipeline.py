"""One shipper between its inputs and a sink, as all drivers set it up, and when it is done."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.child import Shipper, shipper
from tests.benchmarks.job import CACHE
from tests.benchmarks.sink import Sink

STALLED = 60.0
Backoff = Mapping[str, str]

IMPATIENT: Backoff = {"first": "20ms", "longest": "100ms"}
"""Retry settings for outputs with an unreachable destination, so that backoff is not measured."""
PATIENT: Backoff = {"first": "1s", "longest": "10s"}
"""Retry settings for outputs whose attempts must not disturb a measurement."""
ROOMY = {"max_bytes": "200GiB", "retired_max_bytes": "200GiB"}
"""A queue without a limit of its own."""


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory for logs and state, on the checkout's disk; gone afterwards, also if the driver is terminated."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=CACHE))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


@contextmanager
def running(state: Path) -> Iterator[Shipper]:
    """A shipper that is ready."""
    with shipper(state) as child:
        child.say(type="hello", protocol=1, supervisor="benchmark/1")
        child.wait("ready")
        yield child


def file_input(*paths: Path, **options: Any) -> dict[str, Any]:
    """A `file` input of these paths."""
    return {"type": "file", "paths": [str(path) for path in paths], "data_stream": {"dataset": "bench"}, **options}


def bulk_output(port: int, scheme: str = "http", **options: Any) -> dict[str, Any]:
    """An `elasticsearch` output to the sink, uncompressed if nothing else is said."""
    host = f"{scheme}://127.0.0.1:{port}"
    return {"type": "elasticsearch", "hosts": [host], "compression": "none", "backoff": IMPATIENT, **options}


def otlp_output(port: int, **options: Any) -> dict[str, Any]:
    """An `otlp` output to the sink over HTTP, uncompressed if nothing else is said."""
    endpoint = f"http://127.0.0.1:{port}"
    fixed = {"type": "otlp", "endpoint": endpoint, "protocol": "http", "compression": "none", "backoff": IMPATIENT}
    return {**fixed, **options}


def offer(child: Shipper, revision: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any], **more: Any) -> None:
    """Send a policy; for each credential that an output names, a secret comes along."""
    policy = {"version": 1, "inputs": inputs, "outputs": outputs, **more}
    ids = [output["credential"] for output in outputs.values() if "credential" in output]
    secrets = {id: {"api_key": f"{id}:secret"} for id in ids}
    child.say(type="policy", revision=revision, policy=json.dumps(policy), credentials=secrets)


def activate(child: Shipper, revision: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any], **more: Any) -> None:
    """Send a policy, and wait until it is active."""
    offer(child, revision, inputs, outputs, **more)
    child.wait("ack", stage="active", revision=revision)


def queued(child: Shipper) -> int:
    """How many events wait for a final answer."""
    child.say(type="observe")
    events: int = child.wait("observed")["queue"]["events"]
    return events


def until_queued(child: Shipper, events: int) -> None:
    """Until so many events are in the spool; their destination must be one that answers nothing."""
    progress = Progress(child, f"{events} events were stored")
    while (here := queued(child)) < events:
        progress.check(here)
        time.sleep(0.005)


def until_settled(child: Shipper, target: Sink, events: int) -> None:
    """Waits until the sink has all events, each once, and nothing waits in the shipper."""
    progress = Progress(child, f"{events} events were shipped")
    while (items := target.counts()["items"]) < events or queued(child):
        progress.check(items)
        time.sleep(0.01)
    if items != events:
        raise SystemExit(f"{events} events were shipped as {items}")


class Progress:
    """Ends a benchmark that hangs, and says why."""

    def __init__(self, child: Shipper, aim: str) -> None:
        self._child, self._aim = child, aim
        self._done, self._since = -1, time.monotonic()

    def check(self, done: int) -> None:
        """How much is done by now; too long without more ends the benchmark."""
        if done > self._done:
            self._done, self._since = done, time.monotonic()
        if self._child.process.poll() is not None or time.monotonic() > self._since + STALLED:
            log = b"".join(self._child.log).decode(errors="replace")
            raise SystemExit(f"not all of {self._aim}: {done}; {log}")
