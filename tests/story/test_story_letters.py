"""Dead letters of the real process: requeued, and read again from their export."""

from __future__ import annotations

import json
from pathlib import Path

from shipper.testing import BulkDestination
from tests.story.driver import Sidecar
from tests.story.world import World, open_world, rejecting, shipping

COUNT = 50


async def refused(world: World, sidecar: Sidecar) -> None:
    """Makes dead letters by a mapping conflict, and then repairs the destination."""
    world.destination.script = rejecting
    world.write(COUNT)
    await sidecar.state(lambda o: o["dead_letters"]["events"] == COUNT)
    assert world.destination.total == 0
    world.destination.script = None


def moved(source: str, target: Path) -> list[str]:
    """Moves a file to `target`; returns its lines."""
    return Path(source).rename(target).read_text().splitlines()


def sources(destination: BulkDestination) -> list[str]:
    """The documents, whatever their ids."""
    return sorted(json.dumps(event, sort_keys=True) for event in destination.events)


async def test_what_a_mapping_conflict_refused_is_delivered_once_when_it_is_repaired(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        await refused(world, sidecar)
        listed = (await sidecar.action("dead_letters", list=True))["result"]["dead_letters"]
        result = await sidecar.action("dead_letters", requeue={"reason": "mapper_parsing"})
        await world.delivered()
        observed = await sidecar.holds(0)
        await sidecar.stop()

    assert (result["status"], result["result"]) == ("SUCCESS", {"requeued": COUNT, "damaged": 0})
    assert observed["dead_letters"]["events"] == 0
    assert dict(world.destination.copies) == dict.fromkeys([letter["event_id"] for letter in listed], 1)


async def test_dead_letters_that_are_requeued_enter_once_though_the_process_is_killed(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        async with world.shipping("a") as sidecar:
            await refused(world, sidecar)
            await sidecar.send({"type": "action", "id": "r", "name": "dead_letters", "params": {"requeue": {}}})
            await sidecar.kill()
        async with world.shipping("a") as sidecar:
            await sidecar.action("dead_letters", requeue={})
            await world.delivered()
            observed = await sidecar.holds(0)
            await sidecar.stop()

    assert observed["dead_letters"]["events"] == 0


async def test_the_exported_events_are_input_again(tmp_path: Path) -> None:
    """Read by `file` and `parse`, they are delivered byte for byte, except for their ids."""
    async with shipping(tmp_path, "a") as (world, sidecar):
        await refused(world, sidecar)
        exported = await sidecar.action("dead_letters", export="letters.ndjson", events=True)
        path = tmp_path / "events.ndjson"  # in the state directory it would lie in the clear
        wanted = sorted(
            json.dumps(json.loads(line), sort_keys=True) for line in moved(exported["result"]["path"], path)
        )
        again = f"  again: {{type: file, paths: ['{path}'], processors: [{{type: parse, format: json}}]}}\n"
        await world.settled(sidecar, 2, "a", inputs=again)
        await world.destination.wait_for(COUNT)
        await sidecar.stop()

    assert exported["result"]["exported"] == len(wanted) == COUNT
    assert sources(world.destination) == wanted
