"""Lanes on a real spool, against outputs that answer, fail and hang at exact targets."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise, repeat
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import trio

from shipper.pipeline.delivery import session
from shipper.pipeline.delivery.backlog import ASK_SECONDS, Backlog
from shipper.pipeline.delivery.feed import REFUSED
from shipper.pipeline.memory.loans import CAREFUL_REQUESTS, REQUEST_BYTES, Borrower
from shipper.plugin import (
    Answer,
    Answers,
    Code,
    Duration,
    Feeding,
    Held,
    Later,
    Outcome,
    OutputContext,
    Sender,
    StartFailed,
    TooLarge,
)
from shipper.plugin.outputs import MOST_FLUSH
from shipper.process.environment import REAL, Environment
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields
from shipper.spool import queue
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from shipper.spool.queue import Arrival, Entry, Packed
from shipper.spool.report import Report
from shipper.spool.revisions import Text
from shipper.values import Counts, Revision
from tests.fakes import DESTINATIONS, PATIENCE, Bench, Destination, Pace, ScriptedOutput, bench, poke, secret


@asynccontextmanager
async def one_output(
    path: Path, credential: str | None = None, environment: Environment = REAL
) -> AsyncIterator[tuple[Bench, Destination]]:
    async with bench(path, environment=environment) as on:
        await on.activate(1, main=credential)
        yield on, DESTINATIONS["main"]


class Longest(Random):
    """Draws the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return b


def main_counts(on: Bench) -> dict[str, int]:
    counters = on.delivery.counters().get("main", {})
    return {name: count for name, count in counters.items() if count}


# -- delivering --------------------------------------------------------------------------------------------------------


async def test_events_are_delivered_once_and_in_order_by_one_worker(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 1}}, main=None)
        sent = await on.enter(3, batches=50)
        await on.empty()

        assert DESTINATIONS["main"].asked == sent
        assert main_counts(on) == {"delivered": 150}


async def test_as_many_requests_are_under_way_as_there_are_workers(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 3}}, main=None)
        script = DESTINATIONS["main"]
        script.send = script.hang
        await on.enter(600, batches=30)  # more than two requests can take, whatever is joined

        await script.until(lambda: script.sending == 3)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert script.sending == 3


async def test_what_was_stored_before_a_restart_is_delivered_after_it(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        sent = await on.enter(2, batches=100)
    async with bench(tmp_path) as on:
        await on.delivery.restore(await on.spool.revisions.lanes())
        await on.empty()

        assert sorted(DESTINATIONS["main"].received) == sent


async def test_a_batch_for_two_outputs_is_settled_by_each_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main=None, other=None)
        DESTINATIONS["other"].send = DESTINATIONS["other"].hang
        await on.enter(5)
        await DESTINATIONS["main"].until(lambda: len(DESTINATIONS["main"].received) == 5)

        assert on.spool.figures.total().events == 5


# -- memory ------------------------------------------------------------------------------------------------------------


def note_sizes(on: Bench, script: Destination) -> list[int]:
    """What the requests from now on hold, unpacked."""
    sizes: list[int] = []

    async def send(batch: Batch) -> Answers:
        sizes.append(len(batch.body))
        return await script.deliver(batch)

    script.send = send
    return sizes


@pytest.mark.parametrize("recent", [True, False])
async def test_batches_go_together_by_what_they_unpack_to(
    tmp_path: Path, recent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not recent:
        monkeypatch.setattr("shipper.pipeline.memory.recent.Recent.keep", lambda *_: None)
    async with one_output(tmp_path, "missing") as (on, script):
        sizes = note_sizes(on, script)
        sent = await on.enter(batches=40, padding=REQUEST_BYTES // 8)
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        assert script.received == sent
        assert REQUEST_BYTES // 2 < max(sizes) <= REQUEST_BYTES


async def test_what_an_output_groups_by_stays_shared_in_what_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "feeding", lambda _: Feeding(grouping=("tenant",)))
    async with one_output(tmp_path, "missing") as (on, script):
        sent: list[tuple[int, Fields]] = []

        async def send(batch: Batch) -> Answers:
            sent.append((batch.count, batch.shared))
            return await script.deliver(batch)

        script.send = send
        for tenant in ("a", "b"):
            for number in range(3):
                await on.enter(2, shared={"tenant": {"name": tenant}, "number": number})
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        assert sent == [(6, {"tenant": {"name": tenant}}) for tenant in ("a", "b")]


_ALTERNATING = [tenant for _ in range(3) for tenant in ("a", "b")]


@pytest.mark.parametrize(
    ("feeding", "expected"),
    [
        (Feeding(grouping=("tenant",)), [["a"] * 6, ["b"] * 6]),
        (Feeding(grouping=("tenant",), ordered=True), [[tenant] * 2 for tenant in _ALTERNATING]),
        (Feeding(grouping=("tenant",), mixes=True), [[tenant for tenant in _ALTERNATING for _ in range(2)]]),
        (
            Feeding(grouping=("tenant",), mixes=True, ordered=True),
            [[tenant for tenant in _ALTERNATING for _ in range(2)]],
        ),
    ],
)
async def test_batches_of_alternating_groups_share_requests_as_far_as_their_output_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feeding: Feeding, expected: list[list[str]]
) -> None:
    """Most hosts have more than one data set, and their inputs take turns."""
    monkeypatch.setattr(ScriptedOutput, "feeding", lambda _: feeding)
    async with one_output(tmp_path, "missing") as (on, script):
        requests: list[list[Fields]] = []

        async def send(batch: Batch) -> Answers:
            requests.append(batch.plain())
            return await script.deliver(batch)

        script.send = send
        sent = [n for tenant in _ALTERNATING for n in await on.enter(2, shared={"tenant": tenant})]
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        assert [[event["tenant"] for event in request] for request in requests] == expected
        for tenant in "ab":
            of_tenant = [event["n"] for request in requests for event in request if event["tenant"] == tenant]
            assert of_tenant == sorted(of_tenant)
        assert sorted(script.received) == sent


async def test_each_event_of_a_request_of_several_groups_has_its_own_answer_and_what_is_left_its_own_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "feeding", lambda _: Feeding(grouping=("tenant",), mixes=True))
    async with one_output(tmp_path, "missing") as (on, script):
        requests: list[dict[str, list[str]]] = []

        async def send(batch: Batch) -> Answers:
            events = batch.plain()
            requests.append(
                {id: [event["tenant"], event["n"]] for id, event in zip(batch.id_texts(), events, strict=True)}
            )
            at_first = len(requests) == 1
            later = [at for at, event in enumerate(events) if at_first and event["tenant"] == "b" and event["n"] % 2]
            return Answers(batch.count, dict.fromkeys(later, Answer(Outcome.LATER, "not now")))

        script.send = send
        for tenant in _ALTERNATING:
            await on.enter(2, shared={"tenant": tenant})
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        first, *others = requests
        again = {id: event for request in others for id, event in request.items()}
        assert again == {id: [tenant, n] for id, (tenant, n) in first.items() if tenant == "b" and n % 2}
        assert main_counts(on)["delivered"] == 12


