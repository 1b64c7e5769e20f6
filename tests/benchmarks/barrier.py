"""The cost of a revision, and the delay of `drained`.

    python tests/benchmarks/barrier.py [--rotations 50] [--backlog 20000] [--seconds 5]

start to ready              from the launch to `ready`, with empty state directories
drained after last answer   200 events wait at a sink that hangs, and a revision with another credential becomes active;
                            then the sink goes on: from the instant at which it answers the last request, noted by
                            itself, to the instant at which the supervisor has read `drained`
policy to active            in these same rounds: 200 events wait, the destination hangs
longest wait                of one keep-alive producer of the `elasticsearch` input that asks again at once, in windows
                            of 150 ms, in turns without a revision and with one
gap of intake               by how much the second median is above the first
active, queue full          from `policy` to `active`, with a full queue and a destination where nobody listens
during a drain              events/s at the sink while a retired lane's backlog drains beside its successor, with intake
                            at full speed; against the same backlog after the same silence without a revision
8 lanes draining            the peak resident set while eight retired lanes drain a backlog each
idle                        share of one processor while nothing happens
a durable write             4 KiB and fdatasync on this disk, for scale
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shipper_demo.ports import free_port
from tests.benchmarks.child import Shipper
from tests.benchmarks.figures import Table, milliseconds, progress
from tests.benchmarks.pipeline import (
    Progress,
    queued,
    running,
    until_queued,
    until_settled,
    workplace,
)
from tests.benchmarks.rotation import Rotation
from tests.benchmarks.sink import Sink, sink

WINDOW = 0.15
HELD = 200
LANES = 8
UNDER_WAY = 20_000
"""Events in the queue at full speed that do not count as a backlog."""
FULL = {"max_bytes": "256KiB", "retired_max_bytes": "1B"}
TICK = b'{"create":{}}\n{"message":"tick"}\n'


def starts(count: int) -> list[float]:
    """From the launch to `ready`."""
    taken = []
    for _ in range(count):
        begun = time.monotonic()
        with workplace() as place, running(place / "state"):
            taken.append(time.monotonic() - begun)
    return taken


def drains(target: Sink, rotation: Rotation, count: int) -> tuple[list[float], list[float]]:
    """Returns the times from the last answer to `drained`, and from `policy` to `active`, over `count` revisions."""
    drained, active = [], []
    rotation.turn()
    rotation.until_drained()
    for number in range(count):
        progress(f"drained after the last answer: {number + 1} of {count}")
        with target.hung():
            rotation.write(HELD)
            until_queued(rotation.child, HELD)
            active.append(rotation.turn())
        read = rotation.until_drained()
        drained.append(read - target.counts()["last"])
    until_settled(rotation.child, target, rotation.lines)
    return drained, active


def longest_wait(port: int, least: float, end: threading.Event) -> float:
    """Returns the longest wait of a producer for an answer, until `end` is set, for at least `least` seconds."""
    head = (
        f"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: {len(TICK)}\r\n\r\n"
    )
    longest, stop = 0.0, time.monotonic() + least
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not end.is_set() or time.monotonic() < stop:
            begun = time.monotonic()
            stream.sendall(head.encode() + TICK)
            answer = stream.recv(65536)
            longest = max(longest, time.monotonic() - begun)
            if b" 200 " not in answer[:20]:
                raise SystemExit(f"a producer was refused: {answer[:200]!r}")
    return longest


def gaps(rotation: Rotation, count: int) -> tuple[list[float], list[float]]:
    """The longest waits of windows without a revision, and with one."""
    port = free_port()
    rotation.inputs = {"apps": {"type": "elasticsearch", "address": f"127.0.0.1:{port}"}}
    rotation.turn()
    quiet, switched = [], []
    with ThreadPoolExecutor(1) as pool:
        for number in range(count):
            progress(f"longest wait of a producer: {number + 1} of {count}")
            for waits, turns in ((quiet, False), (switched, True)):
                end = threading.Event()
                waited = pool.submit(longest_wait, port, WINDOW, end)
                time.sleep(WINDOW / 3)
                if turns:
                    rotation.turn()
                end.set()
                waits.append(waited.result())
                rotation.until_drained() if turns else None
    return quiet, switched


def with_a_full_queue(rotation: Rotation, count: int) -> list[float]:
    """Returns the times from `policy` to `active`, with an unreachable destination and a full queue."""
    rotation.turn()
    rotation.write(20_000)
    patience = Progress(rotation.child, "what fills the queue was stored")
    while True:
        patience.check(0)
        rotation.child.say(type="observe")
        if "the queue is full" in str(rotation.child.wait("observed")["units"]):
            return [rotation.turn() for _ in range(count)]


def idle(child: Shipper, seconds: float) -> float:
    """Share of a processor."""
    before = child.cpu_seconds()
    time.sleep(seconds)
    return (child.cpu_seconds() - before) / seconds


def eight_lanes(target: Sink, rotation: Rotation, lines: int) -> float:
    """The peak resident set in MiB while eight retired lanes drain `lines` each."""
    with target.hung():
        for lane in range(LANES):
            progress(f"a backlog for lane {lane + 1} of {LANES}")
            rotation.turn()
            rotation.write(lines)
            until_queued(rotation.child, rotation.lines)
        rotation.turn()
    progress(f"{LANES} lanes drain")
    rotation.until_drained()
    until_settled(rotation.child, target, rotation.lines)
    return rotation.child.peak_mib()


def speeds(target: Sink, rotation: Rotation, backlog: int, rounds: int) -> tuple[list[float], list[float]]:
    """Events a second at the sink while a backlog is delivered: by one lane; by a retired one beside its successor."""
    rotation.inputs = {"load": {"type": "generate", "bytes": 150}}
    rotation.turn()
    plain, draining = [], []
    for number in range(rounds):
        progress(f"a backlog beside a busy intake: {number + 1} of {rounds}")
        for found, turns in ((plain, False), (draining, True)):
            with target.hung():
                until_queued(rotation.child, backlog)
                if turns:
                    rotation.turn()
            begun, before = time.monotonic(), target.counts()["items"]
            if turns:
                rotation.until_drained()
            patience = Progress(rotation.child, f"a backlog of {backlog} was shipped")
            while (items := target.counts()["items"]) < before + backlog:
                patience.check(items)
                time.sleep(0.005)
            found.append((items - before) / (time.monotonic() - begun))
            while queued(rotation.child) > max(backlog // 2, UNDER_WAY):
                patience.check(target.counts()["items"])
                time.sleep(0.01)
    return plain, draining


def durable_writes(place: Path, count: int = 50) -> list[float]:
    """4 KiB and fdatasync."""
    taken = []
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(count):
            begun = time.monotonic()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.monotonic() - begun)
    return taken


def measure(target: Sink, rotations: int, backlog: int, seconds: float) -> str:
    """All figures, as a table."""
    with workplace() as place:
        durable = durable_writes(place)
    target.reset()
    with workplace() as place, running(place / "state") as child:
        rotation = Rotation(child, place, target.port)
        drained, active = drains(target, rotation, rotations)
        quiet, switched = gaps(rotation, rotations)
        progress("idle")
        share = idle(child, seconds)
    with workplace() as place, running(place / "state") as child:
        full = with_a_full_queue(Rotation(child, place, free_port(), queue=FULL), min(rotations, 20))
    target.reset()
    with workplace() as place, running(place / "state") as child:
        peak = eight_lanes(target, Rotation(child, place, target.port), backlog)
    target.reset()
    with workplace() as place, running(place / "state") as child:
        queue = {"max_bytes": "256MiB"}
        plain, draining = speeds(target, Rotation(child, place, target.port, queue=queue), 10 * backlog, 3)
    progress("starts")
    gap = statistics.median(switched) - statistics.median(quiet)
    before, during = statistics.median(plain), statistics.median(draining)
    times = [
        ["start to ready", *milliseconds(starts(5)), ""],
        ["drained after last answer", *milliseconds(drained), "p99 ≤ 10"],
        ["policy to active", *milliseconds(active), ""],
        ["longest wait, no revision", *milliseconds(quiet), ""],
        ["longest wait, a revision", *milliseconds(switched), ""],
        ["gap of intake", f"{1000 * gap:.1f}", "", "", "≤ 5"],
        ["active, queue full", *milliseconds(full), ""],
        ["a durable write", *milliseconds(durable), ""],
    ]
    others = [
        ["events/s of a backlog", f"{before:,.0f}", ""],
        ["events/s during a drain", f"{during:,.0f}", ""],
        ["ratio", f"{during / before:.2f}", "1"],
        [f"{LANES} lanes draining, MiB", f"{peak:,.0f}", "≤ 100"],
        ["idle, % of a processor", f"{100 * share:.2f}", "0"],
    ]
    progress()
    return f"{Table(['ms', 'p50', 'p99', 'max', 'aim'], times)}\n\n{Table(['', 'median', 'aim'], others)}"


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rotations", type=int, default=50)
    parser.add_argument(
        "--backlog", type=int, default=20_000, help="lines for each of eight lanes; ten times that for one"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="for which it is idle")
    options = parser.parse_args()
    with sink() as target:
        print(measure(target, options.rotations, options.backlog, options.seconds))


if __name__ == "__main__":
    main()
