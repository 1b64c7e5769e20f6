"""A principal whose state directory went back is reported, with what it lacks, and everything goes on."""

from __future__ import annotations

import logging

import pytest

from shipper.plugin import Asyncio, Code
from shipper.plugin.relay import Confirmed
from shipper.sdk.state import point_of
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.edge.lineage import Lineage
from shipper_plugins.relay.frames import Generation, Welcome
from shipper_plugins.relay.input import Edge
from tests.plugins.relay.pair import Principal, Queue, edge, entry, principal
from tests.plugins.relay.test_relay_state import ONE, TWO, Here, versions
from tests.plugins.relay.test_relay_state import edge as edge_with_state
from tests.plugins.running import becomes

EDGES = {"berlin": Edge(credentials=("k1", "k2"), collections=("things",))}
WELL = (None, Code.OK)


async def send(aio: Asyncio, door: Principal, queue: Queue, *places: int, lane: int = 1) -> None:
    """In a session of its own."""
    async with edge(aio, door.url, queue=queue, lane=lane) as sender:
        await becomes(lambda: sender.principal().connected_seconds is not None)
        for place in places:
            await sender.send(entry(place))


async def test_a_principal_that_went_back_is_reported_once_with_the_range_and_events_go_on(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, queue, 1, 2)
        copy = door.copied()
        await send(aio, door, queue, 3, 4, 5)
    assert queue.notice == WELL
    async with principal(aio, context=copy) as door:
        await send(aio, door, queue, 6)
        text, code = queue.notice

        assert (door.numbers, code) == ([6], Code.PRINCIPAL_WENT_BACK)
        assert text is not None
        assert "log events at the places 3 to 5" in text
        await send(aio, door, queue, 7)
        assert queue.notice == WELL


async def test_an_edge_whose_own_directory_went_back_reports_nothing(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, queue, 1, 2)
        before = dict(queue.confirmed)
        await send(aio, door, queue, 3)
        queue.confirmed = before
        await send(aio, door, queue, 4)

        assert queue.notice == WELL


async def test_a_principal_that_was_restarted_has_its_lineage_still(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, queue, 1, 2)
    async with principal(aio, context=door.copied()) as door:
        await send(aio, door, queue, 3)

        assert (queue.notice, len(queue.confirmed)) == (WELL, 1)


async def test_another_directory_at_the_same_host_is_no_going_back_but_is_logged(
    aio: Asyncio, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, queue, 1, 2)
    door.context.close()
    async with principal(aio, port=door.port) as door:
        await send(aio, door, queue, 3)

        assert (queue.notice, len(queue.confirmed)) == (WELL, 2)
        assert "has another state directory than before" in caplog.text


async def test_the_lineage_that_another_source_of_the_input_has_drawn_is_the_one(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as one:
        beside = RecordingInputContext(aio=aio)
        beside.stored = one.context.stored
        async with principal(aio, context=beside) as other:
            await send(aio, one, queue, 1)
            await send(aio, other, queue, 2)

            assert len(queue.confirmed) == 1


async def test_a_part_that_another_link_has_brought_is_confirmed_to_both(aio: Asyncio) -> None:
    one, other = Queue(), Queue()
    async with principal(aio) as door:
        await send(aio, door, one, 5)
        for _ in range(2):
            await send(aio, door, other, 5, lane=2)

        assert door.numbers == [5]
        assert (one.notice, other.notice) == (WELL, WELL)


async def test_a_part_that_was_refused_is_not_confirmed(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, queue, 5)
        async with edge(aio, door.url, queue=queue) as sender:
            await sender.send(entry(5, 7, 8))
        [confirmed] = queue.confirmed.values()

        assert (confirmed.events, queue.notice) == (5, WELL)


async def test_a_link_that_was_forgotten_for_others_finds_no_principal_that_went_back(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper_plugins.relay.principal.edges.MOST_LINKS", 2)
    queue, context = Queue(), RecordingInputContext(aio=aio)
    for lane, places in ((1, (5,)), (2, (3,)), (3, (4,)), (1, ()), (4, ()), (5, (6,)), (1, (7,))):
        async with principal(aio, context=context) as door:  # what is remembered is remembered over restarts
            await send(aio, door, queue if lane == 1 else Queue(), *places, lane=lane)
            assert queue.notice == WELL
        context = door.copied()


async def test_a_link_that_is_known_is_not_taken_for_one_that_was_forgotten(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper_plugins.relay.principal.edges.MOST_LINKS", 2)
    queue = Queue()
    async with principal(aio) as door:
        await send(aio, door, Queue(), 9, lane=2)
        await send(aio, door, queue, 1)
        await send(aio, door, Queue(), lane=3)
        copy = door.copied()
        await send(aio, door, queue, 2)
    async with principal(aio, context=copy) as door:
        await send(aio, door, queue, 10)

        assert queue.notice[1] == Code.PRINCIPAL_WENT_BACK


async def test_what_is_remembered_of_forgotten_links_may_be_damaged(aio: Asyncio) -> None:
    context = RecordingInputContext(positions={"berlin/highest": b"?"}, aio=aio)
    queue = Queue()
    async with principal(aio, context=context) as door:
        await send(aio, door, queue, 1)

        assert (door.numbers, queue.notice) == ([1], WELL)
        assert "berlin/highest" not in door.context.stored


async def test_a_principal_that_lacks_versions_that_it_had_confirmed_is_reported(aio: Asyncio) -> None:
    queue, here = Queue(), Here({"a": (11, ONE), "b": (12, TWO)})
    async with (
        principal(aio, edges=EDGES) as door,
        edge_with_state(aio, door.url, queue=queue, here=here) as sender,
    ):
        await sender.send(versions(("a", 11, ONE)))
        copy = door.copied()
        await sender.send(versions(("b", 12, TWO)))
    async with principal(aio, edges=EDGES, context=copy) as door:
        here.again.clear()
        for expected in (Code.PRINCIPAL_WENT_BACK, Code.OK):
            async with edge_with_state(aio, door.url, queue=queue, here=here) as sender:
                await sender.send(versions(("a", 11, ONE)))
                assert queue.notice[1] == expected
        assert queue.confirmed[next(iter(queue.confirmed))].state == 11
        assert ("", point_of("things", "b")) in here.again


async def test_a_version_that_is_refused_for_ever_is_not_confirmed(aio: Asyncio) -> None:
    queue, large = Queue(), b'{"n":"%s"}' % (b"x" * 2000)
    small = {"berlin": Edge(credentials=("k1",), collections=("things",), max_document_bytes=1000)}
    async with (
        principal(aio, edges=small) as door,
        edge_with_state(aio, door.url, queue=queue) as sender,
    ):
        await sender.send(versions(("a", 11, large), ("b", 9, ONE)))
        [confirmed] = queue.confirmed.values()

        assert confirmed.state == 9


async def test_a_session_in_which_events_and_state_are_missing_counts_once_and_names_both(aio: Asyncio) -> None:
    queue = Queue()
    queue.confirmed = {"cd" * 16: Confirmed(5, 12)}
    lineage = Lineage(queue.context(aio))
    welcome = Welcome(1, Generation("ab" * 16, 1), "berlin", "stored", 25.0, 1 << 20, "cd" * 16, highest=3)
    await lineage.begin(welcome, "http://principal")
    lineage.compared(welcome.lineage, 11)

    assert "log events at the places 4 to 5 and keyed state at the places 12 to 12" in str(queue.notice[0])
    assert lineage._went_back.number == 1