async def test_the_time_without_an_answer_begins_with_the_request_of_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of one reading may go in many requests, one after the other; each of them is answered at once."""
    monkeypatch.setattr(ScriptedOutput, "feeding", lambda _: Feeding(grouping=("tenant",)))
    async with one_output(tmp_path, "missing") as (on, script):
        begun: list[tuple[float, float]] = []

        async def send(batch: Batch) -> Answers:
            begun.append((trio.current_time(), min(on.active["main"].machine.backlog.outstanding.values())))
            return await script.deliver(batch)

        script.send = send
        for tenant in _ALTERNATING:
            await on.enter(2, shared={"tenant": tenant})
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        (first, _), (_, waits_since) = begun
        assert waits_since > first


async def test_a_batch_that_is_larger_than_a_request_goes_alone(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        sizes = note_sizes(on, script)
        small = await on.enter()
        large = await on.enter(padding=3 * REQUEST_BYTES)
        small += await on.enter()
        await on.empty()

        assert sorted(script.received) == sorted(small + large)
        assert [size for size in sizes if size > REQUEST_BYTES] == [3 * REQUEST_BYTES + len(b'{"n":1,"p":""}\n')]


async def test_a_lane_with_a_large_batch_passes_others_whose_destination_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.02)
    monkeypatch.setattr("shipper.pipeline.delivery.lane.SILENT_SECONDS", 0.1)
    monkeypatch.setattr("shipper.pipeline.memory.loans.SHARED_BYTES", REQUEST_BYTES + 1)
    async with bench(tmp_path) as on:
        await on.activate(1, main=None, silent=None)
        silent, script = DESTINATIONS["silent"], DESTINATIONS["main"]
        silent.send = silent.hang
        await on.enter(padding=REQUEST_BYTES, to=["silent"])
        await silent.until(lambda: silent.sending == 1)
        sent = await on.enter(padding=REQUEST_BYTES, to=["main"])
        await script.until(lambda: script.received == sent)


async def test_who_waits_for_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.02)
    monkeypatch.setattr("shipper.pipeline.delivery.shown.STALLED_SECONDS", 0.1)
    async with one_output(tmp_path) as (on, script):
        lender = on.delivery.lender
        held = await Borrower(lender).borrow(lender.shared)
        sent = await on.enter(padding=2 * REQUEST_BYTES)
        text = "nothing was delivered for more than 0.1 s, it waits for memory that other requests hold"
        await script.until(lambda: on.active["main"].problem == text)
        assert held is not None
        held.give_back()
        await script.until(lambda: script.received == sent)


async def test_a_session_that_ends_waits_for_no_memory(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        lender = on.delivery.lender
        await Borrower(lender).borrow(lender.shared)
        await on.enter(padding=2 * REQUEST_BYTES)
        await script.until(lambda: on.active["main"].memory.loans.is_waiting)
        with trio.fail_after(PATIENCE):
            async with on.active["main"].suspended():
                assert not on.active["main"].memory.loans.loans


async def test_a_session_that_ends_in_order_waits_for_no_memory_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        lender, lane = on.delivery.lender, on.active["main"]
        held = await Borrower(lender).borrow(lender.shared)
        sent = await on.enter(padding=2 * REQUEST_BYTES)
        await script.until(lambda: lane.memory.loans.is_waiting)
        lane.adopt(ScriptedOutput(workers=3), active=True)
        await script.until(lambda: not lane.memory.loans.is_waiting)
        assert held is not None
        held.give_back()
        await script.until(lambda: script.received == sent)


async def test_a_session_that_is_aborted_gives_back_what_it_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = trio.Event()

    async def hang(*_: object) -> None:
        loading.set()
        await trio.sleep_forever()

    async with one_output(tmp_path) as (on, _):
        monkeypatch.setattr("shipper.pipeline.memory.recent.Recent.keep", lambda *_: None)
        monkeypatch.setattr(on.spool.queue, "load", hang)
        await on.enter()
        await loading.wait()
        (lane,) = on.active.values()
        assert lane.memory.loans.loans
        async with lane.suspended():
            assert not lane.memory.loans.loans


async def test_after_a_process_that_was_killed_batches_are_sent_one_by_one(tmp_path: Path) -> None:
    async with one_output(tmp_path, "missing") as (on, script):
        sent = await on.enter(batches=2 * CAREFUL_REQUESTS)
    async with bench(tmp_path, was_killed=True) as on:
        script = DESTINATIONS["main"]
        on.keyring.keep({"missing": secret("missing")})
        await on.delivery.restore(await on.spool.revisions.lanes())
        await on.empty()

        assert script.received == sent
        sizes = [int(line.split()[1]) for line in script.log if line.startswith("send")]
        assert sizes[:CAREFUL_REQUESTS] == [1] * CAREFUL_REQUESTS
        assert max(sizes[CAREFUL_REQUESTS:]) > 1


# -- waiting for more --------------------------------------------------------------------------------------------------

PATIENT = {"main": {"flush": MOST_FLUSH}}
SOON = MOST_FLUSH / 2


@asynccontextmanager
async def gathering(
    path: Path, settings: dict[str, dict[str, Any]] = PATIENT
) -> AsyncIterator[tuple[Bench, Destination]]:
    """A lane that has just sent something, so that what comes now may wait; it is left at once."""
    async with bench(path) as on:
        await on.activate(1, settings, main="k1")
        script = DESTINATIONS["main"]
        await on.enter()
        await script.until(lambda: len(script.received) == 1)
        with trio.fail_after(SOON):
            yield on, script


async def test_an_event_after_a_pause_goes_at_once_and_more_wait_for_each_other(tmp_path: Path) -> None:
    async with gathering(tmp_path) as (on, script):
        await on.enter(batches=20)
        await trio.testing.wait_all_tasks_blocked(0.05)

        assert script.asked == [0]
    async with bench(tmp_path) as on:
        await on.activate(2, {"main": {"flush": Duration(0.3)}}, main="k1")
        await on.enter(batches=20)
        await on.empty()

        assert len(DESTINATIONS["main"].log) < 10


@pytest.fixture
def noted_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait until something other than time ends that."""
    monkeypatch.setattr(session, "NOTED_WITHIN", 3600.0)


async def one_by_one(on: Bench, events: int) -> None:
    """Each event is answered, and its answer waits, before the next one comes."""
    script = DESTINATIONS["main"]
    for _ in range(events):
        await on.enter()
        await script.until(lambda: len(script.received) == on._next)
        await trio.testing.wait_all_tasks_blocked(0.02)


@pytest.mark.usefixtures("noted_late")
async def test_an_answer_is_stored_in_the_commit_of_the_next_batch(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        await one_by_one(on, 1)
        await on.empty()
        writer, groups = on.spool.store._writer, list[int]()
        commit = writer._transaction

        def counted(group: Sequence[Any]) -> None:
            groups.append(len(group))
            commit(group)

        writer._transaction = counted  # type: ignore[method-assign]
        await one_by_one(on, 4)

        assert groups == [1, 2, 2, 2]
        assert on.spool.figures.total().events == 1
        on.delivery.hurry()
        await on.empty()


@pytest.mark.usefixtures("noted_late")
@pytest.mark.parametrize("end", ["a drain", "a stop", "a hold", "a lapsed lease"])
async def test_no_answer_waits_where_its_lane_ends(tmp_path: Path, end: str) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        await one_by_one(on, 2)
        assert on.spool.figures.total().events == 1
        if end == "a drain":
            await on.activate(2, main="k2")
        elif end == "a stop":
            on.delivery.hurry()
        elif end == "a hold":
            on.active["main"]._end(on.active["main"].machine.session)
        else:
            on.active["main"].cut_off()
        await on.empty()


@pytest.mark.usefixtures("noted_late")
async def test_no_answer_waits_where_somebody_waits_for_the_room_that_it_makes(tmp_path: Path) -> None:
    async with bench(tmp_path) as on, trio.open_nursery() as nursery:
        await on.activate(1, main="k1")
        await one_by_one(on, 2)
        emptied = trio.Event()

        async def wait_for_room() -> None:
            while on.spool.figures.total().events:
                await on.spool.room.wait()
            emptied.set()

        nursery.start_soon(wait_for_room)
        await one_by_one(on, 1)
        with trio.fail_after(PATIENCE):
            await emptied.wait()


async def test_with_no_time_to_flush_nothing_waits(tmp_path: Path) -> None:
    async with gathering(tmp_path, {"main": {"flush": Duration(0)}}) as (on, script):
        await on.enter()
        await script.until(lambda: len(script.received) == 2)


async def test_a_full_batch_does_not_wait(tmp_path: Path) -> None:
    async with gathering(tmp_path) as (on, script):
        await on.enter(Feeding().events // 2, batches=2)
        await script.until(lambda: len(script.received) == 1 + Feeding().events)


@pytest.mark.parametrize("end", ["a drain", "a stop", "another time", "a barrier of an active lane"])
async def test_nothing_that_ends_waits_for_more_events(tmp_path: Path, end: str) -> None:
    async with gathering(tmp_path) as (on, script):
        await on.enter()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(script.asked) == 1
        if end == "a drain":
            await on.activate(2, PATIENT, main="k2")
        elif end == "a stop":
            on.delivery.hurry()
        elif end == "another time":
            await on.activate(2, {"main": {"flush": Duration(0)}}, main="k1")
        else:
            await on.activate(2, PATIENT, main="k2")
            await on.activate(3, PATIENT, main="k1")
        await on.empty()

        assert script.received == [0, 1]


async def test_events_that_are_put_off_again_and_again_do_not_hold_up_new_ones(tmp_path: Path) -> None:
    async with gathering(tmp_path, {"main": {"flush": Duration(0.3)}}) as (on, script):
        script.send = script.refusing(1)
        await on.enter()
        await script.until(lambda: script.asked.count(1) > 3)
        await on.enter(5)
        await script.until(lambda: len(script.received) == 6)


# -- later, held, rejected, too large ----------------------------------------------------------------------------------


async def test_a_request_without_an_answer_is_repeated_whole(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Later("503"), times=3)
        sent = await on.enter(4)
        await on.empty()

        assert script.received == sent
        assert script.asked == sent * 4
        assert on.active["main"].problem is None


async def test_trouble_closes_the_output_before_the_next_attempt(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Later("503"), times=1)
        await on.enter()
        await on.empty()

        assert script.log[:4] == ["open nobody", "send 1", "close nobody", "open nobody"]


def timed(send: Callable[[Batch], Awaitable[Answers]], times: list[float]) -> Callable[[Batch], Awaitable[Answers]]:
    """`send`, with the times at which it was asked."""

    async def note(batch: Batch) -> Answers:
        times.append(trio.current_time())
        return await send(batch)

    return note


async def test_a_lane_in_trouble_waits_before_its_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.lane.backoff", lambda first, longest, draw: repeat(0.2))
    times: list[float] = []
    async with one_output(tmp_path) as (on, script):
        script.send = timed(script.raising(Later("503"), times=2), times)
        await on.enter()
        await on.empty()

    assert len(times) == 3
    assert all(after - before >= 0.2 for before, after in pairwise(times))


async def test_a_destination_that_names_a_time_is_not_asked_before_that(tmp_path: Path) -> None:
    times: list[float] = []
    async with one_output(tmp_path) as (on, script):
        script.send = timed(script.raising(Later("429", 0.3), times=1), times)
        await on.enter()
        await on.empty()

    assert len(times) == 2
    assert times[1] - times[0] >= 0.3


async def test_batch_after_batch_refused_event_by_event_is_no_storm_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.lane.backoff", lambda first, longest, draw: repeat(0.2))
    times: list[float] = []
    async with bench(tmp_path) as on:
        DESTINATIONS["main"].feeding["events"] = 1
        await on.activate(1, {"main": {"workers": 1}}, main=None)
        script = DESTINATIONS["main"]
        script.send = timed(script.refusing(*range(20)), times)
        await on.enter(1, batches=20)
        await script.until(lambda: len(times) == 8)

    assert all(after - before >= 0.2 for before, after in pairwise(times[REFUSED - 1 :]))


async def test_the_longest_wait_that_was_asked_for_counts_though_another_request_failed_first(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 2}}, main=None)
        script = DESTINATIONS["main"]
        both, failed = trio.Event(), trio.Event()

        async def send(batch: Batch) -> Answers:
            if failed.is_set():
                return await script.hang(batch)
            if script.sending == 1:
                await both.wait()
                failed.set()
                raise Later("503")
            both.set()
            await failed.wait()
            await trio.testing.wait_all_tasks_blocked()
            raise Later("429", retry_after=3600)

        script.send = send
        await on.enter(3000, batches=4)
        await script.until(lambda: "close nobody" in script.log)
        await trio.testing.wait_all_tasks_blocked(0.2)

        assert script.log.count("open nobody") == 1


