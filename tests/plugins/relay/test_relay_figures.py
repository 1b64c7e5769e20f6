"""What both sides of a relay say of each other, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shipper.plugin import Asyncio, OutputContext
from shipper.plugin.relay import Edge, Waits
from shipper_plugins.relay.frames import Generation, Head
from shipper_plugins.relay.output import RelayOutput
from shipper_plugins.relay.principal.figures import Seen
from shipper_plugins.relay.principal.generations import SILENT_SECONDS
from tests.plugins.relay.pair import KEYS, Principal, edge, entry, principal
from tests.plugins.running import becomes


def edges(door: Principal) -> dict[str, Edge]:
    return {one.name: one for one in door.source.edges()}


def head(link: int, waiting: int, versions: int) -> Head:
    return Head(Generation("0" * 32, 1), link, 0, 0, waiting, versions)


async def test_a_principal_names_every_edge_of_its_policy_and_who_is_connected(aio: Asyncio) -> None:
    async with principal(aio) as door:
        assert edges(door) == {"berlin": Edge("berlin"), "paris": Edge("paris")}
        async with edge(aio, door.url) as sender:
            await sender.send(entry(1))
            known = edges(door)

    assert known["paris"] == Edge("paris")
    assert known["berlin"].connected_seconds is not None
    assert known["berlin"].heard_seconds is not None
    assert known["berlin"].heard_seconds <= known["berlin"].connected_seconds


async def test_an_edge_that_has_closed_its_connections_is_not_connected_after_a_while(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper_plugins.relay.principal.generations.GONE_SECONDS", 0.0)
    async with principal(aio) as door:
        async with edge(aio, door.url) as sender:
            await sender.send(entry(1))
        await becomes(lambda: edges(door)["berlin"].connected_seconds is None)
        assert edges(door)["berlin"].heard_seconds is not None


async def test_an_edge_says_what_waits_and_whom_it_relays_to(aio: Asyncio) -> None:
    async with principal(aio, acknowledge="delivered") as door:
        output = RelayOutput(name="berlin", hosts=(door.url,), credential=next(iter(KEYS)))
        context = OutputContext("principal", aio, KEYS, lane=1, waits=lambda: Waits(7, 3))
        opened: Any = output.open(context)
        async with opened as sender:
            before = sender.principal()
            await becomes(lambda: sender.principal().connected_seconds is not None)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.send, entry(1))
                await becomes(lambda: edges(door)["berlin"].waiting_events)
                nursery.cancel_scope.cancel()
            after = sender.principal()

        known = edges(door)["berlin"]
    assert (known.waiting_events, known.versions_behind) == (7, 3)
    assert (before.host, before.confirms) == (door.url.removeprefix("http://"), None)
    assert (after.host, after.confirms, after.reason) == (before.host, "delivered", "")


async def test_an_edge_says_why_it_is_not_connected(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url, credential="no") as sender:
        await becomes(lambda: sender.principal().reason)
        said = sender.principal()

    assert said.connected_seconds is None
    assert "401" in said.reason


def test_what_waits_is_that_of_all_links_that_are_in_use() -> None:
    seen = Seen()
    seen.said(head(1, 10, 1), 0.0)
    seen.said(head(2, 5, 2), 1.0)
    assert seen.edge("berlin", 1.0, 1.0, is_live=True)[3:] == (15, 3)

    seen.said(head(2, 4, 0), SILENT_SECONDS + 0.5)
    assert seen.edge("berlin", 1.0, 1.0, is_live=True)[3:] == (4, 0)


def test_a_connection_begins_with_the_first_session_of_an_edge_that_was_not_there() -> None:
    seen = Seen()
    seen.began(10.0, was_live=False)
    seen.began(20.0, was_live=True)
    assert seen.edge("berlin", 20.0, 30.0, is_live=True).connected_seconds == 20.0

    seen.began(40.0, was_live=False)
    assert seen.edge("berlin", 40.0, 41.0, is_live=True).connected_seconds == 1.0


def test_what_was_taken_of_a_request_waits_no_more() -> None:
    seen = Seen()
    seen.said(head(1, 10, 4), 0.0)
    seen.took(1, events=7, versions=5)
    seen.took(2, events=1)
    assert seen.edge("berlin", 0.0, 0.0, is_live=True)[3:] == (3, 0)
