"""How soon after the last answer of a backend behind a principal an edge says `drained`."""

from __future__ import annotations

import time
from typing import Any

from shipper_demo.ports import free_port
from tests.benchmarks.barrier import durable_writes
from tests.benchmarks.child import Shipper
from tests.benchmarks.doors import door, relay_output
from tests.benchmarks.figures import Table, milliseconds, progress
from tests.benchmarks.pipeline import IMPATIENT, bulk_output, queued, running, until_settled, workplace
from tests.benchmarks.rotation import Rotation
from tests.benchmarks.sink import Sink

AIM_MS = 30
DELAY = 0.15
"""Seconds after which the backend answers; twice as many wherever a slow machine has missed that instant."""
PATIENCE = 5.0
HELD = 200
EDGE = "berlin"


class FarRotation(Rotation):
    """An edge whose log goes to a principal, with another credential for each revision."""

    def output(self, credential: str) -> dict[str, Any]:
        return relay_output(self.port, EDGE, backoff=IMPATIENT) | {"credential": credential}


def drains(target: Sink, count: int) -> list[float]:
    """From the backend's last answer for an event of before to `drained`, of `count` revisions of an edge."""
    target.reset()
    delay, taken = DELAY, list[float]()
    with workplace() as place, running(place / "principal") as principal, running(place / "edge") as edge:
        port = free_port()
        most = 2 * count + 10
        keys = [f"c{number}" for number in range(1, most + 2)]
        backend = {"main": bulk_output(target.port)}
        door(principal, port, {EDGE: {"credentials": keys}}, backend, acknowledge="delivered")
        rotation = FarRotation(edge, place, port)
        rotation.turn()
        rotation.until_drained()
        for _ in range(most):
            target.answer_after(delay)
            progress(f"drained after the last answer of the far end: {len(taken) + 1} of {count}")
            rotation.write(HELD)
            if not _is_seen_waiting(edge):
                delay *= 2
                continue
            rotation.turn()
            active, drained = time.monotonic(), rotation.until_drained()
            last = target.counts()["last"]
            if last > active:
                taken.append(drained - last)
            else:
                delay *= 2
            if len(taken) == count:
                break
        else:
            raise SystemExit(f"revisions of the edge are active later than {delay:g} s, which is no measurement")
        target.answer_after(0)
        until_settled(edge, target, rotation.lines)
    return taken


def _is_seen_waiting(edge: Shipper) -> bool:
    """Whether what was written is seen in the queue; on a slow machine it may have passed before anybody looks."""
    latest = time.monotonic() + PATIENCE
    while time.monotonic() < latest:
        if queued(edge) >= HELD:
            return True
        time.sleep(0.005)
    return False


def table(taken: list[float]) -> Table:
    """The figures, and for scale those of a durable write on this disk."""
    with workplace() as place:
        durable = durable_writes(place)
    rows = [
        ["drained after the last answer, two hops away", *milliseconds(taken), f"p99 ≤ {AIM_MS}"],
        ["a durable write", *milliseconds(durable), ""],
    ]
    return Table([f"ms, of {len(taken)}", "p50", "p99", "max", "aim"], rows)
