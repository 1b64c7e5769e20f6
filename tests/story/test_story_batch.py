"""An order that names a batch ends it in the real process, though nothing drains."""

from __future__ import annotations

import json
import re
from pathlib import Path

from shipper.testing import Document, Reply, Request
from tests.canary import EVENT
from tests.story.driver import Message, Sidecar, launched
from tests.story.world import World, open_world, shipping

COUNT = 20


def silent(request: Request, documents: list[Document]) -> Reply:
    """Nothing is kept, and no answer comes before the request is cut short."""
    return Reply(hang=True, commit=False)


async def held_up(world: World, sidecar: Sidecar, lines: int) -> None:
    """Lines whose requests get no answer; those of later ones do."""
    world.destination.script = silent
    world.write(lines)
    await sidecar.holds(lines)
    await world.destination.wait_until(lambda: world.destination.hanging > 0)
    world.destination.script = None


async def first_batch(sidecar: Sidecar) -> tuple[int | None, Message]:
    """The batch that waits first, as the answer to an order for one that is not there lists it."""
    answer = await sidecar.action("drop", output="main", batch=10**6)
    found = re.search(r"waiting first: batch (\d+) of output main$", answer["message"])
    return (None if found is None else int(found[1])), answer


async def test_the_batch_of_a_request_without_an_answer_is_given_up_and_later_ones_are_delivered(
    tmp_path: Path,
) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        await held_up(world, sidecar, COUNT)
        batch, _ = await first_batch(sidecar)
        result = await sidecar.action("dead_letter", output="main", batch=batch)
        world.write(5)
        observed = await sidecar.state(lambda o: o["queue"]["events"] == 0 and world.destination.total > 0)
        listed = await sidecar.action("dead_letters", list=True)
        left, nothing = await first_batch(sidecar)
        await sidecar.stop()

    letters = len(listed["result"]["dead_letters"])
    assert (result["status"], result["result"]) == ("SUCCESS", {"events": letters})
    assert observed["dead_letters"]["events"] == letters > 0
    assert world.destination.total == COUNT + 5 - letters
    assert (left, nothing["status"], nothing["code"]) == (None, "FAILED", "nothing_to_order")
    assert EVENT not in json.dumps([listed, nothing])


async def test_a_batch_that_was_dropped_stays_so_though_the_process_is_killed(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        async with world.shipping("a") as sidecar:
            await held_up(world, sidecar, 1)
            batch, _ = await first_batch(sidecar)
            result = await sidecar.action("drop", output="main", batch=batch)
            await sidecar.kill()
        async with launched(world.state) as sidecar:
            await sidecar.hello()
            again = await sidecar.action("drop", output="main", batch=batch)
            await world.settled(sidecar, 2, "a")
            world.write(1)
            await sidecar.state(lambda o: o["queue"]["events"] == 0 and world.destination.total > 0)
            await sidecar.stop()

    assert (result["status"], result["result"]) == ("SUCCESS", {"events": 1})
    assert (again["status"], again["code"]) == ("FAILED", "nothing_to_order")
    assert world.numbers() == [1]
