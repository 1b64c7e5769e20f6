"""What being in a fleet costs a real `shipper supervise`: the supervisor at rest, in a fleet of its own and in none."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.observer import observing, wait
from shipper.fleet.publisher import Publisher
from shipper.fleet.seal import Seals
from tests.backends import etcd
from tests.benchmarks.child import COMPILED, cpu_seconds, mib
from tests.benchmarks.figures import progress
from tests.benchmarks.members import FLEET, KEY, PREFIX
from tests.benchmarks.pipeline import file_input, workplace

READY = 60.0


@dataclass(frozen=True)
class Cost:
    """Of the supervisor alone, without its sidecar."""

    share: float
    """Of a core."""
    mib: float


def measure(seconds: float) -> Mapping[str, Cost]:
    """One run of each kind."""
    progress("shipper supervise at rest")
    with etcd.cluster() as cluster:
        return {"alone": _alone(seconds), "in a fleet": _in_fleet(cluster.urls[0], seconds)}


def _alone(seconds: float) -> Cost:
    with workplace() as place:
        (place / "policy.yaml").write_text(_policy(place))
        with _supervise(place, "policy.yaml") as (process, said):
            _until(process, said, lambda: '"drained"' in said.read_text())
            return _cost(process, seconds)


def _in_fleet(url: str, seconds: float) -> Cost:
    with workplace() as place:
        (place / "fleet.key").write_text(base64.b64encode(KEY).decode())
        (place / "fleet.key").chmod(0o600)
        section = {"name": FLEET, "member": "m0", "etcd": [url], "keys": [{"file": str(place / "fleet.key")}]}
        (place / "supervise.yaml").write_text(json.dumps({"fleet": section}))
        with _supervise(place, "--config", "supervise.yaml") as (process, _):
            trio.run(_drain, url, _policy(place))
            return _cost(process, seconds)


async def _drain(url: str, policy: str) -> None:
    """Publishes the policy, and returns when the member has drained it."""
    seals = Seals(FLEET, [KEY])
    async with open_etcd([url], PREFIX) as store, observing(store, seals) as observer:
        with trio.fail_after(READY):
            while not observer.view().reports:
                await observer.changed()
        version = await Publisher(store, seals, "bench@here").publish(policy)
        verdict = await wait(observer, version, "drained", READY, 10.0)
    if verdict.state != "open":
        raise SystemExit(f"the supervisor did not drain: {verdict}")


def _policy(place: Path) -> str:
    outputs = {"main": {"type": "file", "path": str(place / "archive.ndjson")}}
    return json.dumps({"version": 1, "inputs": {"main": file_input(place / "log")}, "outputs": outputs})


@contextmanager
def _supervise(place: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    (place / "log").write_text("one line\n")
    command = [sys.executable, "-m", "shipper", "supervise", "--state", "state", "--json", *arguments]
    said = place / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(command, cwd=place, stdout=file, stderr=file, env=COMPILED)
    try:
        yield process, said
        process.terminate()
        process.wait(READY)
    finally:
        with process:
            process.kill()


def _until(process: subprocess.Popen[bytes], said: Path, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the supervisor did not drain: {said.read_text()[-2000:]}")
        time.sleep(0.05)


def _cost(process: subprocess.Popen[bytes], seconds: float) -> Cost:
    time.sleep(min(5.0, seconds))
    before = cpu_seconds(process.pid)
    time.sleep(seconds)
    return Cost((cpu_seconds(process.pid) - before) / seconds, mib(process.pid, "VmRSS"))