@asynccontextmanager
async def asked_to_wait(path: Path) -> AsyncIterator[tuple[Bench, Destination]]:
    """A lane whose destination wants to be left alone for an hour, and would take everything by now."""
    async with one_output(path, "k1") as (on, script):
        script.send = script.raising(Later("429", 3600))
        await on.enter()
        await script.until(lambda: on.active["main"].problem is not None)
        script.send = script.deliver
        yield on, script


@pytest.mark.parametrize("what", ["the same again", "another output", "retired", "an order", "another's credential"])
async def test_what_happens_elsewhere_does_not_shorten_the_wait_that_was_asked_for(tmp_path: Path, what: str) -> None:
    async with asked_to_wait(tmp_path) as (on, script):
        lane = on.active["main"]
        match what:
            case "the same again":
                await on.activate(2, main="k1")
            case "another output":
                await on.activate(2, main="k1", side="k2")
            case "retired":
                await on.activate(2, side="k2")
            case "an order":
                async with lane.suspended():
                    pass
            case _:
                on.delivery.pool.supplied({"k2"})
        await on.enter()
        await trio.testing.wait_all_tasks_blocked(0.1)

        assert script.log.count("open k1") == 1
        assert lane.problem == "429"


async def test_settings_that_come_while_a_request_is_under_way_are_tried_at_once_though_it_fails(
    tmp_path: Path,
) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        asked, answer = trio.Event(), trio.Event()

        async def send(batch: Batch) -> Answers:
            asked.set()
            await answer.wait()
            raise Later("429", 3600)

        script.send = send
        await on.enter()
        await asked.wait()
        await on.activate(2, {"main": {"workers": 7}}, main="k1")
        script.send = script.deliver
        answer.set()
        await on.empty()

        assert script.log.count("open k1") == 2


@pytest.mark.parametrize("what", ["its credential", "its settings"])
async def test_what_a_lane_needs_makes_it_try_at_once_when_it_comes(tmp_path: Path, what: str) -> None:
    async with asked_to_wait(tmp_path) as (on, script):
        if what == "its credential":
            on.delivery.pool.supplied({"k1"})
        else:
            await on.activate(2, {"main": {"workers": 7}}, main="k1")
        await on.empty()

        assert script.log.count("open k1") == 2


async def test_a_refusal_holds_the_events_and_is_probed_with_a_few(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Held("401 Unauthorized"))
        await on.enter(1000)
        await script.until(lambda: script.log.count("open nobody") >= 4)
        lane = on.active["main"]

        assert lane.problem == "401 Unauthorized, events held"
        assert [line for line in script.log if line.startswith("send")][:3] == ["send 1000", "send 8", "send 8"]
        assert on.spool.figures.total().events == 1000


async def test_a_destination_that_takes_us_again_gets_all_after_one_probe(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Held("401"), times=1)
        sent = await on.enter(1000)
        await on.empty()

        assert sorted(script.received) == sent
        assert [line for line in script.log if line.startswith("send")] == ["send 1000", "send 8", "send 992"]
        assert script.log.count("open nobody") == 2
        assert on.active["main"].problem is None


async def test_a_notice_of_the_output_outlasts_deliveries_and_gives_way_to_a_problem(
    tmp_path: Path,
) -> None:
    async with one_output(tmp_path) as (on, script):
        await on.enter(1)
        await on.empty()
        lane = on.active["main"]
        script.contexts[-1].notice("it went back", "went_back")
        await on.enter(1)
        await on.empty()
        assert (lane.problem, lane.code, lane.is_held) == ("it went back", "went_back", False)

        script.send = script.raising(Held("401 Unauthorized"))
        await on.enter(1)
        await script.until(lambda: lane.code == Code.REFUSED)
        script.send = script.deliver
        await on.empty()
        assert lane.code == "went_back"

        script.contexts[-1].notice(None, Code.OK)
        assert (lane.problem, lane.code) == (None, Code.OK)


