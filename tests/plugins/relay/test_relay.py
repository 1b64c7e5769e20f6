"""Two shippers relay: each event enters once, under the id that it has at its edge, whatever is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from shipper.plugin import Answers, Asyncio, Batch, CredentialId, Held, Later, Outcome, Sender, TooLarge
from shipper.plugin.relay import Principal as Said
from shipper.sdk.origins import Origin
from shipper_demo.ports import free_port
from shipper_plugins.elasticsearch.server import connections as bulk_connections
from shipper_plugins.relay import frames, output
from shipper_plugins.relay.edge import sessions
from shipper_plugins.relay.frames import Answered
from shipper_plugins.relay.input import Edge
from shipper_plugins.relay.principal import generations
from tests.plugins.relay.pair import EDGES, ORIGIN, Queue, Requests, chaos, edge, entry, principal


async def test_events_arrive_under_their_own_ids(aio: Asyncio) -> None:
    batch = entry(5, 1, 2, 3).pick([0, 2])
    async with principal(aio) as door, edge(aio, door.url) as sender:
        assert await sender.send(batch) == Answers(2, is_stored=True)

        assert door.numbers == [1, 3]
        assert door.ids() == batch.id_texts()


async def test_t117_5_what_comes_again_is_answered_as_the_first_time_and_does_not_enter_again(aio: Asyncio) -> None:
    async with principal(aio) as door:
        for _ in range(2):
            async with edge(aio, door.url) as sender:
                assert await sender.send(entry(5)) == Answers(1, is_stored=True)
                assert await sender.send(entry(5)) == Answers(1, is_stored=True)

        assert door.numbers == [5]
        assert door.counted("parts_again") == 3


async def test_t117_2_a_principal_that_was_killed_before_it_answered_knows_what_it_has(aio: Asyncio) -> None:
    async with principal(aio) as first, edge(aio, first.url) as sender:
        await sender.send(entry(5))
    async with principal(aio, context=first.copied()) as second, edge(aio, second.url) as sender:
        await sender.send(entry(5))
        await sender.send(entry(6))

        assert second.numbers == [6]


async def test_a_sender_goes_on_with_a_principal_that_was_started_anew(aio: Asyncio) -> None:
    port = free_port()
    async with edge(aio, f"http://127.0.0.1:{port}") as sender:
        async with principal(aio, port=port) as before:
            await sender.send(entry(1))
        before.context.close()
        async with principal(aio, context=before.copied(), port=port) as after:
            await sent(sender, entry(1))
            await sent(sender, entry(2))

            assert after.numbers == [2]


async def sent(sender: Sender, batch: Batch) -> None:
    """Send it until it is answered."""
    with trio.fail_after(30):
        while True:
            try:
                await sender.send(batch)
            except (Held, Later):
                await trio.sleep(0.01)
            else:
                return


async def test_what_is_sent_under_one_credential_is_answered_under_another(aio: Asyncio) -> None:
    async with principal(aio) as door:
        for credential in ("k1", "k2"):
            async with edge(aio, door.url, credential=credential) as sender:
                await sender.send(entry(5))

        assert door.numbers == [5]


async def test_another_edge_has_identities_of_its_own(aio: Asyncio) -> None:
    async with principal(aio) as door:
        async with edge(aio, door.url) as sender:
            await sender.send(entry(5))
        async with edge(aio, door.url, credential="other", name="paris") as sender:
            await sender.send(entry(5))

        assert door.numbers == [5, 5]


async def test_a_part_that_the_answer_does_not_name_is_not_confirmed(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take(*_: object) -> list[Answered]:
        return [Answered([])]

    async with principal(aio) as door, edge(aio, door.url) as sender:
        monkeypatch.setattr(door.source._server._parts, "take_together", take)
        with pytest.raises(Later, match="did not confirm"):
            await sender.send(entry(1))


async def test_a_small_part_of_an_edge_comes_in_one_piece_with_a_head_that_its_door_knows(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        before = door.source._server._server.requests_count
        for place in range(2, 6):
            await sender.send(entry(place))

        assert door.numbers == [1, 2, 3, 4, 5]
        assert door.source._server._server.requests_count == before


def test_each_batch_is_fed_alone() -> None:
    settings = output.RelayOutput(name="a", hosts=("http://localhost:1",), credential=CredentialId("k"))

    assert settings.feeding().apart
    assert settings.feeding().client == "lane"


async def test_parts_that_wait_go_in_few_requests(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        requests = Requests(sender, "parts")
        async with trio.open_nursery() as nursery:
            for place in range(2, 34):
                nursery.start_soon(sender.send, entry(place))

        assert sorted(door.numbers) == list(range(1, 34))
        assert requests.count <= 4


async def test_the_memory_of_what_was_taken_is_as_large_as_what_is_not_confirmed(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door, edge(aio, door.url, queue=queue) as sender:
        for place in range(1, 200):
            queue.lowest = place
            await sender.send(entry(place))
        assert len(door.context.stored["berlin/1"]) < 200


async def test_entries_below_the_mark_begin_another_session(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as door, edge(aio, door.url, queue=queue) as sender:
        queue.lowest = 7
        await sender.send(entry(7))
        queue.lowest = 3
        await sender.send(entry(3))

        assert door.numbers == [7, 3]


async def test_another_part_under_the_same_identity_is_held_and_never_acknowledged(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(5, 1))
        answers = await sender.send(entry(5, 2))

        assert [answer.outcome for answer in answers.others.values()] == [Outcome.HELD]
        assert (door.numbers, door.counted("identity_conflicts")) == ([1], 1)
        assert await sender.send(entry(6)) == Answers(1, is_stored=True)


@pytest.mark.parametrize(("is_own", "outcome"), [(False, Outcome.HELD), (True, Outcome.REJECTED)])
async def test_what_is_not_proven_is_held_if_it_is_of_others_and_rejected_if_its_secret_is_lost(
    aio: Asyncio, is_own: bool, outcome: Outcome
) -> None:
    own, queue = Origin(b"b" * 32), Queue()
    queue.origins[own.id] = own
    strange = entry(5) if is_own else entry(5).identified(ORIGIN, 5)
    edges = {"berlin": Edge(credentials=(CredentialId("k1"),))}
    async with principal(aio, edges=edges) as door, edge(aio, door.url, queue=queue) as sender:
        answers = await sender.send(strange)

        assert [answer.outcome for answer in answers.others.values()] == [outcome]
        assert await sender.send(entry(6, origin=own.id)) == Answers(1, is_stored=True)
        assert door.numbers == [6]


async def test_a_part_that_is_refused_takes_no_other_one_with_it(aio: Asyncio) -> None:
    answers: dict[int, Answers] = {}

    async def send(batch: Batch) -> None:
        answers[batch.place] = await sender.send(batch)

    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(5, 1))
        async with trio.open_nursery() as nursery:
            for batch in (entry(4), entry(5, 2), entry(6), entry(7)):
                nursery.start_soon(send, batch)

        assert sorted(door.numbers) == [1, 4, 6, 7]
        assert [place for place in sorted(answers) if answers[place].others] == [5]


async def test_what_is_too_large_is_sent_in_halves(aio: Asyncio) -> None:
    large = Batch.documents([b'{"n":"%s"}' % (b"x" * 40_000)] * 2).stored(b"o" * 16, 1)
    async with principal(aio, max_part_bytes=1 << 16) as door, edge(aio, door.url) as sender:
        with pytest.raises(TooLarge):
            await sender.send(large)
        for half in (large.pick([0]), large.pick([1])):
            await sender.send(half)

        assert door.ids() == large.id_texts()


async def test_without_room_the_sender_is_put_off(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        door.context.full = True
        with pytest.raises(Later) as put_off:
            await sender.send(entry(2))
        door.context.full = False
        await sender.send(entry(2))

        assert (put_off.value.retry_after, door.numbers) == (1.0, [1, 2])


async def test_a_sender_that_says_another_name_than_its_credential_is_held(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url, name="paris") as sender:
        with pytest.raises(Held, match="not that of the edge paris"):
            await sender.send(entry(1))
        assert door.numbers == []


async def test_a_host_that_is_gone_gives_its_place_to_the_next_one(aio: Asyncio) -> None:
    async with principal(aio) as second:
        async with edge(aio, "http://127.0.0.1:1", second.url) as sender:
            await sender.send(entry(1))
        async with principal(aio) as first, edge(aio, first.url, second.url) as sender:
            await sender.send(entry(2))
            assert (first.numbers, second.numbers) == ([2], [1])


async def test_a_sender_begins_where_another_lane_of_its_destination_is_connected(aio: Asyncio) -> None:
    used: list[str] = []
    async with principal(aio) as first, principal(aio) as second, principal(aio) as third:
        queue, doors = Queue(), (first, second, third)
        said = [Said(door.url.removeprefix("http://")) for door in doors]
        for beside in (
            said,
            [said[1]._replace(confirms="stored"), said[2]._replace(confirms="stored", connected_seconds=7.0)],
            [said[1]._replace(confirms="stored"), said[2]],
            [Said("elsewhere:1", 7.0, confirms="stored")],
        ):
            queue.beside = lambda beside=beside: beside  # type: ignore[misc]
            async with edge(aio, *(door.url for door in doors), queue=queue) as sender:
                number = 1 + len(used)
                await sender.send(entry(number))
                used += [["first", "second", "third"][at] for at, door in enumerate(doors) if number in door.numbers]

    assert used == ["first", "third", "second", "first"]


async def test_a_sender_that_had_a_session_follows_no_other_lane(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio) as first, principal(aio) as second:
        async with edge(aio, first.url, second.url, queue=queue) as sender:
            await sender.send(entry(1))
            queue.beside = lambda: [Said(second.url.removeprefix("http://"), 7.0, confirms="stored")]
            first.source._edges.renew()
            await sender.send(entry(2))

        assert (first.numbers, second.numbers) == ([1, 2], [])


async def test_a_second_live_process_under_one_name_is_refused_until_the_first_is_gone(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "GONE_SECONDS", 0.05)
    async with principal(aio) as door:
        async with edge(aio, door.url) as first:
            await first.send(entry(1))
            monkeypatch.setattr(sessions, "_instance", "c" * 32)
            async with edge(aio, door.url) as clone:
                with pytest.raises(Held) as refused:
                    await clone.send(entry(1, 7, origin=b"c" * 16))
                await first.send(entry(2))
        async with edge(aio, door.url) as clone:
            await sent(clone, entry(1, 7, origin=b"c" * 16))

        assert refused.value.code == "edge_cloned"
        assert door.numbers == [1, 2, 7]
        assert door.counted("edges_cloned") > 0


async def test_the_connection_of_an_idle_sender_stays_open(aio: Asyncio) -> None:
    assert frames.HEARTBEAT_SECONDS < sessions.IDLE_SECONDS < bulk_connections.IDLE_SECONDS
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        before = door.source.figures()
        await sender.send(entry(2))

        assert (before, door.source.figures()) == ({"connections": 1}, {"connections": 1})


async def test_a_send_that_is_cancelled_leaves_the_others_alone(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        with trio.move_on_after(0):
            await sender.send(entry(2))
        await sender.send(entry(3))

        assert {1, 3} <= set(door.numbers) <= {1, 2, 3}


async def test_edges_are_the_same_after_a_change_of_the_others(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        door.change(edges={"berlin": EDGES["berlin"]})
        await sender.send(entry(1))
        async with edge(aio, door.url, credential="other", name="paris") as other:
            with pytest.raises(Held):
                await other.send(entry(9))

        assert door.numbers == [1]


@pytest.mark.parametrize("seed", range(2))
async def test_t117_5_events_enter_once_over_connections_that_are_cut_delayed_and_repeated(
    aio: Asyncio, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "GONE_SECONDS", 0.0)
    queue = Queue()
    unsettled = set(range(1, 151))
    queue.lowest = 1

    async def deliver(places: Iterator[int]) -> None:
        for place in places:
            await sent(sender, entry(place))
            unsettled.discard(place)
            queue.lowest = min(unsettled, default=151)

    async with principal(aio) as door, chaos(seed, door.port) as proxy:
        async with edge(aio, f"http://127.0.0.1:{proxy.port}", queue=queue) as sender:
            places = iter(range(1, 151))
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(deliver, places)

        assert sorted(door.numbers) == list(range(1, 151))
