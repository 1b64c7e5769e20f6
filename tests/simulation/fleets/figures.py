"""`python -m tests.simulation.fleets.figures --members 1000`: what many members without faults cost, fakes included.

joined      virtual seconds until all are members
lag         virtual seconds from the slowest member's `drained`, which its supervisor reads up to 0.3 s later, until
            `wait` opens
open        virtual seconds from the publish until then
version     writes of the store a member for one version, renewals apart
rest        writes of the store a member and third of a lease
cpu         percent of a core a member at rest, in the time of a wall clock
memory      KiB a member
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping
from random import Random

import trio

from shipper.fleet.observer import observing, wait
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import HEAD, Head, Version
from shipper.fleet.seal import Seals
from tests.fleet.memory import MemoryStore
from tests.simulation.clock import Clock
from tests.simulation.fleets.machine import FLEET, KEY, Machine
from tests.simulation.fleets.people import SECRETS, policy
from tests.simulation.fleets.transcript import Transcript

LEASE = 15.0
DELAY = 0.002
REST = 60.0
"""Virtual seconds."""


def measure(members: int) -> Mapping[str, float]:
    """Returns the figures, by name."""
    clock = Clock(1 << 62, lambda: None)
    with clock.at_work():
        return trio.run(_measure, members, clock=clock)


async def _measure(members: int) -> Mapping[str, float]:
    server, seals, transcript = MemoryStore(), Seals(FLEET, [KEY]), Transcript()
    client = server.client("operator")
    await client.swap(HEAD, seals.seal(HEAD, Head(FLEET)), expected=0)
    publisher = Publisher(client, seals, "operator")
    for name in SECRETS:
        await publisher.set_secret(name, f"{name}-content".encode())
    first = await publisher.publish(policy(SECRETS, 1))
    before = _rss()
    machines = [
        Machine(f"web-{n}", server, seals, transcript, Random(n), lease=LEASE, delay=DELAY) for n in range(members)
    ]
    for machine in machines:
        machine.idle = True
    figures: dict[str, float] = {}
    async with trio.open_nursery() as nursery:
        for machine in machines:
            nursery.start_soon(machine.keep_alive)
        async with observing(client, seals) as observer:
            while len(observer.view().reports) < members or not _all(transcript, first, members):
                await observer.changed()
            figures["joined"] = trio.current_time()
        figures["memory"] = (_rss() - before) / members
        await trio.sleep(LEASE)
        at_rest, cpu = _writes(machines), time.process_time()
        await trio.sleep(REST)
        spent = time.process_time() - cpu
        figures["rest"] = (_writes(machines) - at_rest) / members / (REST / (LEASE / 3))
        figures["cpu"] = 100 * spent / REST / members
        began, since = _writes(machines), trio.current_time()
        version = await publisher.publish(policy(SECRETS, 2))
        async with observing(client, seals) as observer:
            verdict = await wait(observer, version, "drained", 600.0, 10.0)
        assert verdict.state == "open", verdict.counts
        opened = trio.current_time()
        slowest = max(each.at for each in transcript.reached if each.version == version)
        figures["lag"], figures["open"] = opened - slowest, opened - since
        renewals = (opened - since) / (LEASE / 3) * figures["rest"]
        figures["version"] = (_writes(machines) - began) / members - renewals
        nursery.cancel_scope.cancel("measured")
    return figures


def _all(transcript: Transcript, version: Version, members: int) -> bool:
    return sum(each.stage == "drained" and each.version == version for each in transcript.reached) == members


def _writes(machines: list[Machine]) -> int:
    return sum(machine.link.calls["written"] for machine in machines if machine.link is not None)


def _rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleets.figures", description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    options = parser.parse_args()
    for name, value in measure(options.members).items():
        print(f"{name:8} {value:10.4f}")


if __name__ == "__main__":
    main()
