"""`acknowledge: delivered`: an edge has its answers when the outputs of its principal have answered."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from shipper.plugin import Answer, Answers, Asyncio, Backpressure, Batch, Outcome
from shipper.plugin.relay import Ranked
from shipper.testing import RecordingInputContext
from shipper_demo.ports import free_port
from shipper_plugins.relay.edge import awaited
from shipper_plugins.relay.principal import answers as relay_answers
from tests.plugins.relay.pair import Principal, Queue, Sending, edge, entry, principal, sending_to
from tests.plugins.running import becomes

MODE: dict[str, Any] = {"acknowledge": "delivered"}


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "POLL_SECONDS", 0.2)


def settle(door: Principal, *answers: int) -> None:
    """All outputs of the principal have answered for what is stored there, for each event like this."""
    open = [key for key, said in door.context.awaited.items() if said is None]
    for key in open:
        door.context.awaited[key] = bytes(answers)
    door.source.answered(open)


async def stored(door: Principal, count: int) -> None:
    with trio.fail_after(30):
        await door.context.wait_for(count)


async def test_an_edge_waits_until_the_outputs_of_its_principal_have_answered(aio: Asyncio) -> None:
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        sending.send(entry(5, 1, 2, 3, 4, 5))
        await stored(door, 5)
        before = dict(sending.answers)
        settle(door, 0, Ranked.DUPLICATE, Ranked.DEAD_LETTER, Ranked.DROPPED, Ranked.DAMAGED)
        await sending.answered(5)

        assert before == {}
        assert {at: answer.outcome for at, answer in sending.answers[5].others.items()} == {
            1: Outcome.DUPLICATE,
            2: Outcome.DEAD_LETTER,
            3: Outcome.DROPPED,
            4: Outcome.DAMAGED,
        }


async def test_one_that_is_not_answered_holds_up_no_other(aio: Asyncio) -> None:
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        sending.send(entry(1))
        await stored(door, 1)
        held = list(door.context.awaited)
        for place in range(2, 40):
            sending.send(entry(place))
        await stored(door, 39)
        door.context.awaited.update({key: b"\0" for key in door.context.awaited if key not in held})
        door.source.answered([key for key in door.context.awaited if key not in held])
        await sending.answered(*range(2, 40))

        assert 1 not in sending.answers


async def test_answers_that_came_while_nobody_asked_are_there_for_the_next_sender(aio: Asyncio) -> None:
    async with principal(aio, **MODE) as door:
        async with sending_to(aio, door.url) as sending:
            sending.send(entry(5))
            await stored(door, 1)
        settle(door, Ranked.DEAD_LETTER)
        async with sending_to(aio, door.url, lane=2, credential="k2") as sending:
            sending.send(entry(5))
            await sending.answered(5)

        assert [answer.outcome for answer in sending.answers[5].others.values()] == [Outcome.DEAD_LETTER]
        assert door.numbers == [5]


async def test_a_send_that_was_cancelled_is_answered_when_it_comes_again(aio: Asyncio) -> None:
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        with trio.CancelScope() as first:
            async with trio.open_nursery() as inner:
                Sending(sending.sender, inner).send(entry(5))
                await stored(door, 1)
                first.cancel()
        settle(door, 0)
        sending.send(entry(6))
        await stored(door, 2)
        settle(door, 0)
        await sending.answered(6)
        sending.send(entry(5))
        await sending.answered(5)

        assert door.numbers == [5, 6]


async def test_a_principal_that_was_started_anew_gives_the_answers(aio: Asyncio) -> None:
    port = free_port()
    async with sending_to(aio, f"http://127.0.0.1:{port}") as sending:
        async with principal(aio, port=port, **MODE) as before:
            sending.send(entry(1))
            sending.send(entry(2))
            await stored(before, 2)
        before.context.close()
        again = before.copied()
        again.awaited = dict.fromkeys(again.awaited, b"\x01")
        async with principal(aio, context=again, port=port, **MODE) as after:
            await sending.answered(1, 2)

            assert after.numbers == []
            assert [answers.others[0].outcome for answers in sending.answers.values()] == [Outcome.DUPLICATE] * 2


async def test_what_is_unknown_after_damage_is_sent_once_more(aio: Asyncio) -> None:
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        sending.send(entry(5))
        await stored(door, 1)
        door.context.awaited.clear()
        await stored(door, 2)
        settle(door, 0)
        await sending.answered(5)

        assert door.numbers == [5, 5]
        assert len(set(door.ids())) == 1


async def test_what_the_next_principal_does_not_have_is_sent_there(aio: Asyncio) -> None:
    port = free_port()
    async with (
        principal(aio, **MODE) as second,
        sending_to(aio, f"http://127.0.0.1:{port}", second.url) as sending,
    ):
        async with principal(aio, port=port, **MODE) as first:
            sending.send(entry(5))
            await stored(first, 1)
        first.context.close()
        await stored(second, 1)
        settle(second, 0)
        await sending.answered(5)

        assert second.numbers == [5]


async def test_the_mode_of_a_part_is_that_of_its_admission(aio: Asyncio) -> None:
    async with principal(aio) as door, sending_to(aio, door.url) as sending:
        await sending.sender.send(entry(5, 1, 2).pick([0]))
        door.change(**MODE)
        assert await sending.sender.send(entry(5, 1, 2)) == Answers(2, is_stored=True)
        sending.send(entry(6))
        await stored(door, 3)
        assert len(door.context.awaited) == 1
        door.change()
        settle(door, 0)
        await sending.answered(6)


async def test_halves_have_answers_of_their_own(aio: Asyncio) -> None:
    whole = entry(5, 1, 2, 3)
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        sending.send(whole.pick([1]))
        await stored(door, 1)
        settle(door, Ranked.DROPPED)
        await sending.answered(5)
        part = sending.answers.pop(5)
        sending.send(whole)
        await stored(door, 3)
        settle(door, 0, Ranked.DUPLICATE)
        await sending.answered(5)

        assert part == Answers(1, {0: Answer(Outcome.DROPPED, "dropped at the principal")})
        others = {at: answer.outcome for at, answer in sending.answers[5].others.items()}
        assert others == {1: Outcome.DROPPED, 2: Outcome.DUPLICATE}


async def test_answers_that_the_edge_has_noted_are_forgotten(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio, **MODE) as door, sending_to(aio, door.url, queue=queue) as sending:
        for place in range(1, 100):
            queue.lowest = place
            sending.send(entry(place))
            await stored(door, place)
            settle(door, 0)
            await sending.answered(place)

        assert len(door.context.awaited) == 1
        assert len(door.source._edges._edges["berlin"].done) == 1


async def test_many_answers_come_in_pages(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_answers, "MOST_TOLD", 3)
    async with principal(aio, **MODE) as door, sending_to(aio, door.url) as sending:
        for place in range(1, 20):
            sending.send(entry(place))
        await stored(door, 19)
        settle(door, 0)
        await sending.answered(*range(1, 20))


async def test_without_room_an_awaited_part_is_put_off_as_any(aio: Asyncio) -> None:
    class Staged(RecordingInputContext):
        refuses = True

        async def emit(self, *batches: Batch, **how: object) -> None:
            if batches and self.refuses:
                self.refuses = False
                raise Backpressure("what processors hold cannot be awaited")
            await super().emit(*batches, **how)  # type: ignore[arg-type]

    async with principal(aio, context=Staged(aio=aio), **MODE) as door, sending_to(aio, door.url) as sending:
        sending.send(entry(1))
        await stored(door, 1)
        settle(door, 0)
        await sending.answered(1)


async def test_a_handshake_says_the_weakest_confirmation_of_the_way(aio: Asyncio) -> None:
    said = []
    for mode, is_end in (("stored", True), ("delivered", True), ("delivered", False)):
        queue = Queue()
        async with principal(aio, acknowledge=mode) as door, sending_to(aio, door.url, queue=queue) as sending:
            door.context.delivers = is_end
            sending.send(entry(1))
            await stored(door, 1)
        said += queue.delivers

    assert said == [False, True, False]


async def test_a_change_of_the_mode_begins_a_session_that_says_so(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio, **MODE) as door, sending_to(aio, door.url, queue=queue) as sending:
        sending.send(entry(1))
        await stored(door, 1)
        door.change(acknowledge="stored")
        answers = await sending.sender.send(entry(2))

    assert (answers, queue.delivers) == (Answers(1, is_stored=True), [True, False])


async def test_a_handshake_that_a_change_of_the_mode_overtakes_says_the_new_mode(aio: Asyncio) -> None:
    class Held(RecordingInputContext):
        def __init__(self) -> None:
            super().__init__(aio=aio)
            self.go_on = trio.Event()

        async def emit(self, *batches: Batch, **how: Any) -> None:
            await self.go_on.wait()
            await super().emit(*batches, **how)

    queue, context = Queue(), Held()
    async with (
        principal(aio, context=context, **MODE) as door,
        edge(aio, door.url, lane=2),
        edge(aio, door.url, queue=queue) as sender,
    ):
        known = door.source._edges._edges
        await becomes(lambda: known and known["berlin"].lock.statistics().tasks_waiting)
        door.change(acknowledge="stored")
        context.go_on.set()
        answers = await sender.send(entry(1))

    assert (answers, queue.delivers[0]) == (Answers(1, is_stored=True), False)


async def test_a_way_that_ends_elsewhere_begins_a_session_that_says_so(aio: Asyncio) -> None:
    queue = Queue()
    async with principal(aio, **MODE) as door, sending_to(aio, door.url, queue=queue) as sending:
        sending.send(entry(1))
        await stored(door, 1)
        door.context.delivers = False
        sending.send(entry(2))
        await stored(door, 2)

    assert queue.delivers == [True, False]
