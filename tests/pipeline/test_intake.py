"""Intake: what an input emits is durable under the revision that is active in that very transaction."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import pytest
import trio
import trio.testing

from shipper.pipeline.delivery import session
from shipper.plugin import Answers, Backpressure, Code, Endpoint, Held, InputContext, Outdated, PluginFault, StartFailed
from shipper.plugin.relay import Edge, NotOrdered
from shipper.sdk.aio import open_asyncio
from shipper.sdk.event import Batch
from shipper.sdk.weights import MOST_EVENTS
from shipper.spool.queue import NotActive
from shipper.values import Revision
from tests.fakes import (
    DESTINATIONS,
    GATE,
    PATIENCE,
    SPRINGS,
    WORKSHOP,
    ScriptedInput,
    Spring,
    Theatre,
    events,
    policy,
    slow_cut,
    stored_batch,
    theatre,
)

SMALL = "queue: {max_bytes: 600B}\n"


async def running(on: Theatre, text: str = "", number: int = 1) -> Spring:
    await on.offer(number, text or policy())
    await on.ack(number, "active")
    spring = SPRINGS["in"]
    await spring.until(lambda: "run" in spring.log)
    return spring


def stuck() -> None:
    DESTINATIONS["main"].send = DESTINATIONS["main"].hang


def waiting(on: Theatre) -> int:
    return on.intake.running["in"].port.waiting


def entered_under(on: Theatre) -> dict[int, int]:
    return {group[0].number: count for group, count in on.spool.figures.events.items()}


# -- durable -----------------------------------------------------------------------------------------------------------


async def test_emit_returns_when_batch_and_positions_are_durable(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        await spring.context.emit(events(1, 2), events(3), positions={"file": b"7", "other": b"1"})
        await spring.context.emit(positions={"other": None})

        assert on.spool.figures.total().events == 3
    async with theatre(tmp_path) as on:
        assert await on.spool.queue.positions("scripted/in") == {"file": b"7"}


async def test_an_emit_that_expects_other_positions_is_outdated_and_stores_nothing(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        await spring.context.emit(positions={"a": b"1"}, expect={"a": None})
        with pytest.raises(Outdated):
            await spring.context.emit(events(1), positions={"a": b"2"}, expect={"a": None})
        assert on.spool.figures.total().events == 0
        await spring.context.emit(events(1), positions={"a": b"2"}, expect={"a": b"1"})

        assert await spring.context.positions() == {"a": b"2"}


RELAYING = "inputs:\n  in: {type: relaying}\n"


async def test_a_relayed_batch_is_delivered_under_the_identity_that_it_came_with(tmp_path: Path) -> None:
    sent: list[Batch] = []

    async def send(batch: Batch) -> Answers:
        sent.append(batch)
        DESTINATIONS["main"].notify()
        return await DESTINATIONS["main"].deliver(batch)

    theirs = events(1, 2).identified(b"T" * 16, 7, [4, 9])
    async with theatre(tmp_path) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        spring = await running(on, policy(inputs=RELAYING))
        DESTINATIONS["main"].feeding = {"apart": True}
        await spring.context.emit(theirs)
    DESTINATIONS["main"].send = send  # before the next process, which sends at once
    async with theatre(tmp_path, keep=True) as on:
        await DESTINATIONS["main"].until(lambda: len(sent) == 1)

    assert sent[0].id_texts() == theirs.id_texts()
    assert sent[0].place not in (0, 7)


async def test_an_input_that_does_not_relay_gives_no_identity(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        with pytest.raises(PluginFault, match="does not relay"):
            await spring.context.emit(events(1).identified(b"T" * 16, 7))


async def test_nothing_is_stored_for_an_emit_without_events_and_positions(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        await spring.context.emit()
        await spring.context.emit(Batch.documents([]))

        assert on.spool.figures.total().events == 0


async def test_positions_are_those_of_the_name_and_type(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        await spring.context.emit(events(1), positions={"a": b"1", "ab": b"2", "b": b"3"})

        stored = {"a": b"1", "ab": b"2", "b": b"3"}
        assert await spring.context.positions() == await on.spool.queue.positions("scripted/in") == stored
        assert await spring.context.positions("a") == {"a": b"1", "ab": b"2"}
        assert [await spring.context.position(key) for key in ("ab", "c")] == [b"2", None]


# -- the cut -----------------------------------------------------------------------------------------------------------


async def test_a_batch_that_waits_for_room_enters_under_the_new_revision(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        stuck()
        await spring.context.emit(events(*range(10)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(*range(10, 20)))
            await spring.until(lambda: waiting(on) == 1)
            with trio.fail_after(30):
                await on.offer(2, policy(more=SMALL, flavour="new"))
                await on.ack(2, "active")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert waiting(on) == 1
            await on.offer(3, policy(flavour="more"))
            await on.ack(3, "active")

        assert entered_under(on) == {1: 10, 3: 10}


async def test_a_batch_prepared_for_an_older_revision_is_prepared_again_by_the_new_processors(tmp_path: Path) -> None:
    waits = "processors:\n  - {type: scripted, does: wait, mark: old}\n"
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=waits))
        big = Batch.documents([b'{"n":%d,"x":"%s"}' % (n, b"x" * 100) for n in range(100)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, big)
            await trio.testing.wait_all_tasks_blocked(0.05)
            stuck()
            await on.offer(2, policy(more="processors:\n  - {type: scripted, mark: new}\n"))
            await on.ack(2, "active")
            GATE.set()
        (batch,) = await _stored(on)

        assert entered_under(on) == {2: 100}
        assert all(event.get("new") and "old" not in event for event in batch.whole())


async def _stored(on: Theatre) -> list[Batch]:
    (lane,) = [lane for lane in on.delivery.lanes.values() if lane.active]
    return [await stored_batch(on.spool, lane.id, entry) for entry in await on.spool.queue.window(lane.id, 0)]


async def test_every_event_is_stored_in_the_envelope_of_its_input(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        await spring.context.emit(events(1, 2))
        (batch,) = await _stored(on)

        for event in batch.whole():
            assert event["host"]["name"] == event["agent"]["name"]
            assert event["agent"].keys() == {"name", "type", "version"}
            assert event["data_stream"] == {"type": "logs", "dataset": "generic", "namespace": "default"}
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["@timestamp"])


async def test_a_batch_that_waited_has_the_time_of_its_arrival_and_the_data_stream_of_the_new_revision(
    tmp_path: Path,
) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        stuck()
        await spring.context.emit(events(*range(10)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(*range(10, 20)))
            await spring.until(lambda: waiting(on) == 1)
            moment = datetime.now(UTC)
            await on.offer(2, policy(inputs="inputs:\n  in: {type: scripted, data_stream: {dataset: new}}\n"))
            await on.ack(2, "active")
        *_, batch = await _stored(on)

        assert batch.shared["data_stream"]["dataset"] == "new"
        assert datetime.fromisoformat(batch.shared["@timestamp"]) <= moment


async def test_the_spool_refuses_what_comes_between_the_cut_and_the_switch(tmp_path: Path) -> None:
    """The cut is durable an instant before inputs are told; what arrives then enters once, under the new revision."""
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        refusals = 0
        enter = on.spool.queue.enter

        async def counting(entry, *rest, **options):  # type: ignore[no-untyped-def]
            nonlocal refusals
            try:
                return await enter(entry, *rest, **options)
            except NotActive:
                refusals += 1
                raise

        on.spool.queue.enter = counting  # type: ignore[method-assign]
        with slow_cut(on) as (is_cut, go_on):
            async with trio.open_nursery() as nursery:
                await on.offer(2, policy(flavour="new"))
                await is_cut.wait()
                nursery.start_soon(spring.context.emit, events(1))
                await spring.until(lambda: refusals == 1)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert refusals == 1
                go_on.set()

        assert entered_under(on) == {2: 1}


async def test_a_removed_input_is_closed_and_what_it_emits_is_refused(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        outcome: list[str] = []

        async def emitting(context: InputContext) -> None:
            try:
                while True:
                    await context.emit(events(1))
            except trio.Cancelled:
                outcome.append("cancelled")
                raise

        spring.on_run = emitting
        stuck()
        await on.offer(2, policy(at="elsewhere", more=SMALL))
        await on.ack(2, "active")
        await spring.until(lambda: waiting(on) == 1)
        await on.offer(3, policy(inputs="inputs: {}\n"))
        await on.ack(3, "active")
        await spring.until(lambda: spring.log.count("close") == 2)

        assert outcome == ["cancelled"]
        assert on.intake.running == {}


async def test_nothing_is_told_to_an_input_that_is_not_open(tmp_path: Path) -> None:
    async def again(context: InputContext) -> None:
        raise OSError("it is away")

    async with theatre(tmp_path) as on:
        spring = await running(on)
        told = on.intake.running["in"]
        spring.on_open = again
        told.read_again()
        await spring.until(lambda: told.source is None)
        told.answered(["1"])
        told.adopted(["owner"])

        assert spring.answered == []


async def test_what_is_counted_of_an_input_goes_with_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        spring.context.turned_away(3)
        assert on.intake.turned_away == {"in": 3}
        await on.offer(2, policy(at="elsewhere", more=SMALL))
        await on.ack(2, "active")
        assert on.intake.turned_away == {"in": 3}
        await on.offer(3, policy(inputs="inputs: {}\n"))
        await on.ack(3, "active")

        assert (on.intake.turned_away, on.intake.inputs()) == ({}, {})


async def test_an_input_that_stays_runs_through_the_cut_and_is_told_once_what_changed(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        await on.offer(2, policy(flavour="two"))
        await on.ack(2, "active")
        await on.offer(3, policy(flavour="two", more="log_level: warning\n"))
        await on.ack(3, "active")

        assert spring.log == ["open ", "run", "change two"]


async def test_an_input_without_an_output_is_held(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs="inputs:\n  in: {type: scripted, outputs: []}\n"))
        await on.ack(1, "drained")

        assert list(on.intake.held) == ["in"]
        assert SPRINGS["in"].log == []


# -- room --------------------------------------------------------------------------------------------------------------


async def test_without_room_emit_waits_or_raises_as_asked(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        stuck()
        await spring.context.emit(events(*range(20)))

        with pytest.raises(Backpressure):
            await spring.context.emit(events(*range(20)), wait=False)
        with trio.move_on_after(0.05) as timeout:
            await spring.context.emit(events(*range(20)), positions={"file": b"1"})
        assert timeout.cancelled_caught
        assert on.spool.figures.total().events == 20
        assert await spring.context.positions() == {}


async def test_on_a_full_disk_an_emit_that_does_not_wait_raises_and_stores_nothing(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy())
        stuck()
        on.spool.store.problem = "disk full: intake waits"
        with pytest.raises(Backpressure, match="disk full"):
            await spring.context.emit(events(*range(20)), wait=False)
        on.spool.store.problem = None

        assert on.spool.figures.total().events == 0


async def test_an_input_knows_why_there_is_no_room(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="queue: {max_bytes: 1MiB}\n"))
        stuck()
        on.intake.entrance.max_bytes = 1
        assert spring.context.no_room() is None  # whatever its size, a batch enters an empty queue

        await spring.context.emit(events(1))
        assert spring.context.no_room() == "the queue is full"

        on.intake.entrance.max_bytes = 1 << 20
        assert spring.context.no_room() is None
        held = on.intake.entrance.used()
        on.intake.entrance.max_bytes = held + 4096
        assert spring.context.no_room() is None
        on.intake.entrance.max_bytes = held + 4095
        assert spring.context.no_room() == "the queue is full"
        on.intake.entrance.max_bytes = 20 * held + 100_000
        assert spring.context.no_room(1 << 60) is None  # half the queue counts
        on.spool.store.problem = "disk full: intake waits"
        assert spring.context.no_room() == "events cannot be stored now"
        on.spool.store.problem = None


async def test_an_input_that_waits_for_room_gets_that_of_answers_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "NOTED_WITHIN", 3600.0)
    async with theatre(tmp_path) as on:
        spring = await running(on)
        for n in range(2):
            await spring.context.emit(events(n))
            await DESTINATIONS["main"].until(lambda: len(DESTINATIONS["main"].received) == n + 1)  # noqa: B023
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert on.spool.figures.total().events == 1
        on.intake.entrance.max_bytes = 1
        with trio.fail_after(PATIENCE):
            for n in range(2, 5):
                await spring.context.emit(events(n))


async def test_a_batch_larger_than_the_limit_enters_alone(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="queue: {max_bytes: 1B}\n"))
        with trio.fail_after(PATIENCE):
            for n in range(3):
                await spring.context.emit(events(n))

        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [0, 1, 2])


@pytest.mark.parametrize(
    "text", [b"\n" * 100_000, b"\n" * 50_000 + b"a" * 200_000 + b"\n" + b"\n" * 50_000, b"b\n" * 20_000]
)
async def test_many_small_events_enter_as_several_batches_in_their_order(tmp_path: Path, text: bytes) -> None:
    """Each has what all share, so what they become is a matter of their number, not of their bytes."""
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        batch = Batch.lines(text, offset=7, shared={}, gap=2)
        await spring.context.emit(batch)
        stored = await _stored(on)

        assert max(part.count for part in stored) <= MOST_EVENTS
        assert [event for part in stored for event in part.own()] == batch.own()
        assert len({id for part in stored for id in part.id_texts()}) == batch.count


async def test_many_at_once_do_not_pass_an_empty_queue_together(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="queue: {max_bytes: 1B}\n"))
        stuck()
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(spring.context.emit, events(n))
            await spring.until(lambda: waiting(on) == 9 and on.spool.figures.total().events > 0)
            assert on.spool.figures.total().events == 1
            nursery.cancel_scope.cancel()


async def test_what_retired_lanes_hold_leaves_room_for_a_repaired_output(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=SMALL))
        stuck()
        await spring.context.emit(events(*range(20)))
        with pytest.raises(Backpressure):
            await spring.context.emit(events(1), wait=False)
        await on.offer(2, policy(credential="k2", more=SMALL), "k2")
        await on.ack(2, "active")

        await spring.context.emit(events(*range(20)), wait=False)
        assert entered_under(on) == {1: 20, 2: 20}


async def test_retired_lanes_have_a_limit_of_their_own(tmp_path: Path) -> None:
    limits = "queue: {max_bytes: 300B, retired_max_bytes: 1B}\n"
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=limits))
        stuck()
        await spring.context.emit(events(*range(20)))
        await on.offer(2, policy(credential="k2", more=limits), "k2")
        await on.ack(2, "active")

        with pytest.raises(Backpressure):
            await spring.context.emit(events(*range(20)), wait=False)


async def test_slow_processors_leave_threads_for_everything_else(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: scripted, does: wait}\n"))
        big = Batch.documents([b'{"x":"%s"}' % (b"x" * 8000)])
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(spring.context.emit, big)
            await trio.testing.wait_all_tasks_blocked(0.05)
            with trio.fail_after(30):
                await on.offer(2, policy(flavour="new"))
                await on.ack(2, "active")
            GATE.set()


async def test_a_slow_processor_holds_nothing_up_with_a_batch_however_small(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: scripted, does: wait}\n"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(1))
            with trio.fail_after(30):
                await trio.testing.wait_all_tasks_blocked(0.05)
                await on.offer(2, policy(flavour="new"))
                await on.ack(2, "active")
            GATE.set()


# -- processors --------------------------------------------------------------------------------------------------------


async def test_what_processors_count_is_kept_by_their_places_over_revisions(tmp_path: Path) -> None:
    counting = "processors:\n  - {type: scripted}\n  - {type: scripted, does: count}\n"
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=counting))
        await spring.context.emit(events(1, 2))
        await on.offer(2, policy(more=counting, credential="k2"), "k2")
        await on.ack(2, "drained")
        await spring.context.emit(events(3))
        counted = on.intake.panel.view()
        assert counted.keys() == {"inputs.in.processors.1"}
        assert counted["inputs.in.processors.1"]["seen"]["value"] == 3

        await on.offer(3, policy(credential="k2"))
        await on.ack(3, "drained")
        assert on.intake.panel.view() == {}


async def test_the_own_processors_of_an_input_come_first(tmp_path: Path) -> None:
    inputs = "inputs:\n  in: {type: scripted, processors: [{type: scripted, mark: own}]}\n"
    async with theatre(tmp_path) as on:
        await running(on, policy(inputs=inputs, more="processors:\n  - {type: scripted, mark: common}\n"))

        assert [processor.mark for processor in on.intake.running["in"].plan.processors] == ["own", "common"]  # type: ignore[attr-defined]


async def test_a_processor_that_fails_marks_its_events_and_quotes_nothing(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: scripted, does: fail}\n"))
        stuck()
        await spring.context.emit(events(1, 2))
        (batch,) = await _stored(on)

        assert [event["tags"] for event in batch.whole()] == [["processor_error"], ["processor_error"]]
        assert "secret" not in str(batch.whole())


async def test_positions_move_though_a_processor_drops_all_events(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: scripted, does: drop}\n"))
        await spring.context.emit(events(1, 2), positions={"file": b"2"})

        assert await spring.context.positions() == {"file": b"2"}
        assert on.spool.figures.total().events == 0


@pytest.mark.parametrize(
    ("does", "filtered", "failures"), [("mark", 0, 0), ("drop", 3, 0), ("fail", 0, 3), ("wait", 0, 0)]
)
async def test_what_an_input_takes_is_counted_with_what_became_of_it(
    tmp_path: Path, does: str, filtered: int, failures: int
) -> None:
    async with theatre(tmp_path) as on:
        GATE.set()
        spring = await running(on, policy(more=f"processors:\n  - {{type: scripted, does: {does}}}\n"))
        stuck()
        batches = events(1, 2), events(3)
        await spring.context.emit(*batches)

        size = sum(len(batch.body) for batch in batches)
        assert on.intake.inputs() == {"in": {"events": 3, "bytes": size, "filtered": filtered, "failures": failures}}


async def test_what_has_no_room_is_not_counted_as_taken(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="queue: {max_bytes: 1MiB}\n"))
        stuck()
        on.intake.entrance.max_bytes = 1
        await spring.context.emit(events(1))
        with pytest.raises(Backpressure):
            await spring.context.emit(events(2), wait=False)

        assert on.intake.inputs()["in"]["events"] == 1


# -- what cannot be stored ---------------------------------------------------------------------------------------------

TORN = Batch.lines(b"one\ntwo", offset=0, shared={})


async def test_a_batch_without_its_last_line_feed_is_refused_and_its_position_stays(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        await spring.context.emit(events(1), positions={"file": b"1"})
        with pytest.raises(
            PluginFault, match=r"^input in \(scripted\) emitted what cannot be stored: its last event has"
        ):
            await spring.context.emit(events(2), TORN, positions={"file": b"2"})

        assert await spring.context.positions() == {"file": b"1"}
        assert on.spool.figures.total().events == 1


async def test_what_an_input_has_read_enters_before_the_cut_that_ends_it(tmp_path: Path) -> None:
    async def emitting(context: InputContext) -> None:
        await context.emit(events(1))

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_quiesce = emitting
        await running(on)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await on.offer(2, policy(at="elsewhere"))
        await on.ack(2, "active")

        assert on.spool.figures.total().events == 1


async def test_an_input_that_does_not_end_its_reading_holds_a_cut_up_for_some_seconds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.SETTLE_SECONDS", 0.05)

    async def hanging(context: InputContext) -> None:
        await trio.sleep_forever()

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_quiesce = hanging
        await running(on)
        await on.offer(2, policy(at="elsewhere"))
        await on.ack(2, "active")


async def test_an_input_that_ended_its_reading_is_opened_again_where_there_is_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: iter(lambda: 0.01, None))
    async with theatre(tmp_path) as on:
        spring, ended = SPRINGS["in"], trio.Event()

        async def until_it_ends(context: InputContext) -> None:
            await ended.wait()

        async def ending(context: InputContext) -> None:
            ended.set()
            await trio.testing.wait_all_tasks_blocked()

        async def for_ever(context: InputContext) -> None:
            await trio.sleep_forever()

        spring.on_run, spring.on_quiesce = until_it_ends, ending
        await running(on)
        await on.intake.running["in"].quiesce()
        spring.on_run = for_ever
        on.intake.resume()
        await spring.until(lambda: spring.log.count("run") == 2)

        assert not on.intake.running["in"].ended


@pytest.mark.parametrize("batch", [None, Batch.lines(b"\xff\n", offset=0, shared={}), Batch.documents([b"{\n}"])])
async def test_an_input_that_emits_what_cannot_be_fails_by_its_name_until_it_emits_a_sound_batch(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: iter(lambda: 0.01, None))

    async def emitting_once(context: InputContext) -> None:
        if spring.log.count("run") == 1:
            await context.emit(batch)
        await trio.sleep_forever()

    failures: list[str] = []

    async def noting_the_failure(context: InputContext) -> None:
        await trio.lowlevel.checkpoint()
        if "close" in spring.log:
            failures.append(str(on.intake.running["in"].failure))

    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        spring.on_run, spring.on_open = emitting_once, noting_the_failure
        await running(on)
        await spring.until(lambda: spring.log.count("run") == 2)

        (failed,) = failures
        assert failed.startswith("input in (scripted) emitted what cannot be stored: ")
        assert (on.intake.running["in"].failure, on.intake.running["in"].port.fault) == (None, failed)
        await spring.context.emit(events(1))
        assert on.intake.running["in"].port.fault is None


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (replace(Batch.typed([{"a": 1}]), body=b"\x81\xa1a"), "its body or its sizes are of others"),
        (Batch.documents([b"{}"]).with_columns(timestamps=[1, 2]), "it counts 1 events and has timestamps of 2"),
        (Batch.documents([b"{}"]).with_columns(keys=["text"]), "its keys are no bytes"),  # type: ignore[list-item]
    ],
)
async def test_columns_that_do_not_fit_are_refused_and_the_position_stays(
    tmp_path: Path, batch: Batch, what: str
) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        await spring.context.emit(positions={"file": b"1"})
        with pytest.raises(PluginFault, match=rf"^input in \(scripted\) emitted what cannot be stored: .*{what}"):
            await spring.context.emit(batch, positions={"file": b"2"})

        assert await spring.context.positions() == {"file": b"1"}


async def test_no_position_is_stored_that_is_no_bytes(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        with pytest.raises(PluginFault, match="a position is no bytes"):
            await spring.context.emit(positions={"file": "text"})  # type: ignore[dict-item]
        await spring.context.emit(positions={"file": b"1"})

        assert await spring.context.positions() == {"file": b"1"}


@pytest.mark.parametrize(
    ("does", "what"),
    [
        ("grow", "1 events became 2"),
        ("tear", "its last event has no line feed at the end"),
        ("forget", "a batch is expected, not NoneType"),
    ],
)
async def test_a_processor_that_returns_what_cannot_be_has_failed(tmp_path: Path, does: str, what: str) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=f"processors:\n  - {{type: scripted, does: {does}}}\n"))
        stuck()
        await spring.context.emit(events(1, 2))
        (batch,) = await _stored(on)

        message = {"message": f"ScriptedProcessor failed: {what}"}
        assert batch.own() == [{"n": n, "tags": ["processor_error"], "error": message} for n in (1, 2)]


async def test_a_document_that_a_failed_processor_leaves_and_nobody_can_read_fails_its_input(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: scripted, does: fail}\n"))
        with pytest.raises(PluginFault, match="a document is not valid JSON"):
            await spring.context.emit(Batch.documents([b'{"a":}']), positions={"file": b"1"})

        assert await spring.context.positions() == {}


# -- an input's life ---------------------------------------------------------------------------------------------------


async def test_an_input_that_fails_later_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: iter(lambda: 0.01, None))
    failures = 2

    async def failing(context: InputContext) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError("the device is gone")
        await trio.sleep_forever()

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run = failing
        spring = await running(on)
        await spring.until(lambda: spring.log.count("run") == 3)
        await spring.context.emit(events(1))

        assert spring.log == ["open ", "run", "close", "open ", "run", "close", "open ", "run"]
        assert on.intake.running["in"].failure is None


async def test_a_failure_in_a_nursery_of_an_input_is_told_as_what_it_is(tmp_path: Path) -> None:
    async def failing(context: InputContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broken)

    async def broken() -> None:
        raise OSError("the device is gone")

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run = failing
        spring = await running(on)
        await spring.until(lambda: "close" in spring.log)
        await spring.until(lambda: on.intake.running["in"].failure == "the device is gone")


async def test_an_input_that_is_being_opened_again_at_the_cut_gets_the_new_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: iter(lambda: 0.01, None))
    gate, failed = trio.Event(), False

    async def fail_once(context: InputContext) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise OSError("gone")
        await trio.sleep_forever()

    async def slowly(context: InputContext) -> None:
        if failed:
            await gate.wait()

    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        spring.on_run, spring.on_open = fail_once, slowly
        await running(on)
        await spring.until(lambda: spring.log.count("open ") == 2)
        await on.offer(2, policy(flavour="new"))
        await on.ack(2, "active")
        gate.set()
        await spring.until(lambda: spring.log.count("run") == 2)

        assert "change new" in spring.log[spring.log.index("close") :] or spring.log[-2:] == ["open new", "run"]


async def test_an_input_read_to_its_end_is_not_read_again_unless_its_settings_change(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        runs = trio.Event()

        async def ends(context: InputContext) -> None:
            runs.set()

        spring.on_run = ends
        await running(on)
        await spring.until(lambda: on.intake.running["in"].ended)
        await on.offer(2, policy(more="log_level: warning\n"))
        await on.ack(2, "active")
        assert spring.log.count("run") == 1
        await on.offer(3, policy(flavour="again"))
        await on.ack(3, "active")
        await spring.until(lambda: spring.log.count("run") == 2)


async def test_an_emit_that_is_cancelled_stored_all_or_nothing(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        for n in range(30):
            with trio.move_on_after(0.0002 * n):
                await spring.context.emit(events(n), positions={"at": b"%d" % n})
            stored = [event["n"] for batch in await _stored(on) for event in batch.own()]
            at = (await spring.context.positions()).get("at")
            assert at is None or stored[-1] == int(at)
            assert on.spool.figures.total().events == len(stored)
        assert on.rollout.stages.active == Revision(0, 1)


# -- withdrawn credentials ---------------------------------------------------------------------------------------------

KEYED = "inputs:\n  in: {type: scripted, credentials: [w1, w2]}\n"


async def test_an_input_goes_on_without_a_withdrawn_credential_and_with_it_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await on.ack(1, "drained")
        spring = SPRINGS["in"]
        await spring.until(lambda: "run" in spring.log)
        await on.rollout.supply({"w1": None})
        assert (on.intake.running["in"].withdrawn, on.rollout.wanted()) == (["w1"], ["w1"])
        await on.rollout.supply({"w1": {"api_key": "w1:secret-of-w1"}})

        assert spring.log == ["open ", "run", "change  w2", "change  w1,w2"]
        assert on.intake.running["in"].withdrawn == []


async def test_no_text_of_an_input_or_of_a_processor_shows_a_secret(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await on.ack(1, "drained")
        spring = SPRINGS["in"]
        await spring.until(lambda: "run" in spring.log)
        spring.context.report("the login with secret-of-w1 failed")
        port = on.intake.running["in"].port
        with pytest.raises(PluginFault), port._faults():
            raise PluginFault("no secret-of-w2")

    assert port.problem == "the login with [hidden] failed"
    assert port.fault == "input in (scripted) emitted what cannot be stored: no [hidden]"


async def test_an_input_that_cannot_go_on_without_a_credential_is_opened_again_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def on_open(context: InputContext) -> None:
        if "w1" not in context.credentials:
            raise StartFailed("w1 is not there")

    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: repeat(0.01))
    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        spring.on_open = on_open
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await on.ack(1, "drained")
        await spring.until(lambda: "run" in spring.log)
        running = on.intake.running["in"]
        assert running.source is not None

        def change(*_: object) -> None:
            raise KeyError("w1")

        running.source.change = change  # type: ignore[method-assign]
        await on.rollout.supply({"w1": None})
        await spring.until(lambda: running.failure == "w1 is not there")
        assert "close" in spring.log
        await on.rollout.supply({"w1": {"api_key": "w1:secret-of-w1"}})
        await spring.until(lambda: running.failure is None)

        assert spring.log[-2:] == ["open ", "run"]


async def test_an_input_that_was_opened_before_a_credential_was_withdrawn_is_told_when_it_runs(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring, opening, gate = SPRINGS["in"], trio.Event(), trio.Event()

        async def on_open(context: InputContext) -> None:
            opening.set()
            await gate.wait()

        spring.on_open = on_open
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await opening.wait()
        await on.rollout.supply({"w1": None})
        gate.set()
        await on.ack(1, "active")
        await spring.until(lambda: "run" in spring.log)

        assert "change  w2" in spring.log


# -- what a source may say, or fails to --------------------------------------------------------------------------------


async def test_an_input_that_cannot_say_its_figures_or_edges_runs_on_and_is_asked_no_more(tmp_path: Path) -> None:
    def broken() -> dict[str, int]:
        asked.append("asked")
        raise KeyError("count")

    asked: list[str] = []
    async with theatre(tmp_path) as on:
        spring = await running(on)
        (one,) = on.intake.running.values()
        assert (one.figures(), on.intake.edges()) == ({}, {})
        one.source.edges = lambda: [("berlin", 3.0)]  # type: ignore[union-attr]
        assert on.intake.edges() == {"in": (Edge("berlin", 3.0),)}
        spring.on_figures = one.source.edges = broken  # type: ignore[union-attr]

        assert [one.figures(), on.intake.edges()] * 2 == [one.figures(), on.intake.edges(), {}, {}]
        assert len(asked) == 2
        one.adopted(["berlin"])  # which this source does not want to know
        await spring.context.emit(events(1))
        assert on.intake.inputs()["in"]["events"] == 1


async def test_an_input_that_fails_to_end_its_reading_holds_up_no_cut(tmp_path: Path) -> None:
    async def failing(context: InputContext) -> None:
        raise KeyError("reading")

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_quiesce = failing
        await running(on)
        await on.offer(2, policy(at="elsewhere"))
        await on.ack(2, "active")


async def test_an_order_to_an_edge_goes_to_the_input_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(edge: str, keys: str) -> int:
        if edge == "oslo":
            raise NotOrdered("no such edge")
        if edge == "bergen":
            await on.offer(2, policy(at="elsewhere"))
            await trio.sleep_forever()
        return 2

    async with theatre(tmp_path) as on:
        await running(on)
        with pytest.raises(NotOrdered, match="inputs that relay: none"):
            await on.intake.forget_edge("berlin", "keep", None)
        monkeypatch.setattr(ScriptedInput, "relays", True)
        with pytest.raises(NotOrdered, match="keeps nothing of edge berlin"):
            await on.intake.forget_edge("berlin", "keep", None)
        on.intake.running["in"].source.forget_edge = forget  # type: ignore[union-attr,method-assign]

        assert await on.intake.forget_edge("berlin", "keep", "in") == 2
        assert await on.intake.forget_edge("berlin", "keep", None) == 2
        with pytest.raises(NotOrdered, match="no such edge"):
            await on.intake.forget_edge("oslo", "keep", None)
        with pytest.raises(NotOrdered, match="input in has ended"):
            await on.intake.forget_edge("bergen", "keep", None)


async def test_an_input_says_what_is_wrong_and_whom_it_turned_away(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = (await running(on)).context
        port = on.intake.running["in"].port
        for problem in ("a file cannot be read", "a file cannot be read", None):
            context.report(problem)
            assert (port.problem, port.code) == (problem, Code.OK if problem is None else Code.INPUT_DEGRADED)
        context.turned_away(2)

        assert on.intake.turned_away["in"] == 2
        assert (context.delivers, context.is_held) == (True, False)


async def test_before_its_revision_is_active_an_input_waits_or_is_turned_away(tmp_path: Path) -> None:
    async def on_open(context: InputContext) -> None:
        told.append(context.no_room())
        with pytest.raises(Backpressure, match="no revision"):
            await context.emit(events(1), wait=False)

    told: list[str | None] = []
    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_open = on_open
        context = (await running(on)).context
        await context.emit(events(2))

        assert told == ["events are not taken yet"]
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [2])


# -- whatever a plugin raises ------------------------------------------------------------------------------------------


async def _cancelled_task(context: InputContext) -> None:
    """A coroutine of asyncio that awaits a task which somebody has cancelled."""

    async def wait_for_cancelled() -> None:
        task = asyncio.ensure_future(asyncio.sleep(9))
        task.cancel()
        await task

    async with open_asyncio() as aio:
        await aio.call(wait_for_cancelled)


async def _exit(context: InputContext) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        sys.exit(1)


async def _old_cancel(context: InputContext) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            old = error
    raise old


@pytest.mark.parametrize("raises", [_cancelled_task, _exit, _old_cancel])
async def test_whatever_an_input_raises_stays_with_it_and_names_it(
    tmp_path: Path, raises: Callable[[InputContext], Awaitable[None]]
) -> None:
    async with theatre(tmp_path) as on:
        SPRINGS["other"] = Spring()
        await on.offer(1, policy(inputs="inputs:\n  in: {type: scripted}\n  other: {type: scripted, of: other}\n"))
        await on.ack(1, "active")
        running = on.intake.running["in"]
        spring = SPRINGS["in"]
        await spring.until(lambda: "run" in spring.log)
        spring.on_run = raises
        running.opened.cancel("so that it runs again")
        await spring.until(lambda: running.failure is not None)

        assert (running.failure or "").startswith("the plugin raised ")
        assert running.code == Code.PLUGIN_FAULT
        await SPRINGS["other"].context.emit(events(1))
        assert on.intake.running["other"].failure is None


async def test_a_source_that_fails_on_what_it_is_told_is_opened_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy())
        await on.ack(1, "active")
        spring, running = SPRINGS["in"], on.intake.running["in"]
        await spring.until(lambda: "run" in spring.log)

        def fails(keys: object) -> None:
            raise SystemExit

        setattr(running.source, "answered", fails)  # noqa: B010
        running.answered(["a"])

        assert running.code == Code.PLUGIN_FAULT
        await spring.until(lambda: spring.log.count("run") == 2)
        assert running.failure is None


async def test_an_input_may_emit_from_the_moment_on_in_which_it_is_opened(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:

        async def on_open(context: InputContext) -> None:
            nursery.start_soon(context.emit, events(7))

        SPRINGS["in"].on_open = on_open
        await running(on)
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [7])


async def test_an_emit_waits_for_a_cut_though_the_stages_of_its_input_are_gone(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        context = (await running(on, policy(more="processors: [{type: stage}]\n"))).context
        await on.offer(2, policy())
        await on.ack(2, "active")
        stages = on.intake.running["in"].port.stages
        await stages.settle(flush=False)
        nursery.start_soon(context.emit, events(7))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert on.intake.inputs()["in"]["events"] == 0
        stages.resume()
        await DESTINATIONS["main"].until(lambda: DESTINATIONS["main"].received == [7])


async def test_the_stages_of_a_revision_that_is_not_begun_with_are_closed_and_those_that_run_are_not(
    tmp_path: Path,
) -> None:
    async def refuse(context: InputContext) -> None:
        raise StartFailed("the port is taken")

    old, new = "{type: stage, mark: old}", "{type: stage, mark: new}"
    both = "inputs:\n  in: {type: scripted}\n  more: {type: scripted, of: more}\n"
    async with theatre(tmp_path) as on:
        await running(on, policy(inputs="inputs:\n  in: {type: scripted}\n", more=f"processors: [{old}]\n"))
        SPRINGS["more"].on_open = refuse
        await on.offer(2, policy(inputs=both, more=f"processors: [{old}, {new}]\n"))
        await on.nack(2)
        await SPRINGS["in"].until(lambda: "close new" in WORKSHOP.log)

        assert [stage.settings.mark for stage in WORKSHOP.open] == ["old"]


async def test_an_input_is_told_of_answers_to_its_own_batches_alone(tmp_path: Path) -> None:
    both = "inputs:\n  in: {type: relaying}\n  more: {type: relaying, of: more}\n"
    async with theatre(tmp_path) as on:
        context = (await running(on, policy(inputs=both))).context
        await context.emit(events(1).identified(b"o" * 16, 9), awaited=["k"])
        await SPRINGS["in"].until(lambda: SPRINGS["in"].answered == ["k"])

        assert SPRINGS["more"].answered == []


@pytest.mark.parametrize("says_when", [True, False])
async def test_a_source_that_cannot_say_when_it_has_changed_uses_nothing_old_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says_when: bool
) -> None:
    if not says_when:
        monkeypatch.delattr("tests.fakes._Scripting.changed")
    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await on.ack(1, "drained")
        await spring.until(lambda: "run" in spring.log)
        closing, resupply = list[object](), on.intake.resupply
        monkeypatch.setattr(on.intake, "resupply", lambda: closing.extend(found := resupply()) or found)
        await on.rollout.supply({"w1": None})

        assert "change  w2" in spring.log
        assert len(closing) == says_when


async def test_an_input_that_is_being_opened_again_is_told_of_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(context: InputContext) -> None:
        raise KeyError("reading")

    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: repeat(3600))
    async with theatre(tmp_path) as on:
        spring = SPRINGS["in"]
        spring.on_run = fail
        await on.offer(1, policy(inputs=KEYED), "w1", "w2")
        await on.ack(1, "drained")
        await spring.until(lambda: "close" in spring.log)
        await on.rollout.supply({"w1": None})

        assert on.intake.running["in"].withdrawn == ["w1"]
        assert not any(line.startswith("change") for line in spring.log)


async def test_an_input_listens_where_it_is_told_to_and_gives_the_port_back(tmp_path: Path) -> None:
    endpoint = Endpoint("tcp", "127.0.0.1", 0)
    async with theatre(tmp_path) as on:
        context = (await running(on)).context
        bound = await context.listen(endpoint)

        assert await context.listen(endpoint) is bound
