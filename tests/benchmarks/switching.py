"""What a revision costs: the gap of intake at the switch, `active` beside a dead destination, idle CPU, the start.

    python tests/benchmarks/switching.py [--rotations 50]

The gap is measured from outside: the longest time between two answers of the `elasticsearch` input to one producer that
asks again at once, around the instant at which `active` is read, against the same figure with no revision in between.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import trio

from shipper.testing import Reply
from tests.story.driver import Sidecar, launched
from tests.story.http import free_port
from tests.story.world import World, open_world

IDLE_SECONDS = 10.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def longest_gap(port: int, during: float, change: trio.Event) -> float:
    """The longest wait of one keep-alive producer for an answer, in seconds, over `during` seconds."""
    body = b'{"create":{}}\n{"message":"tick"}\n'
    head = (
        f"POST /_bulk HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/x-ndjson\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    longest, end = 0.0, time.monotonic() + during
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        while time.monotonic() < end:
            begun = time.monotonic()
            await stream.send_all(head + body)
            answer = await stream.receive_some(65536)
            assert b" 200 " in answer[:20], answer[:200]
            longest = max(longest, time.monotonic() - begun)
            change.set()
    return longest


async def gaps(world: World, sidecar: Sidecar, rotations: int) -> tuple[list[float], list[float]]:
    """Longest waits in windows of 150 ms, without a revision and with one."""
    port = free_port()
    receiver = f'  apps: {{type: elasticsearch, address: "127.0.0.1:{port}"}}\n'
    await world.settled(sidecar, 1, "k1", inputs=receiver)
    quiet, switched = [], []

    async def window(store: list[float], begun: trio.Event) -> None:
        store.append(await longest_gap(port, 0.15, begun))

    for revision in range(2, 2 + rotations):
        await window(quiet, trio.Event())
        begun = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(window, switched, begun)
            await begun.wait()
            await world.settled(sidecar, revision, f"k{revision}", inputs=receiver)
    return quiet, switched


async def active_beside_a_full_queue(world: World, sidecar: Sidecar, revision: int) -> list[float]:
    """Seconds from `policy` to `active`, with the queue full and the destination dead."""
    world.destination.script = lambda request, documents: Reply(status=503)
    full = "queue: {max_bytes: 64KiB, retired_max_bytes: 1B}\n"
    await world.offer(sidecar, revision, "full", more=full)
    await sidecar.ack(revision, "active")
    world.write(200_000)
    await sidecar.state(lambda o: "the queue is full" in json.dumps(o["units"]))
    times = []
    for next_revision in range(revision + 1, revision + 21):
        begun = time.monotonic()
        await world.offer(sidecar, next_revision, f"f{next_revision}", more=full)
        await sidecar.ack(next_revision, "active")
        times.append(time.monotonic() - begun)
    return times


async def measure(rotations: int, directory: Path) -> None:
    async with open_world(directory) as world, launched(world.state) as sidecar:
        begun = time.monotonic()
        await sidecar.hello()
        print(f"start to ready            {(time.monotonic() - begun) * 1000:8.1f} ms")
        quiet, switched = await gaps(world, sidecar, rotations)
        show("longest wait, no revision", quiet)
        show("longest wait, a revision ", switched)
        ratio = statistics.median(switched) / statistics.median(quiet)
        print(f"ratio of the medians      {ratio:8.2f}")
        before = cpu_seconds(sidecar.process.pid)
        await trio.sleep(IDLE_SECONDS)
        used = (cpu_seconds(sidecar.process.pid) - before) / IDLE_SECONDS
        print(f"idle CPU                  {used * 100:8.2f} %")
        show("active, queue full, dead ", await active_beside_a_full_queue(world, sidecar, rotations + 2))


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{name} {statistics.median(ordered) * 1000:8.1f} ms median, {p99 * 1000:.1f} ms p99")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rotations", type=int, default=50)
    with tempfile.TemporaryDirectory() as directory:
        trio.run(measure, parser.parse_args().rotations, Path(directory))


if __name__ == "__main__":
    main()
