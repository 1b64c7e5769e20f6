"""State directories of a relay that go back to an older copy, are lost, or are run twice: what arrives nevertheless."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from shipper_demo.ports import free_port
from tests.story.driver import Message
from tests.story.test_story_relay import DELIVERED, Relay, copied, empty, open_relay, running
from tests.story.world import secret


def codes(observed: Message) -> set[str]:
    return {unit.get("code", "") for unit in observed["units"]}


def sent_twice(relay: Relay) -> int:
    """Events that the backend has had before, under the same id."""
    return sum(count == 2 for count in relay.world.destination.copies.values())


# -- the principal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "older copy"])
async def test_what_waits_for_delivery_survives_a_principal_whose_directory_is_lost_or_goes_back(
    tmp_path: Path, is_lost: bool
) -> None:
    copy = tmp_path / "copy"
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 1, "k1", mode=DELIVERED)
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(300)
            await relay.delivered()
            await empty(edge)
            await door.kill()
        copied(relay.principal_state, copy)
        relay.world.revoke("backend")
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 2, "k1", mode=DELIVERED)
            relay.world.write(300)
            await door.holds(300)
            await door.kill()
        shutil.rmtree(relay.principal_state)
        if not is_lost:
            copied(copy, relay.principal_state)
        relay.world.grant("backend")
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 3, "k1", mode=DELIVERED)
            await relay.delivered()
            await empty(edge)


async def test_what_a_copy_of_a_principal_delivers_once_more_is_a_duplicate_at_the_backend(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        relay.world.revoke("backend")
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 1, "k1")
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(300)
            await door.holds(300)
            await empty(edge)
            await door.kill()
        copied(relay.principal_state, copy)
        relay.world.grant("backend")
        for directory in (relay.principal_state, copy):
            async with running(directory) as door:
                await relay.offer_principal(door, 2, "k1")
                relay.world.write(100)
                await relay.delivered()
                await empty(edge)
                await empty(door)

    assert sent_twice(relay) == 300


async def test_two_principals_of_one_directory_at_once_deliver_each_event_once(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        relay.ports.append(free_port())
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 1, "k1", mode=DELIVERED)
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(300)
            await relay.world.destination.wait_for(1)
            await door.kill()
        copied(relay.principal_state, copy)
        async with running(relay.principal_state) as first, running(copy) as second:
            await relay.offer_principal(first, 2, "k1", mode=DELIVERED)
            await relay.offer_principal(second, 2, "k1", port=relay.ports[1], mode=DELIVERED)
            relay.world.write(300)
            await relay.delivered()
            await first.kill()
            relay.world.write(300)
            await relay.delivered()
            await empty(edge)
            await empty(second)


# -- the edge ----------------------------------------------------------------------------------------------------------


async def test_an_older_copy_of_an_edge_sends_its_queue_under_the_same_ids_and_what_it_reads_again_under_new_ones(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy"
    async with open_relay(tmp_path) as relay:
        async with running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(200)
            await edge.holds(200)
            await edge.kill()
        copied(relay.edge_state, copy)
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 1, "k1")
            async with running(relay.edge_state) as edge:
                await relay.offer_edge(edge, 2, "k1")
                await relay.delivered()
                relay.world.write(100)
                await relay.delivered()
                await edge.kill()
            async with running(copy) as edge:
                await relay.offer_edge(edge, 2, "k1")
                await relay.world.destination.wait_for(400)
                await empty(edge)
                await empty(door)
        numbers = relay.world.numbers()

    assert numbers == sorted([*range(300), *range(200, 300)])


async def test_an_edge_that_lost_its_directory_reads_again_and_loses_nothing(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door:
        await relay.offer_principal(door, 1, "k1")
        for _ in range(2):
            shutil.rmtree(relay.edge_state, ignore_errors=True)
            relay.world.write(100)
            before = relay.world.destination.total
            async with running(relay.edge_state) as edge:
                await relay.offer_edge(edge, 1, "k1")
                await relay.world.destination.wait_for(before + relay.world.lines)
                await empty(edge)
                await edge.kill()
        numbers = relay.world.numbers()

    assert numbers == sorted([*range(100), *range(200)])


async def test_the_later_of_two_processes_of_one_edge_is_refused_visibly_until_the_first_is_gone(
    tmp_path: Path,
) -> None:
    clone = tmp_path / "clone"
    other = tmp_path / "other.log"
    other.touch()
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door:
        await relay.offer_principal(door, 1, "k1")
        async with running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(100)
            await relay.delivered()
            await edge.kill()
        copied(relay.edge_state, clone)
        async with running(clone) as second, running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 2, "k1")
            relay.world.write(100)
            await relay.delivered()
            text = relay.of_edge("k1").replace(str(relay.world.log), str(other))
            await second.policy(2, text, {"k1": secret("k1")})
            refused = await second.state(lambda observed: "edge_cloned" in codes(observed))
            relay.world.write(100)
            await relay.delivered()
            await empty(edge)
            counted = await door.state(lambda observed: figure(observed, "edges_cloned") > 0)
            first = await edge.observe()
            await edge.stop()
            await second.state(lambda observed: observed["state"] == "HEALTHY" and "edge_cloned" not in codes(observed))

    assert refused["state"] == "DEGRADED"
    assert first["state"] == "HEALTHY"
    assert counted["state"] == "HEALTHY"


def figure(observed: Message, name: str) -> Any:
    return sum(unit.get("figures", {}).get(name, 0) for unit in observed["units"])