async def test_a_probe_whose_events_are_all_put_off_is_no_success(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Held("401"), times=1)

        async def later(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            return Answers(batch.count, dict.fromkeys(range(batch.count), Answer(Outcome.LATER, "429")))

        await on.enter(1000)
        await script.until(lambda: script.log.count("close nobody") >= 1)
        script.send = later
        await script.until(lambda: script.log.count("close nobody") >= 3)

        assert script.log[2:7] == ["close nobody", "open nobody", "send 8", "close nobody", "open nobody"]


async def test_an_event_refused_for_ever_is_a_dead_letter_and_the_others_are_delivered(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.refusing(3, outcome=Outcome.REJECTED, reason="400 mapping")
        await on.enter(10)
        await on.empty()
        (letter,) = await on.spool.letters.page(0, 10)

        assert main_counts(on) == {"delivered": 9, "dead_letter": 1}
        assert orjson.loads(orjson.dumps(letter["event"]))["n"] == 3
        assert "400 mapping" in letter["reason"]


async def test_a_held_event_is_parked_while_the_others_go_on(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.refusing(3)
        await on.enter(10, batches=20)
        await script.until(lambda: on.spool.figures.total().events == 1)
        lane = on.active["main"]
        told: list[str | None] = []
        lane.shown._on_change = lambda: told.append(lane.problem)
        await script.until(lambda: script.asked.count(3) > 2)
        await on.enter(10, batches=20)  # what is noted of others says nothing of the one that is on its way again
        await script.until(lambda: script.asked.count(3) > 4 and on.spool.figures.total().events == 1)

        assert (told, lane.problem) == ([], "403 forbidden")
        assert sorted(script.received) == [n for n in range(400) if n != 3]
        script.send = script.deliver
        await on.empty()
        await script.until(lambda: on.active["main"].problem is None)


@pytest.mark.parametrize("small_bytes", [0, 1000])
async def test_a_request_that_is_too_large_is_halved_down_to_the_event_that_is(
    tmp_path: Path, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large event is a dead letter; a small one is held, and all others are delivered."""
    monkeypatch.setattr("shipper.pipeline.attempts.attempt.SMALL_BYTES", small_bytes)
    async with one_output(tmp_path) as (on, script):

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if any(event["n"] == 5 for event in batch.own()):
                raise TooLarge("413")
            return script.answer(batch, {})

        script.send = send
        sent = await on.enter(16)
        await script.until(lambda: main_counts(on).get("delivered") == 15)
        await script.until(lambda: on.spool.figures.total().events == (1 if small_bytes else 0))

        assert sorted(script.received) == [n for n in sent if n != 5]
        assert main_counts(on).get("dead_letter", 0) == (0 if small_bytes else 1)


async def test_a_small_event_that_is_too_large_is_in_nobodys_way(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if any(event["n"] == 0 for event in batch.own()):
                raise TooLarge("413")
            return script.answer(batch, {})

        script.send = send
        await on.enter()
        await script.until(lambda: on.active["main"].problem is not None and script.asked.count(0) > 3)
        await on.enter(10)
        await script.until(lambda: len(script.received) == 10)


async def test_a_destination_that_has_no_room_for_a_small_event_holds_all(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(TooLarge("413"), times=60)
        await on.enter(100)
        await script.until(lambda: "413 for one event of" in (on.active["main"].problem or ""))
        await on.empty()

        assert main_counts(on)["delivered"] == 100
        assert "dead_letter" not in main_counts(on)


async def test_an_answer_of_the_wrong_length_settles_nothing(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):

        async def short(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            return Answers(batch.count - 1)

        script.send = short
        await on.enter(3)
        await script.until(lambda: script.log.count("close nobody") >= 2)

        assert on.spool.figures.total().events == 3
        assert on.active["main"].problem == "the output answered for 2 of 3 events"
        assert on.active["main"].code == Code.PLUGIN_FAULT


async def test_an_answer_for_an_event_that_was_not_sent_settles_nothing(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):

        async def wild(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            return Answers(batch.count, {batch.count: Answer(Outcome.DUPLICATE)})

        script.send = wild
        await on.enter(3)
        await script.until(lambda: script.log.count("close nobody") >= 2)

        assert on.spool.figures.total().events == 3


async def test_a_full_store_of_dead_letters_holds_the_rejected_events(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        script.send = script.refusing(1, outcome=Outcome.REJECTED)
        await on.enter(3)
        await script.until(lambda: script.asked.count(1) > 1)

        assert on.spool.figures.total().events == 1
        assert on.active["main"].problem == "the dead-letter store is full, rejected events are held"
        on.spool.limits = SpoolLimits()
        await on.empty()
        assert main_counts(on) == {"delivered": 2, "dead_letter": 1}


def rejecting(script: Destination) -> None:
    script.send = script.refusing(*range(10_000), outcome=Outcome.REJECTED, reason="400")


async def test_as_many_rejected_events_become_dead_letters_as_have_room(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        on.spool.limits = SpoolLimits(Limits(1000, "hold"))
        rejecting(script)
        await on.enter(4, batches=16)
        await script.until(lambda: script.asked.count(63) > 1)
        held = await on.spool.letters.figures()

        assert held.bytes <= 1000 < held.bytes * (held.events + 1) / held.events + 1  # the next may be a byte longer
        assert on.spool.figures.total().events == 64 - held.events
        assert on.active["main"].problem == "the dead-letter store is full, rejected events are held"


@pytest.mark.parametrize("made", ["a larger store", "another way", "letters deleted", "a new revision"])
async def test_rejected_events_that_are_held_are_tried_at_once_when_there_is_room(
    tmp_path: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with one_output(tmp_path) as (on, script):
        on.spool.limits = SpoolLimits(Limits(1000, "hold"))
        rejecting(script)
        await on.enter(4, batches=16)
        await script.until(lambda: script.asked.count(63) == 1)
        await script.until(lambda: 40 < on.spool.figures.total().events < 64)
        await trio.testing.wait_all_tasks_blocked(0.1)
        waiting = on.spool.figures.total().events

        match made:
            case "a larger store":
                await on.spool.revisions.take_over(SpoolLimits(Limits(1 << 20, "hold")))
            case "another way":
                await on.spool.revisions.take_over(SpoolLimits(Limits(1000, "drop_oldest")))
            case "letters deleted":
                (last,) = [letter["id"] for letter in await on.spool.letters.page(0, 100)][-1:]
                await on.spool.letters.delete(last)
                await script.until(lambda: on.spool.figures.total().events < waiting)
                return
            case _:
                await on.activate(2, main="k2")
        await on.empty()


async def test_a_retired_lane_that_holds_rejected_events_tries_at_once_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with one_output(tmp_path) as (on, script):
        rejecting(script)
        reject, gate = script.send, trio.Event()

        async def later(batch: Batch) -> Answers:
            await gate.wait()
            return await reject(batch)

        script.send = later
        (retired,) = on.active.values()
        await on.enter(9)
        await on.activate(2, main="k2")
        on.spool.limits = SpoolLimits(Limits(300, "hold"))
        gate.set()
        await script.until(lambda: retired.problem is not None and script.log.count("close nobody") > 0)
        assert on.spool.figures.total().events > 0

        await on.spool.revisions.take_over(SpoolLimits(Limits(1 << 20, "hold")))
        await on.empty()


async def test_room_that_is_made_while_a_retired_lane_closes_its_output_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with one_output(tmp_path) as (on, script):
        rejecting(script)
        reject, gate = script.send, trio.Event()

        async def later(batch: Batch) -> Answers:
            await gate.wait()
            return await reject(batch)

        def make_room() -> None:
            on.spool.limits = SpoolLimits()
            on.delivery._tell_of_room()

        script.send = later
        await on.enter(3)
        await on.activate(2, main="k2")
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        script.on_close = make_room  # type: ignore[method-assign]
        gate.set()
        await on.empty()

        assert on.delivery.counters()["main"]["dead_letter"] == 3


async def test_a_retired_lane_that_holds_rejected_events_asks_more_and_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are refused again is no progress."""
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(0.01, 1000.0))
    async with one_output(tmp_path, environment=Environment(draw=Longest())) as (on, script):
        rejecting(script)
        reject, gate = script.send, trio.Event()
        times: list[float] = []

        async def later(batch: Batch) -> Answers:
            await gate.wait()
            return await reject(batch)

        script.send = timed(later, times)
        await on.enter(3)
        await on.activate(2, main="k2")
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        gate.set()
        await script.until(lambda: len(times) >= 15)

        assert max(later - sooner for sooner, later in pairwise(times)) > 0.3


async def test_room_that_was_made_while_answers_were_noted_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with one_output(tmp_path) as (on, script):
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        rejecting(script)
        settle = on.spool.queue.settle

        async def settle_and_make_room(*arguments: Any, **more: Any) -> int:
            try:
                return await settle(*arguments, **more)
            finally:
                if on.spool.limits.dead_letters.max_bytes == 10:
                    await on.spool.revisions.take_over(SpoolLimits())

        monkeypatch.setattr(on.spool.queue, "settle", settle_and_make_room)
        await on.enter(3)
        await on.empty()

        assert main_counts(on)["dead_letter"] == 3


async def test_room_for_dead_letters_hastens_nothing_that_the_destination_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with one_output(tmp_path) as (on, script):
        script.send = script.refusing(1, outcome=Outcome.LATER, reason="429")
        await on.enter(3)
        await script.until(lambda: on.active["main"].problem is not None)
        await on.spool.revisions.take_over(SpoolLimits(Limits(1 << 20, "hold")))
        await trio.testing.wait_all_tasks_blocked(0.05)

        assert script.asked.count(1) == 1


async def test_any_number_of_held_events_is_left_behind_in_one_session(tmp_path: Path) -> None:
    held = range(0, 2400, 4)
    async with one_output(tmp_path) as (on, script):
        script.send = script.refusing(*held, outcome=Outcome.HELD, reason="no permission")
        await on.enter(4, batches=600)
        await script.until(lambda: len(script.received) == 1800)
        await script.until(lambda: script.asked.count(held[-1]) > 1)
        assert on.active["main"].problem == "no permission"
        assert (script.log.count("open nobody"), len(script.received)) == (1, 1800)

        script.send = script.deliver
        await on.empty()
        assert sorted(script.received) == list(range(2400))
        await script.until(lambda: on.active["main"].problem is None)


# -- lanes of one destination ------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_lanes_in_trouble(path: Path, trouble: Exception, patch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Both wait for long: `k1`, which is retired, and `k2`."""
    patch.setattr(ScriptedOutput, "backoff", Pace(1000.0, 1000.0))
    async with bench(path) as on:
        await on.activate(1, main="k1")
        script = DESTINATIONS["main"]
        script.send = script.raising(trouble)
        await on.enter(2)
        await script.until(lambda: script.log.count("close k1") == 1)
        await on.activate(2, main="k2")
        await on.enter(2)
        await script.until(lambda: script.log.count("close k2") == 1)
        yield on


async def test_a_destination_that_takes_events_of_one_lane_is_asked_by_the_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_lanes_in_trouble(tmp_path, Later("503"), monkeypatch) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        on.active["main"].poke()
        await on.empty()

        assert sorted(DESTINATIONS["main"].received) == [0, 1, 2, 3]


@pytest.mark.parametrize("trouble", [Held("401"), Later("429", retry_after=1000.0)])
async def test_a_lane_that_was_refused_or_asked_to_wait_does_not_mind_the_success_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    async with two_lanes_in_trouble(tmp_path, trouble, monkeypatch) as on:
        script = DESTINATIONS["main"]
        script.send = script.deliver
        on.active["main"].poke()
        await script.until(lambda: script.received == [2, 3])
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert script.log.count("open k1") == 1


async def test_a_lane_that_fails_though_others_succeed_keeps_its_next_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_lanes_in_trouble(tmp_path, Later("503"), monkeypatch) as on:
        script, active = DESTINATIONS["main"], on.active["main"]

        async def only_k2(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if any(event["n"] < 2 for event in batch.own()):
                raise Later("503")
            return script.answer(batch, {})

        script.send = only_k2
        active.poke()
        await script.until(lambda: script.log.count("close k1") == 2)
        for number in range(3):
            active.look(anew=True)
            await on.enter()
            await script.until(lambda number=number: len(script.received) == 3 + number)  # type: ignore[misc]

        assert script.log.count("open k1") == 2


# -- targets that refuse their events ----------------------------------------------------------------------------------


@asynccontextmanager
async def odd_refused(path: Path) -> AsyncIterator[tuple[Bench, Destination]]:
    """Events with odd numbers go to a target that refuses them."""
    async with one_output(path) as (on, script):
        script.target = lambda n: ("even", "odd")[n % 2]
        script.refused = {"odd"}
        yield on, script


async def test_a_place_that_refuses_holds_its_own_events_only(tmp_path: Path) -> None:
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(4, batches=50)
        await script.until(lambda: len(script.received) == 100)
        await on.enter(4, batches=50)
        await script.until(lambda: len(script.received) == 200)
        await script.until(lambda: on.spool.figures.total().events == 200)

        assert on.active["main"].problem == "odd: 403 odd, events held"
        assert script.log.count("open nobody") == 1
        script.refused = set()
        await on.empty()
        assert sorted(script.received) == list(range(400))
        await script.until(lambda: on.active["main"].problem is None)


async def test_events_of_a_place_that_refuses_are_not_sent_but_for_a_few(tmp_path: Path) -> None:
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(100)
        await script.until(lambda: len(script.received) == 50)
        await on.enter(100, batches=10)
        await script.until(lambda: len(script.received) == 550)
        await script.until(lambda: script.asked.count(1) >= 3)

        odd = Counter(n for n in script.asked if n % 2)
        assert [n for n in odd if n > 100] == []
        assert [n for n, times in odd.items() if times > 1] == list(range(1, 17, 2))


async def test_a_place_that_refuses_most_events_of_a_request_is_no_trouble_of_the_destination(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.target = lambda n: "there" if n % 10 == 0 else "missing"

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            missing = [at for at, event in enumerate(batch.own()) if event["n"] % 10]
            return script.answer(batch, {at: Answer(Outcome.LATER, "404", of_target=True) for at in missing})

        script.send = send
        await on.enter(10, batches=30)
        await script.until(lambda: len(script.received) == 30)

        assert script.log.count("open nobody") == 1
        assert on.active["main"].problem == "missing: 404, events held"


async def test_a_place_that_refuses_keeps_the_barrier_open_and_no_connection(tmp_path: Path) -> None:
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(4, batches=3)
        await script.until(lambda: len(script.received) == 6)
        await on.activate(2, main="k2")
        lane = next(lane for lane in on.delivery.lanes.values() if not lane.active)
        await script.until(lambda: "close nobody" in script.log and script.open_senders == 0)
        assert lane.problem == "odd: 403 odd, events held"

        script.refused = set()
        await on.empty()
        assert sorted(script.received) == list(range(12))


async def test_what_a_place_refused_is_not_read_again_after_a_trouble_of_the_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(2, batches=20)
        await script.until(lambda: len(script.received) == 20 and on.spool.figures.total().events == 20)
        window = on.spool.queue.window

        async def spied(lane: int, after: int, limit: int) -> list[Entry]:
            read.extend([after] if limit > 1 else [])
            return await window(lane, after, limit)

        monkeypatch.setattr(on.spool.queue, "window", spied)
        script.send = script.raising(Later("503"), times=1)
        await on.enter(2)
        await script.until(lambda: len(script.received) == 21 and script.log.count("open nobody") == 2)
        await script.until(lambda: on.active["main"].machine.backlog.front >= on.seqs[-1])
        assert min(read) >= on.seqs[-2]

        script.refused = set()
        await on.empty()
        assert sorted(script.received) == list(range(42))


async def test_a_retired_lane_asks_each_place_when_that_is_due(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.target, script.refused = lambda n: ("even", "odd")[n % 2], {"even", "odd"}
        lane = on.active["main"]
        waits = lane.machine.waits
        lane.machine.backlog = Backlog(lambda: repeat(2 * ASK_SECONDS), waits)  # it gives up its slot meanwhile
        await on.enter(1, batches=2)
        await on.activate(2, main="k2")
        await script.until(lambda: "close nobody" in script.log and script.open_senders == 0)
        waits._growing = repeat(1000.0)

        asked = script.asked.count(1)
        await script.until(lambda: script.asked.count(1) > asked + 2)
        script.refused = set()
        await on.empty()
        assert sorted(script.received) == [0, 1]


async def test_a_question_without_an_answer_has_nothing_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(2, batches=20)
        await script.until(lambda: len(script.received) == 20 and on.spool.figures.total().events == 20)
        window = on.spool.queue.window

        async def spied(lane: int, after: int, limit: int) -> list[Entry]:
            read.extend([after] if limit > 1 else [])
            return await window(lane, after, limit)

        monkeypatch.setattr(on.spool.queue, "window", spied)
        asked = len(script.asked)
        script.send = script.raising(Later("503"), times=3)
        await script.until(lambda: script.log.count("open nobody") == 4 and len(script.asked) > asked + 4)
        assert min(read) >= on.seqs[-1]

        script.send, script.refused = script.deliver, set()
        await on.empty()
        assert sorted(script.received) == list(range(40))


async def test_a_setting_that_changed_has_a_place_asked_at_once(tmp_path: Path) -> None:
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(4)
        await script.until(lambda: on.active["main"].problem is not None)
        script.refused = set()
        with trio.fail_after(PATIENCE):
            on.active["main"].poke()
            on.active["main"].look(anew=True)
            await on.empty()
        assert sorted(script.received) == list(range(4))


async def test_a_damaged_batch_of_a_place_that_refuses_is_asked_for_once(tmp_path: Path) -> None:
    async with odd_refused(tmp_path) as (on, script):
        await on.enter(1, batches=3)
        await script.until(lambda: len(script.received) == 2 and on.active["main"].problem is not None)
        await on.spool.store.do(lambda db: db.execute("UPDATE batch SET body = zeroblob(80)"))
        await on.empty()

        assert main_counts(on) == {"delivered": 2, "damaged": 1}
        await script.until(lambda: on.active["main"].problem is None)


async def test_bytes_that_cannot_be_read_any_more_are_settled_as_damaged(tmp_path: Path) -> None:
    async with one_output(tmp_path, "missing") as (on, script):
        await on.enter(4)
        await on.enter(2)
        on.delivery.recent.forget(on.active["main"].id)
        await on.spool.store.do(
            lambda db: db.execute("UPDATE batch SET body = zeroblob(80) WHERE seq = ?", on.seqs[:1])
        )
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        assert script.received == [4, 5]
        assert main_counts(on) == {"damaged": 4, "delivered": 2}


@pytest.mark.parametrize("told", [1, 9])
async def test_a_damaged_count_is_corrected_by_what_is_sealed(tmp_path: Path, told: int) -> None:
    """Else the barrier would wait for events that never were, or not wait for some that are."""
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        await on.enter(4)
    async with bench(tmp_path) as on:
        await on.spool.store.do(lambda db: db.execute("UPDATE todo SET count = ?", (told,)))
        await on.spool.heed_damage()
        assert on.spool.figures.total().events == told
        await on.delivery.restore(await on.spool.revisions.lanes())
        await on.activate(2, main=None)
        on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()

        assert DESTINATIONS["main"].received == [0, 1, 2, 3]
        ack = (await on.spool.revisions.advance(None, ()))[0]
        assert ack is not None
        assert ack.ledger == Counts(accepted=4, delivered=4)


async def test_what_damage_took_while_a_destination_was_in_trouble_is_not_waited_for(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.raising(Later("503"))
        await on.enter(3)
        await script.until(lambda: "close nobody" in script.log)

        async def lose() -> None:
            await on.spool.store.do(lambda db: db.execute("DELETE FROM todo"))
            script.send = script.deliver

        script.on_open = lose
        await script.until(lambda: script.log.count("open nobody") > 1)
        await on.enter(1)
        await script.until(lambda: script.received == [3])


async def test_a_bug_of_ours_in_a_session_is_no_trouble_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the process, which starts again; taken for trouble it would be tried for ever."""

    async def bug(*args: object) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with one_output(tmp_path, "missing") as (on, _):
            await on.enter(1)
            monkeypatch.setattr(on.spool.queue, "load", bug)
            on.delivery.recent.forget(on.active["main"].id)
            on.keyring.keep({"missing": secret("missing")})
            on.active["main"].poke()
            with trio.fail_after(PATIENCE):
                await trio.sleep_forever()


@pytest.mark.parametrize("is_idle", [True, False])
async def test_entries_that_a_repair_brings_back_are_delivered_though_nothing_else_comes(
    tmp_path: Path, is_idle: bool
) -> None:
    async with one_output(tmp_path) as (on, script):
        lost = await _stored_and_lost(on)
        if not is_idle:
            await on.enter(2)
            await script.until(lambda: len(script.received) == 2)  # later ones were taken in this session
        await on.spool.heed_damage()
        await on.empty()

        assert lost in script.received


async def _stored_and_lost(on: Bench) -> int:
    """The number of an event whose entry damage took."""
    batch, number = Batch.documents([b'{"n":77}']), 77
    arrival = Arrival(on.at, "test/in", [on.active["main"].id], [Packed(1, batch.pack())])

    def enter_and_lose(db: sqlite3.Connection) -> None:
        queue.enter(db, on.spool.store.sealer, on.spool.origin, 0.0, arrival)
        db.execute("DELETE FROM todo")
        Report(lost=Counter(todo=1)).store(db)

    await on.spool.store.do(enter_and_lose)
    return number


# -- what a stranger's plugin may do -----------------------------------------------------------------------------------


async def test_an_output_that_cannot_be_opened_holds_its_events(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:

        async def refuse() -> None:
            raise StartFailed("no such certificate")

        DESTINATIONS["main"].on_open = refuse
        await on.activate(1, main=None)
        await on.enter()
        script = DESTINATIONS["main"]
        await script.until(lambda: on.active["main"].problem == "no such certificate, events held")

        script.on_open = trio.lowlevel.checkpoint
        await on.empty()


@pytest.mark.parametrize("target", ["open", "send", "close"])
async def test_an_output_that_fails_by_a_bug_is_trouble_and_not_the_end(tmp_path: Path, target: str) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        broken = True

        async def on_open() -> None:
            if broken and target == "open":
                raise ZeroDivisionError("a secret")

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if broken and target == "send":
                raise ZeroDivisionError("a secret")
            if broken:
                raise Later("503")
            return script.answer(batch, {})

        def on_close() -> None:
            if broken and target == "close":
                raise ZeroDivisionError("a secret")

        script.on_open, script.send, script.on_close = on_open, send, on_close
        await on.activate(1, main=None)
        await on.enter(3)
        await script.until(lambda: on.active["main"].link.counters["retries"] >= 2)
        problem = on.active["main"].problem
        broken = False
        await on.empty()

        assert problem is not None
        assert problem == "503" or problem.startswith("the output failed: ZeroDivisionError at test_lane.py:")
        assert script.received == [0, 1, 2]


async def test_a_background_task_of_an_output_that_fails_when_it_is_cancelled_is_not_the_end_either(
    tmp_path: Path,
) -> None:
    class Background(ScriptedOutput, frozen=True):
        @asynccontextmanager
        async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
            async with super().open(context) as sender, trio.open_nursery() as nursery:
                nursery.start_soon(fails_when_cancelled)
                yield sender
                nursery.cancel_scope.cancel()

    async def fails_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("a secret")

    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        lane = on.active["main"]
        lane.adopt(Background(), active=True)
        await on.enter(2)
        await script.until(lambda: script.sending == 1)
        async with lane.suspended():
            lane.adopt(ScriptedOutput(), active=True)
            script.send = script.deliver
        await on.empty()

        assert script.received == [0, 1]


async def test_a_background_task_of_an_output_that_fails_is_trouble_and_not_the_end(tmp_path: Path) -> None:
    """A plugin's own nursery cancels what runs inside of it; that must not be taken for a cancel of ours."""
    fail = trio.Event()
    opened = 0

    @asynccontextmanager
    async def with_a_task(self: ScriptedOutput, context: OutputContext) -> AsyncIterator[Sender]:
        nonlocal opened
        opened += 1
        first = opened == 1

        async def background() -> None:
            if first:
                await fail.wait()
                raise ZeroDivisionError

        async with trio.open_nursery() as nursery:
            nursery.start_soon(background)
            async with original(self, context) as sender:
                yield sender
            nursery.cancel_scope.cancel()

    original = ScriptedOutput.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedOutput, "open", with_a_task)
        async with one_output(tmp_path) as (on, script):
            script.send = script.hang
            sent = await on.enter(3)
            await script.until(lambda: script.sending == 1)
            script.send = script.deliver
            fail.set()
            await on.empty()

            assert script.received == sent


# -- credentials -------------------------------------------------------------------------------------------------------


async def test_a_missing_credential_holds_events_until_it_is_supplied(tmp_path: Path) -> None:
    async with one_output(tmp_path, "missing-1") as (on, script):
        await on.enter(2)
        await script.until(lambda: on.active["main"].problem == "credential missing-1 is missing, events held")
        assert on.active["main"].code == "credential_missing"
        assert script.log == []

        on.keyring.keep({"missing-1": secret("missing-1")})
        poke(on.delivery)
        await on.empty()
        assert script.log[0] == "open missing-1"


async def test_a_credential_that_comes_while_a_lane_looks_what_waits_is_missing_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_output(tmp_path, "missing-1") as (on, script):
        lane, look = on.active["main"], on.spool.queue.window
        script.send = script.hang
        await on.enter()
        await script.until(lambda: lane.shown.hold is not None)

        async def look_late(*which: int) -> list[Entry]:
            on.keyring.keep({"missing-1": secret("missing-1")})
            return await look(*which)

        monkeypatch.setattr(on.spool.queue, "window", look_late)
        lane.poke()
        await script.until(lambda: script.sending == 1)

        assert (lane.problem, lane.is_held) == (None, False)


async def test_a_lane_that_was_held_is_held_no_longer_when_its_credential_came(tmp_path: Path) -> None:
    """A stop does not wait for what is held."""
    async with one_output(tmp_path, "missing-1") as (on, script):
        lane, held = on.active["main"], list[bool]()

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            held.append(lane.is_held)
            return script.answer(batch, {})

        script.send = send
        await on.enter(2)
        await script.until(lambda: lane.is_held)
        on.keyring.keep({"missing-1": secret("missing-1")})
        on.delivery.pool.supplied({"missing-1"})
        await on.empty()

        assert held == [False]


async def test_a_lane_that_was_refused_is_held_until_it_is_let_in(tmp_path: Path) -> None:
    """Also in the middle of an attempt: else a scrape in that moment would say that nobody has to do anything."""
    async with one_output(tmp_path) as (on, script):
        lane, held = on.active["main"], list[tuple[bool, bool]]()

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            held.append((lane.is_held, lane.machine.is_tried))
            if len(held) < 3:
                raise Held("401")
            return script.answer(batch, {})

        script.send = send
        await on.enter(1)
        await on.empty()

        assert held == [(False, True), (True, True), (True, True)]
        assert not lane.is_held


# -- barriers ----------------------------------------------------------------------------------------------------------


async def test_a_retired_lane_closes_its_connections_before_its_barrier_is_settled(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        held = trio.Event()

        async def slowly(batch: Batch) -> Answers:
            await held.wait()
            return script.answer(batch, {})

        script.send = slowly
        await on.enter(2)
        await script.until(lambda: script.sending == 1)
        await on.activate(2, main="k2")
        held.set()
        await on.empty()

        log = [line for line in script.log if "k1" in line or line == "barrier"]
        assert log == ["open k1", "close k1", "barrier"]
        ack = (await on.spool.revisions.advance(None, ()))[0]
        assert ack is not None
        assert ack.ledger == Counts(accepted=2, delivered=2)
        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]


async def test_a_lane_that_sees_its_barrier_before_it_is_told_closes_its_connections_first(tmp_path: Path) -> None:
    """Readers see a cut as soon as it is committed, which is before the commit is answered."""
    async with one_output(tmp_path, "k1") as (on, script):
        await on.enter(2)
        await script.until(lambda: len(script.received) == 2)
        await on.spool.revisions.receive(Text(Revision(0, 2), "sha", "2", "barrier", (), ""), {})
        await on.spool.revisions.cut(Revision(0, 2), [])
        on.active["main"].poke()
        await script.until(lambda: on.barriers == 1)

        assert [line for line in script.log if "send" not in line] == ["open k1", "close k1", "barrier"]
        await script.until(lambda: not on.delivery.lanes)


async def test_a_lane_that_is_active_again_settles_its_barrier_without_closing(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        held = trio.Event()

        async def slowly(batch: Batch) -> Answers:
            await held.wait()
            return script.answer(batch, {})

        script.send = slowly
        await on.enter(2)
        await script.until(lambda: script.sending == 1)
        lane = on.active["main"]
        await on.activate(2, main="k2")
        await on.activate(3, main="k1")
        assert on.active["main"] is lane
        await on.enter(2)
        held.set()
        await on.empty()
        await script.until(lambda: on.barriers == 2)

        assert "close k1" not in script.log
        assert lane.id in on.delivery.lanes
        assert (await on.spool.revisions.advance(None, ()))[0].revision == 3  # type: ignore[union-attr]


async def test_a_parked_event_keeps_the_barrier_of_a_lane_that_is_active_again(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        script.send = script.hang
        await on.enter(5)
        await script.until(lambda: script.sending == 1)
        await on.activate(2, main="k2")
        await on.activate(3, main="k1")
        script.send = script.refusing(0)
        async with on.active["main"].suspended():
            pass
        # The barrier of k2, which had nothing to do, is settled; that of k1 is not.
        await script.until(lambda: on.barriers == 1 and len(script.received) == 4 and script.asked.count(0) >= 5)
        assert on.barriers == 1

        script.send = script.deliver
        await on.empty()
        await script.until(lambda: on.barriers == 2)


async def test_a_parked_event_keeps_the_barrier_open_and_no_connection(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        script.send = script.refusing(0)
        await on.enter(5)
        await on.activate(2, main="k2")
        await script.until(lambda: len(script.received) == 4 and script.asked.count(0) >= 2)
        await script.until(lambda: script.open_senders == 0)

        assert on.barriers == 0
        assert (await on.spool.revisions.advance(None, ()))[0] is None or on.spool.figures.total().events == 1
        script.send = script.deliver
        await on.empty()
        assert on.barriers == 1


async def test_letters_that_give_way_to_answers_noted_at_the_same_time_are_all_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as on:
        DESTINATIONS["main"].feeding["events"] = 1
        await on.activate(1, {"main": {"workers": 3}}, main=None)
        settle, noted, all_noted = on.spool.queue.settle, 0, trio.Event()

        async def together(*arguments: Any, **more: Any) -> int:
            nonlocal noted
            dropped = await settle(*arguments, **more)
            noted += 1
            if noted == 3:
                all_noted.set()
            await all_noted.wait()
            return dropped

        await on.spool.revisions.take_over(SpoolLimits(dead_letters=Limits(1, "drop_oldest")))
        on.spool.queue.settle = together  # type: ignore[method-assign]
        script = DESTINATIONS["main"]
        script.send = script.refusing(*range(30), outcome=Outcome.REJECTED)
        await on.enter(10, batches=3)
        await script.until(lambda: main_counts(on).get("dead_letter") == 30)
        left = (await on.spool.letters.figures()).events

        assert main_counts(on)["letters_dropped"] == 30 - left > 0


# -- cancelled, suspended ----------------------------------------------------------------------------------------------


async def test_answers_that_were_received_count_though_the_rest_is_cancelled(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):

        async def half(batch: Batch) -> Answers:
            if batch.count == 8:
                raise TooLarge("413")
            if batch.own()[0]["n"] == 0:
                return script.answer(batch, {})
            return await script.hang(batch)

        script.send = half
        await on.enter(8)
        await script.until(lambda: script.received == [0, 1, 2, 3] and script.sending == 1)
        async with on.active["main"].suspended():
            assert on.spool.figures.total().events == 4
            assert script.open_senders == 0
            assert script.sending == 0
        script.send = script.deliver
        await on.empty()

        assert script.received == list(range(8))


@pytest.mark.parametrize("where", ["idle", "open", "send", "backoff", "credential"])
async def test_nothing_is_under_way_while_a_lane_is_suspended(tmp_path: Path, where: str) -> None:
    async with one_output(tmp_path, "missing" if where == "credential" else None) as (on, script):
        lane = on.active["main"]
        if where == "open":
            script.on_open = trio.sleep_forever
        elif where == "send":
            script.send = script.hang
        elif where == "backoff":
            script.send = script.raising(Later("503", retry_after=3600))
        if where != "idle":
            await on.enter(3)
        await trio.testing.wait_all_tasks_blocked(0.05)

        with trio.fail_after(PATIENCE):
            async with lane.suspended():
                before = list(script.log)
                assert script.open_senders == 0
                await on.enter(1)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert script.log == before
        script.send, script.on_open = script.deliver, trio.lowlevel.checkpoint
        if where == "credential":
            on.keyring.keep({"missing": secret("missing")})
        poke(on.delivery)
        await on.empty()


async def test_a_lane_suspended_while_it_looks_for_something_to_do_opens_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_output(tmp_path) as (on, script):
        look = on.spool.queue.window
        looked, gate = trio.Event(), trio.Event()

        async def look_and_wait(lane: int, after: int, limit: int = 64) -> list[Entry]:
            entries = await look(lane, after, limit)
            looked.set()
            await gate.wait()
            return entries

        monkeypatch.setattr(on.spool.queue, "window", look_and_wait)
        await on.enter()
        await looked.wait()

        async def suspend() -> None:
            async with on.active["main"].suspended():
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert script.log == []

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(suspend)
                await trio.testing.wait_all_tasks_blocked()
                gate.set()
        await on.empty()


async def test_a_lane_suspended_twice_at_once_waits_for_both(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        lane = on.active["main"]
        with trio.fail_after(PATIENCE):
            async with lane.suspended():
                async with lane.suspended():
                    await on.enter()
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert script.log == []
        await on.empty()


async def test_a_cancelled_lane_leaves_all_that_was_not_answered(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        await on.enter(2, batches=3)
        await script.until(lambda: script.sending >= 1)
    async with bench(tmp_path) as on:
        assert on.spool.figures.total().events == 6
        assert script.open_senders == 0


# -- how it looks ------------------------------------------------------------------------------------------------------


async def test_a_lane_that_waits_for_its_first_answer_is_healthy_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.01)
    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        looked, watch = 0, on.active["main"].watch

        def counted(**more: bool) -> None:
            nonlocal looked
            looked += 1
            watch(**more)

        on.active["main"].watch = counted  # type: ignore[method-assign]
        await on.enter()
        await script.until(lambda: script.sending == 1)
        looked = 0
        await script.until(lambda: looked > 5)

        assert on.active["main"].problem is None


async def test_a_request_without_an_answer_is_reported_whatever_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.session.SLOW_SECONDS", 0.1)
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.02)
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 2}}, main=None)
        script = DESTINATIONS["main"]

        async def first_hangs(batch: Batch) -> Answers:
            return await (script.hang(batch) if batch.own()[0]["n"] == 0 else script.deliver(batch))

        script.send = first_hangs
        await on.enter()
        await script.until(lambda: (on.active["main"].problem or "").startswith("no answer for"))
        monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", PATIENCE)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await on.enter()
        await script.until(lambda: on.spool.figures.total().events == 1)
        await trio.testing.wait_all_tasks_blocked(0.05)

        assert (on.active["main"].problem or "").startswith("no answer for")


async def test_a_destination_that_says_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.session.SLOW_SECONDS", 0.1)
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.02)
    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        await on.enter()

        await script.until(lambda: (on.active["main"].problem or "").startswith("no answer for"))


async def test_a_live_setting_is_applied_without_a_barrier(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        await on.enter()
        await on.empty()
        await on.activate(2, {"main": {"live_setting": 1}}, main=None)
        await on.enter()
        await on.empty()

        assert on.barriers == 0
        assert script.log == ["open nobody", "send 1", "close nobody", "open nobody", "send 1"]


async def test_while_the_disk_hangs_no_more_is_sent_than_can_be_noted(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"flush": Duration(0)}}, main=None)
        script = DESTINATIONS["main"]
        settle, hung = on.spool.queue.settle, trio.Event()

        async def hanging(*args, **more):  # type: ignore[no-untyped-def]
            await hung.wait()
            return await settle(*args, **more)

        on.spool.queue.settle = hanging  # type: ignore[method-assign]
        await on.enter(batches=100)
        await script.until(lambda: len(script.asked) >= 4)
        await trio.testing.wait_all_tasks_blocked(0.1)

        asked = len(script.asked)
        hung.set()
        await on.empty()

        assert asked <= 20


# -- held by a lease, or by a secret that was withdrawn ----------------------------------------------------------------


@asynccontextmanager
async def leased(path: Path, monkeypatch: pytest.MonkeyPatch, **outputs: str | None) -> AsyncIterator[Bench]:
    """A bench with a lease of ten seconds; its clock is set by the test, and looked at often."""
    monkeypatch.setattr("shipper.pipeline.destination.lease.LONGEST_LOOK", 0.01)
    async with bench(path) as on:
        on.delivery.pool.renew_lease(on.boottime + 10)
        await on.activate(1, **(outputs or {"main": None}))
        yield on


LAPSED = "lease lapsed, events held"


async def test_when_a_lease_lapses_what_is_under_way_is_aborted_and_events_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leased(tmp_path, monkeypatch) as on:
        script = DESTINATIONS["main"]
        script.send = script.hang
        await on.enter(3)
        await script.until(lambda: script.sending == 1)
        on.boottime += 10
        await script.until(lambda: script.open_senders == 0)
        await on.enter(3)
        await script.until(lambda: on.active["main"].problem == LAPSED)

        assert on.active["main"].is_held
        assert on.active["main"].shown.hold is not None
        assert on.active["main"].shown.hold.code == "lease_lapsed"
        assert script.log == ["open nobody", "send 3", "close nobody"]
        assert on.spool.figures.total().events == 6


async def test_a_later_lease_delivers_at_once_what_was_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with leased(tmp_path, monkeypatch) as on:
        script = DESTINATIONS["main"]
        on.boottime += 10
        sent = await on.enter(3, batches=5)
        await script.until(lambda: on.active["main"].problem == LAPSED)
        on.delivery.pool.renew_lease(on.boottime + 10)
        await on.empty()

        assert script.received == sent
        assert on.active["main"].problem is None
        assert main_counts(on) == {"delivered": 15}


async def test_no_request_begins_after_a_lease_though_no_timer_has_seen_its_end(tmp_path: Path) -> None:
    """As after a sleep of the machine: the clock of the event loop stood still."""
    async with one_output(tmp_path) as (on, script):
        on.delivery.pool.renew_lease(on.boottime + 3600)
        await on.enter(1)
        await script.until(lambda: len(script.received) == 1)
        on.boottime += 3600
        await on.enter(1)
        await script.until(lambda: on.active["main"].problem == LAPSED)

        assert script.asked == [0]


async def test_without_events_a_lapsed_output_does_not_look_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leased(tmp_path, monkeypatch) as on:
        on.boottime += 10
        await DESTINATIONS["main"].until(lambda: on.active["main"].problem == LAPSED)
        on.delivery.pool.renew_lease(None)
        await DESTINATIONS["main"].until(lambda: on.active["main"].problem is None)


async def test_idle_connections_are_closed_when_a_lease_lapses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with leased(tmp_path, monkeypatch) as on:
        await on.enter(1)
        await on.empty()
        assert DESTINATIONS["main"].open_senders == 1
        on.boottime += 10
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].open_senders == 0)


async def test_a_lease_that_lapsed_unseen_is_noticed_before_it_is_renewed(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):
        script.send = script.hang
        on.delivery.pool.renew_lease(on.boottime + 3600)
        await on.enter(1)
        await script.until(lambda: script.sending == 1)
        on.boottime += 3600
        on.delivery.pool.renew_lease(on.boottime + 3600)
        await script.until(lambda: script.log.count("open nobody") == 2)

        assert script.log[:3] == ["open nobody", "send 1", "close nobody"]


async def test_a_lapse_counts_as_no_attempt_and_a_wait_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedOutput, "backoff", Pace(3600, 3600))
    async with leased(tmp_path, monkeypatch) as on:
        script, lane = DESTINATIONS["main"], on.active["main"]
        script.send = script.raising(Later("503", retry_after=3600))
        await on.enter(1)
        await script.until(lambda: lane.problem == "503")
        on.boottime += 10
        await script.until(lambda: lane.problem == LAPSED)
        on.delivery.pool.renew_lease(None)
        await script.until(lambda: lane.problem == "503")

        assert (script.asked, lane.link.counters["retries"]) == ([0], 1)


async def test_the_barrier_of_a_drained_lane_is_settled_without_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leased(tmp_path, monkeypatch, main="k1") as on:
        on.boottime += 10
        await DESTINATIONS["main"].until(lambda: on.active["main"].problem == LAPSED)
        await on.activate(2, main="k2")
        await DESTINATIONS["main"].until(lambda: len(on.delivery.lanes) == 1)

        assert on.barriers == 1


async def test_an_order_has_its_way_while_a_lease_is_lapsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with leased(tmp_path, monkeypatch) as on:
        on.boottime += 10
        await on.enter(1)
        await DESTINATIONS["main"].until(lambda: on.active["main"].problem == LAPSED)
        with trio.fail_after(PATIENCE):
            async with on.active["main"].suspended():
                assert not DESTINATIONS["main"].asked


async def test_a_withdrawn_secret_ends_its_connections_alone_and_holds_its_events(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1", other="k2")
        main, other = DESTINATIONS["main"], DESTINATIONS["other"]
        main.send, other.send = main.hang, other.hang
        await on.enter(1)
        await main.until(lambda: (main.sending, other.sending) == (1, 1))
        on.keyring.withdraw(["k1"])
        on.delivery.pool.withdrawn(["k1"])
        await main.until(lambda: on.active["main"].problem == "credential k1 was withdrawn, events held")

        assert (main.open_senders, other.sending) == (0, 1)
        assert on.active["main"].shown.hold is not None
        assert on.active["main"].shown.hold.code == "credential_withdrawn"
        on.keyring.keep({"k1": secret("k1")})
        main.send = main.deliver
        on.delivery.pool.supplied(["k1"])
        await main.until(lambda: main.received == [0])


async def test_an_output_without_events_whose_secret_was_withdrawn_does_not_look_healthy(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        on.keyring.withdraw(["k1"])
        on.delivery.pool.withdrawn(["k1"])
        await script.until(lambda: on.active["main"].problem == "credential k1 was withdrawn, events held")


async def test_an_open_output_can_ask_whether_a_request_may_begin(tmp_path: Path) -> None:
    async with one_output(tmp_path, "k1") as (on, script):
        await on.enter(1)
        await on.empty()
        (context,) = script.contexts
        assert context.may_begin()
        on.delivery.pool.renew_lease(on.boottime + 10)
        on.boottime += 10
        assert not context.may_begin()
        on.delivery.pool.renew_lease(None)
        assert context.may_begin()
        on.keyring.withdraw(["k1"])

        assert not context.may_begin()


# -- whatever an output raises -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), asyncio.CancelledError(), GeneratorExit(), BaseExceptionGroup("", [SystemExit(1)])],
    ids=repr,
)
async def test_whatever_an_output_raises_stays_with_its_lane_and_names_it(tmp_path: Path, error: BaseException) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main=None, other=None)
        script, other = DESTINATIONS["main"], DESTINATIONS["other"]

        async def send(batch: Batch) -> Answers:
            raise error

        script.send = send
        await on.enter()
        await script.until(lambda: bool(on.active["main"].problem))

        assert (on.active["main"].problem or "").startswith("the plugin raised ")
        assert on.active["main"].code == Code.PLUGIN_FAULT
        await other.until(lambda: len(other.received) == 1)
        script.send = script.deliver
        poke(on.delivery)
        await on.empty()


@pytest.mark.parametrize(
    ("error", "code"),
    [(Later("not now"), Code.UNAVAILABLE), (Held("no"), Code.REFUSED), (TooLarge("big"), Code.TOO_LARGE)],
)
async def test_an_outcome_that_is_alone_in_a_group_is_this_outcome(tmp_path: Path, error: Exception, code: str) -> None:
    """A plugin that sends in a nursery raises nothing else."""
    async with one_output(tmp_path) as (on, script):

        async def send(batch: Batch) -> Answers:
            raise ExceptionGroup("", [error])

        script.send = send
        await on.enter()
        await script.until(lambda: bool(on.active["main"].problem))

        assert (on.active["main"].code, on.active["main"].is_held) == (code, code == Code.REFUSED)


async def test_a_sender_that_fails_when_it_is_told_of_the_end_does_not_end_the_rest(tmp_path: Path) -> None:
    async with one_output(tmp_path) as (on, script):

        def fails() -> None:
            raise SystemExit

        script.on_ending = fails
        script.send = script.raising(Later("not now"))
        await on.enter()
        await script.until(lambda: on.active["main"].problem == "not now")
        script.send = script.deliver
        poke(on.delivery)
        await on.empty()
