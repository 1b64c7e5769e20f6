"""Requests that stay the same: the events and the id of one are those of its first attempt, until all are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Answer, Answers, Later, Outcome, Sender, TooLarge
from shipper.sdk.event import Batch
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from shipper.spool.requests import Part
from tests.fakes import DESTINATIONS, Bench, Destination, bench, poke, secret

Asked = list[tuple[str, tuple[int, ...]]]
QUICK = (0.001, 0.002)


class Store(Sender):
    """A destination that keeps what it gets under the id of the request, as an object store does. `says` are what it
    answers to one request after the other; behind their end it takes everything."""

    def __init__(self, says: Sequence[str] = ()) -> None:
        self.asked: Asked = []
        self.objects: dict[str, tuple[int, ...]] = {}
        self.says = list(says)
        self.rejected: set[int] = set()

    async def send(self, batch: Batch) -> Answers:
        assert batch.request is not None
        await trio.lowlevel.checkpoint()
        numbers = tuple(event["n"] for event in batch.own())
        self.asked.append((batch.request.id, numbers))
        match self.says.pop(0) if self.says else "takes":
            case "loses the answer":
                self.objects[batch.request.id] = numbers
                raise Later("no answer")
            case "is down":
                raise Later("503")
            case "finds it too large" if batch.count > 1:
                raise TooLarge("413")
            case "puts one off":
                return Answers(batch.count, {0: Answer(Outcome.LATER, "429")})
            case "rejects one":
                self.objects[batch.request.id] = numbers[1:]
                self.rejected.add(numbers[0])
                return Answers(batch.count, {0: Answer(Outcome.REJECTED, "400")})
        self.objects[batch.request.id] = numbers
        return Answers(batch.count)

    @property
    def stored(self) -> list[int]:
        """All events in all objects."""
        return sorted(n for numbers in self.objects.values() for n in numbers)

    def compositions(self) -> dict[str, set[tuple[int, ...]]]:
        """By id, what was sent."""
        return {id: {numbers for one, numbers in self.asked if one == id} for id, _ in self.asked}


def wants(script: Destination, store: Store, **feeding: Any) -> None:
    script.feeding |= {"stable": True, "linger": 0.0, "backoff": QUICK, **feeding}
    script.send = store.send


@asynccontextmanager
async def fed(path: Path, store: Store, **feeding: Any) -> AsyncIterator[Bench]:
    async with bench(path) as on:
        wants(DESTINATIONS["main"], store, **feeding)
        await on.activate(1, main="k1")
        yield on


@asynccontextmanager
async def again(path: Path, store: Store, **feeding: Any) -> AsyncIterator[Bench]:
    """After a crash."""
    async with bench(path) as on:
        wants(DESTINATIONS["main"], store, **feeding)
        on.keyring.keep({"k1": secret("k1")})
        await on.delivery.restore(await on.spool.revisions.lanes())
        yield on


async def rows(on: Bench) -> int:
    found = await on.spool.store.read(lambda db: db.execute("SELECT count(*) FROM request").fetchone())
    return int(found[0])


async def test_a_retry_has_the_events_and_the_id_of_the_first_attempt_whatever_came_since(tmp_path: Path) -> None:
    store = Store(["loses the answer"] * 3)
    async with fed(tmp_path, store) as on:
        for _ in range(4):
            await on.enter(3)
        await on.empty()

        assert store.stored == list(range(12))
        assert all(len(sent) == 1 for sent in store.compositions().values())
        assert await rows(on) == 0


async def test_after_a_crash_it_is_the_same_before_anything_else_is_sent(tmp_path: Path) -> None:
    store = Store(["loses the answer"] * 1_000_000)
    async with fed(tmp_path, store) as on:
        await on.enter(3)
        await DESTINATIONS["main"].until(lambda: len(store.asked) > 1)
        await on.enter(3)
    before, store.says, store.asked = store.asked, [], []
    async with again(tmp_path, store) as on:
        await on.empty()

    assert store.asked[0] == before[0]
    assert store.stored == list(range(6))


async def test_no_final_answer_is_noted_before_all_are_there(tmp_path: Path) -> None:
    """Else the next attempt would have to do without an event."""
    store = Store(["puts one off"] * 2)
    async with fed(tmp_path, store) as on:
        await on.enter(3)
        await on.empty()

        assert len(store.asked) == 3
        assert len(set(store.asked)) == 1


async def test_of_a_request_that_is_too_large_each_half_has_its_own_id(tmp_path: Path) -> None:
    store = Store(["finds it too large", "loses the answer", "takes", "loses the answer"])
    async with fed(tmp_path, store) as on:
        await on.enter(4)
        await on.empty()

        whole, *halves = dict.fromkeys(store.asked)
        assert whole[1] == (0, 1, 2, 3)
        assert [numbers for _, numbers in halves] == [(0, 1), (2, 3)]
        assert store.stored == [0, 1, 2, 3]
        assert await rows(on) == 0


async def test_of_two_halves_without_answers_both_stay_the_same(tmp_path: Path) -> None:
    store = Store(["finds it too large", "puts one off", "loses the answer"])
    async with fed(tmp_path, store) as on:
        await on.enter(4)
        await on.empty()

        assert all(len(sent) == 1 for sent in store.compositions().values())
        assert {numbers for _, numbers in store.asked} == {(0, 1, 2, 3), (0, 1), (2, 3)}
        assert store.stored == [0, 1, 2, 3]
        assert await rows(on) == 0


async def test_events_that_another_request_has_meanwhile_go_with_that_one(tmp_path: Path) -> None:
    """An order may have moved it here, after this session has read those that there were."""
    store = Store([])
    async with fed(tmp_path, store) as on:
        await on.enter(1)
        await on.empty()
        compose, moved = on.spool.queue.compose, list[str]()

        async def later(lane: int, parts: Sequence[Part], instead: str | None) -> str | None:
            if not moved:
                moved.append(await compose(lane, [parts[0]._replace(last=1)], None) or "")
            return await compose(lane, parts, instead)

        on.spool.queue.compose = later  # type: ignore[method-assign]
        await on.enter(4)
        await on.empty()

        assert store.asked[1:] == [(moved[0], (1, 2)), (store.asked[-1][0], (3, 4))]
        assert store.stored == [0, 1, 2, 3, 4]
        assert await rows(on) == 0


async def test_a_request_waits_as_a_whole_for_room_for_its_dead_letters(tmp_path: Path) -> None:
    store = Store(["rejects one"] * 1_000_000)
    async with fed(tmp_path, store) as on:
        await on.spool.revisions.take_over(SpoolLimits(Limits(max_bytes=1, when_full="hold")))
        await on.enter(3)
        await DESTINATIONS["main"].until(lambda: len(store.asked) > 2)
        assert on.spool.figures.total().events == 3
        await on.spool.revisions.take_over(SpoolLimits())
        store.says = ["rejects one"]
        on.active["main"].has_room()
        await on.empty()

        assert len(set(store.asked)) == 1


async def test_whoever_does_not_ask_has_no_id_and_no_row(tmp_path: Path) -> None:
    ids: list[object] = []
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]

        async def send(batch: Batch) -> Answers:
            ids.append(batch.request)
            return await script.deliver(batch)

        script.send = send
        await on.activate(1, main="k1")
        await on.enter(3)
        await on.empty()

        assert ids == [None]
        assert await rows(on) == 0


async def test_an_event_on_which_the_output_fails_holds_up_no_other(tmp_path: Path) -> None:
    """It is alone in its request, so that only another one shows that the output works."""
    store = Store()
    sends = store.send

    async def send(batch: Batch) -> Answers:
        if 0 in [event["n"] for event in batch.own()]:
            raise ValueError("a bug")
        return await sends(batch)

    async with fed(tmp_path, store) as on:
        DESTINATIONS["main"].send = send
        await on.enter(1)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].log.count("send 1") > 3)
        await on.enter(2)
        await on.empty()

        assert store.stored == [1, 2]
        assert (await on.spool.letters.figures()).events == 1


async def test_a_request_has_as_much_as_the_output_asks_for_and_goes_again_as_a_whole(tmp_path: Path) -> None:
    """More than others have memory for: it waits for that, and is not divided."""
    store = Store(["loses the answer"])
    async with bench(tmp_path) as on:
        wants(DESTINATIONS["main"], store, bytes=6 << 20)
        await on.activate(1, main="missing")
        for _ in range(8):
            await on.enter(1, padding=1_000_000)
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

    assert [numbers for _, numbers in dict.fromkeys(store.asked)] == [(0, 1, 2, 3, 4, 5), (6, 7)]
    assert store.asked[0] == store.asked[1]


async def test_what_waits_for_more_is_no_lane_that_stalls(tmp_path: Path) -> None:
    store = Store()
    async with fed(tmp_path, store, linger=600.0) as on:
        lane = on.active["main"]
        await on.enter(1)
        await on.empty()
        await on.enter(1)
        with trio.fail_after(60):
            while not (lane.machine.session is not None and lane.machine.session.feed.is_gathering):
                await trio.testing.wait_all_tasks_blocked()
        lane.shown._moved -= 1000.0
        lane.watch(holds_events=True)

        assert lane.problem is None
        assert store.stored == [0]
        lane.hurry()
        await on.empty()


async def test_a_request_of_which_no_event_is_left_is_forgotten(tmp_path: Path) -> None:
    """A damaged row may name items that its entry does not have."""
    store = Store(["is down"] * 1_000_000)
    async with fed(tmp_path, store) as on:
        await on.enter(3)
        await DESTINATIONS["main"].until(lambda: len(store.asked) > 1)
    store.says, store.asked = [], []
    async with bench(tmp_path) as on:
        wants(DESTINATIONS["main"], store)
        await on.spool.store.do(
            lambda db: db.execute("UPDATE request SET parts = json('[[' || (SELECT seq FROM todo) || ',7,9]]')")
        )
        on.keyring.keep({"k1": secret("k1")})
        await on.delivery.restore(await on.spool.revisions.lanes())
        await on.empty()

        assert store.stored == [0, 1, 2]
        assert await rows(on) == 0


SAYS = st.sampled_from(["takes", "loses the answer", "is down", "puts one off", "rejects one"])


@pytest.mark.parametrize("in_flight", [1, 2])
def test_whatever_is_answered_and_wherever_it_crashes_each_event_is_in_one_object(
    tmp_path_factory: pytest.TempPathFactory, in_flight: int
) -> None:
    @given(
        says=st.lists(SAYS, max_size=8),
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
        crash=st.integers(0, 6),
    )
    @settings(max_examples=8, deadline=None)
    def holds(says: list[str], sizes: list[int], crash: int) -> None:
        trio.run(story, tmp_path_factory.mktemp("spool"), says, sizes, crash, in_flight)

    holds()


async def story(path: Path, says: list[str], sizes: list[int], crash: int, in_flight: int) -> None:
    store = Store(says)
    feeding = {"in_flight": in_flight, "apart": in_flight > 1}
    async with fed(path, store, **feeding) as on:
        for size in sizes:
            await on.enter(size)
        with trio.move_on_after(1):
            await DESTINATIONS["main"].until(lambda: len(store.asked) >= crash or not on.spool.figures.total().events)
    async with again(path, store, **feeding) as on:
        await on.empty()

    assert all(len(sent) == 1 for sent in store.compositions().values())
    assert sorted({*store.stored} | store.rejected) == list(range(sum(sizes)))
    assert len(store.stored) == len(set(store.stored))
