"""Faults that others had where one shipper relays to another; each test has the number that docs/relay-history.md gives
it. What is here has no other test that would show it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shipper.plugin import Answers, Asyncio, Batch, Outcome
from shipper.sdk.state import point_of
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.edge import awaited, sessions
from shipper_plugins.relay.principal import edges as relay_edges
from shipper_plugins.relay.principal import generations
from tests.plugins.relay import pair
from tests.plugins.relay.pair import ORIGIN, Queue, entry, sending_to
from tests.plugins.relay.test_relay import sent
from tests.plugins.relay.test_relay_delivered import settle, stored
from tests.plugins.relay.test_relay_state import EDGES, ONE, TWO, Here, door, edge, give, has, outcomes, versions
from tests.plugins.running import becomes


async def test_a3_a_document_that_changed_while_its_edge_was_away_takes_the_place_of_the_old_one(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 5, ONE))
        here = Here({"a": (9, TWO)})
        async with edge(aio, far.url, here=here) as sender:
            await becomes(lambda: here.again == [("", point_of("things", "a"))])
            await sender.send(versions(("a", 9, TWO)))

        assert has(far) == {("berlin", "a"): TWO}


async def test_a7_an_answer_for_a_version_settles_no_log_event_at_the_same_place(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        await sender.send(versions(("other", 1, ONE)))
        emit = far.context.emit
        far.context.emit = refusing(far.context)
        answers = [await sender.send(entry(5)), await sender.send(versions(("a", 5, ONE)))]
        answers.append(await sender.send(versions(("a", 5, ONE))))
        far.context.emit = emit

        assert [outcomes(each) for each in answers] == [["later"], ["stored"], ["duplicate"]]
        assert far.numbers == []
        assert await sender.send(entry(5)) == Answers(1, is_stored=True)
        assert far.numbers == [5]


def refusing(context: RecordingInputContext) -> Any:
    """An `emit` for which there is never room."""
    emit = context.emit

    async def refuse(*batches: Batch, **how: Any) -> None:
        before, context._full = context._full, bool(batches)
        try:
            await emit(*batches, **how)
        finally:
            context._full = before

    return refuse


async def test_a7_events_of_the_same_text_are_as_many_as_there_were(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        for place in (1, 2):
            await sender.send(entry(place, 7, 7))

        assert far.numbers == [7] * 4
        assert len(set(far.ids())) == 4


async def test_a8_answers_arrive_while_events_of_the_same_edge_cannot_be_stored(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = trio.Event()
    async with door(aio, acknowledge="delivered") as far, sending_to(aio, far.url, here=Here()) as sending:
        emit = far.context.emit

        async def hang(*batches: Batch, **how: Any) -> None:
            if batches and far.context.count:
                hung.set()
                await trio.sleep_forever()
            await emit(*batches, **how)

        monkeypatch.setattr(far.context, "emit", hang)
        sending.send(entry(1))
        await stored(far, 1)
        sending.send(entry(2))
        await hung.wait()
        settle(far, 0)
        await sending.answered(1)

        assert 2 not in sending.answers


async def test_a9_a_slow_receiver_gets_one_copy_of_each_part(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(aio) as far, edge(aio, far.url) as sender:
        emit = far.context.emit

        async def slowly(*batches: Batch, **how: Any) -> None:
            await trio.sleep(0.2)
            await emit(*batches, **how)

        monkeypatch.setattr(far.context, "emit", slowly)
        async with trio.open_nursery() as nursery:
            for place in range(1, 33):
                nursery.start_soon(sender.send, entry(place))

        assert sorted(far.numbers) == list(range(1, 33))
        assert far.counted("parts_again") == 0


async def test_a10_an_edge_whose_events_hang_delays_no_other_edge(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = trio.Event()
    async with (
        door(aio) as far,
        edge(aio, far.url) as berlin,
        edge(aio, far.url, credential="other", name="paris") as paris,
    ):
        emit = far.context.emit

        async def hang(*batches: Batch, **how: Any) -> None:
            if any(event["n"] == 1 for batch in batches for event in batch.whole()):
                hung.set()
                await trio.sleep_forever()
            await emit(*batches, **how)

        monkeypatch.setattr(far.context, "emit", hang)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(berlin.send, entry(1))
            await hung.wait()
            for place in range(2, 12):
                await paris.send(entry(place))
            nursery.cancel_scope.cancel()

        assert far.numbers == list(range(2, 12))


async def test_a12_many_lives_of_an_edge_take_as_much_memory_as_a_few(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "GONE_SECONDS", 0.0)
    monkeypatch.setattr(relay_edges, "MOST_LINKS", 8)
    lives = 24
    async with door(aio) as far:
        for life in range(1, lives):
            monkeypatch.setattr(sessions, "_instance", f"{life:032x}")
            async with pair.edge(aio, far.url, lane=life) as sender:
                await sent(sender, entry(life, origin=life.to_bytes(16, "big")))
        (berlin,) = far.source._edges._edges.values()

        assert far.numbers == list(range(1, lives))
        links = [key for key in far.context.stored if key.rpartition("/")[2].isdecimal()]
        assert len(links) == len(berlin.links) == 8
        assert len(berlin.sessions._newest) <= 8


async def test_a13_two_senders_that_begin_at_the_same_time_both_deliver(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as one, edge(aio, far.url) as other:
        async with trio.open_nursery() as nursery:
            for place in range(1, 21):
                nursery.start_soon(sent, (one, other)[place % 2], entry(place))

        assert sorted(far.numbers) == list(range(1, 21))


async def test_a14_the_end_of_an_old_connection_does_not_end_the_new_one(aio: Asyncio) -> None:
    async with door(aio) as far, edge(aio, far.url) as new:

        def connected() -> set[Any]:
            open_now = list(far.source._server._open["berlin"])  # in one step, since the server changes it
            return {each for each in open_now if each.transport is not None}

        await new.send(entry(1))
        mine = connected()
        async with edge(aio, far.url) as old:
            await old.send(entry(2))
            theirs = connected() - mine
            await new.send(entry(3))
            generation = new._sessions.current
        await becomes(lambda: not theirs & connected())
        await new.send(entry(4))

        assert new._sessions.current is generation
        assert far.numbers == [1, 2, 3, 4]


async def test_a15_the_answer_for_one_edge_is_none_for_another(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "POLL_SECONDS", 0.05)
    async with (
        door(aio, acknowledge="delivered") as far,
        sending_to(aio, far.url, here=Here()) as berlin,
        sending_to(aio, far.url, here=Here(), credential="other", name="paris") as paris,
    ):
        for sending in (berlin, paris):
            sending.send(entry(5, origin=ORIGIN))
        await stored(far, 2)
        (own,) = [key for key in far.context.awaited if key.startswith("berlin/")]
        far.context.awaited[own] = b"\0"
        far.source.answered([own])
        await berlin.answered(5)
        asked = far.source._server._answers.told
        questions = 0

        async def counted(*those: Any) -> Any:
            nonlocal questions
            questions += 1
            return await asked(*those)

        monkeypatch.setattr(far.source._server._answers, "told", counted)
        await becomes(lambda: questions == 3)

        assert paris.answers == {}
        settle(far, 0)
        await paris.answered(5)


async def test_a16_sets_are_compared_in_every_session_however_soon_they_follow(aio: Asyncio) -> None:
    async with door(aio) as far:
        for n in range(10):
            here = Here({"a": (n + 1, ONE)})
            async with edge(aio, far.url, here=here):
                await becomes(lambda here=here: here.again != [])  # type: ignore[misc]


async def test_a16_a_new_session_of_a_running_sender_compares_again(aio: Asyncio) -> None:
    here, queue = Here({"a": (5, ONE)}), Queue()
    async with door(aio) as far, edge(aio, far.url, here=here, queue=queue) as sender:
        for times in range(1, 6):
            queue.lowest = 10 - times  # entries below the mark begin a session
            await sender.send(entry(10 - times))
            await becomes(lambda times=times: here.asked == times)  # type: ignore[misc]


async def test_a17_sets_of_the_same_names_and_places_are_not_equal_if_a_document_differs(aio: Asyncio) -> None:
    async with door(aio) as far:
        await give(aio, far, ("a", 5, ONE), ("b", 6, ONE))
        here = Here({"a": (5, TWO), "b": (6, ONE)})
        async with edge(aio, far.url, here=here):
            await becomes(lambda: here.again != [])

        assert here.again == [("", point_of("things", "a"))]


async def test_a18_nothing_of_one_edge_is_surplus_to_another_whose_name_begins_alike(aio: Asyncio) -> None:
    edges = {"berlin": EDGES["berlin"], "berlin-2": EDGES["paris"]}
    async with door(aio, edges=edges) as far:
        await give(aio, far, ("a", 5, ONE), credential="other", name="berlin-2")
        here = Here()
        await give(aio, far, ("b", 6, ONE), here=here)

        assert here.asked == 1
        assert here.decided == []
        assert has(far) == {("berlin-2", "a"): ONE, ("berlin", "b"): ONE}


async def test_a19_a_principal_that_has_nothing_yet_is_sent_every_key_and_deletes_none(aio: Asyncio) -> None:
    keys = {f"k{n}": (n + 1, ONE) for n in range(50)}
    async with door(aio) as first, door(aio) as second:
        for far in (first, second, first):
            here = Here(keys)
            async with edge(aio, far.url, here=here) as sender:
                answers = await sender.send(versions(*((key, *has) for key, has in keys.items())))

            assert here.decided == []
            assert len(here.again) == (0 if outcomes(answers)[0] == Outcome.DUPLICATE.value else len(keys))
        assert has(first) == has(second) == {("berlin", key): ONE for key in keys}
