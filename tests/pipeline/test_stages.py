"""Stages: what they hold is stored once, under the revision that it came under, or was never acknowledged."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Backpressure, Batch, InputContext, Outdated, PluginFault
from shipper.spool.queue import NotActive
from shipper.values import Counts
from tests.fakes import DESTINATIONS, SPRINGS, WORKSHOP, Spring, Theatre, events, policy, stored_batch, theatre

HOLDING = "processors:\n  - {type: stage, holds: 3600}\n"
COUNTING = "processors:\n  - {type: stage}\n"
REREADING = "inputs:\n  in: {type: rereading}\n"
SMALL = "queue: {max_bytes: 600B}\n"


async def running(on: Theatre, text: str, number: int = 1) -> Spring:
    await on.offer(number, text)
    await on.ack(number, "active")
    spring = SPRINGS["in"]
    await spring.until(lambda: "run" in spring.log)
    return spring


def stuck() -> None:
    DESTINATIONS["main"].send = DESTINATIONS["main"].hang


async def offered(on: Theatre, number: int, text: str, *ids: str) -> None:
    await on.offer(number, text, *ids)
    await on.ack(number, "active")


async def stored(on: Theatre, output: str = "main") -> list[dict[str, Any]]:
    """All events on the lanes of an output, each with the number of its revision."""
    found = []
    for lane in on.delivery.lanes.values():
        if lane.key.output == output:
            for entry in await on.spool.queue.window(lane.id, 0, 1000):
                if not entry.is_barrier:
                    batch = await stored_batch(on.spool, lane.id, entry)
                    found += [event | {"at": entry.revision.number} for event in batch.own()]
    return sorted(found, key=lambda event: (event["at"], event["count"]))


async def loaded(on: Theatre, lane: int) -> list[dict[str, Any]]:
    entries = [entry for entry in await on.spool.queue.window(lane, 0, 1000) if not entry.is_barrier]
    return [event for entry in entries for event in (await stored_batch(on.spool, lane, entry)).own()]


async def held(on: Theatre, count: int = 1) -> None:
    """Wait until a stage holds so many parts."""
    await SPRINGS["in"].until(lambda: bool(WORKSHOP.open) and len(WORKSHOP.open[0].held) == count)


def numbers(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(event["at"], event["n"], event["count"]) for event in found]


# -- state -------------------------------------------------------------------------------------------------------------


async def test_a_stage_keeps_its_state_from_batch_to_batch_and_over_revisions(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        await spring.context.emit(events(1), events(2))
        await offered(on, 2, policy(credential="k2", more=COUNTING), "k2")
        await spring.context.emit(events(3))

        assert numbers(await stored(on)) == [(1, 1, 1), (1, 2, 2), (2, 3, 3)]
        assert WORKSHOP.log == ["open count"]


async def test_a_stage_with_other_settings_begins_anew_and_the_old_one_is_closed(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        await spring.context.emit(events(1))
        await offered(on, 2, policy(more="processors:\n  - {type: stage, mark: other}\n"))
        await spring.until(lambda: WORKSHOP.log == ["open count", "open other", "close count"])
        await offered(on, 3, policy())
        await spring.until(lambda: not WORKSHOP.open)


async def test_a_stage_that_cannot_be_opened_refuses_its_revision_and_closes_the_others(tmp_path: Path) -> None:
    both = "processors:\n  - {type: stage, mark: new}\n  - {type: stage, does: refuse}\n"
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        await on.offer(2, policy(more=both))
        nack = await on.nack(2)
        await spring.until(lambda: "close new" in WORKSHOP.log)

        assert nack.errors[0].message == "input in: ScriptedStage: the file is gone"
        assert [stage.settings.mark for stage in WORKSHOP.open] == ["count"]


async def test_the_calls_of_many_emits_are_one_after_the_other_and_many_are_stored_together(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(spring.context.emit, events(n))
        found = await stored(on)

        assert [event["count"] for event in found] == list(range(1, 51))
        assert {event["n"] for event in found} == set(range(50))


async def test_an_emit_that_is_cancelled_while_it_is_held_was_never_processed(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=HOLDING))
        stuck()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(1))
            await held(on)
            with trio.move_on_after(0.05):
                await spring.context.emit(events(2), positions={"file": b"2"})
            await held(on)
            await on.intake.finish()

        assert numbers(await stored(on)) == [(1, 1, 1)]
        assert await on.spool.queue.positions("scripted/in") == {}


async def test_an_emit_whose_positions_are_outdated_takes_no_other_one_with_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=HOLDING))
        stuck()
        await spring.context.emit(positions={"a": b"1"})
        outdated: list[int] = []

        async def emit(n: int, **how: Any) -> None:
            try:
                await spring.context.emit(events(n), **how)
            except Outdated:
                outdated.append(n)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(emit, 1, positions={"b": b"1"}, expect={"b": None}))
            await held(on)
            nursery.start_soon(partial(emit, 2, positions={"b": b"2"}, expect={"b": None}))
            await spring.until(lambda: outdated == [2])
            nursery.start_soon(partial(emit, 3, positions={"a": b"3"}, expect={"a": b"0"}))
            await held(on, 2)
            await on.intake.running["in"].port.stages.flush()
            await spring.until(lambda: outdated == [2, 3])
            await held(on)
            await on.intake.finish()

        assert numbers(await stored(on)) == [(1, 1, 1)]
        assert await on.spool.queue.positions("scripted/in") == {"a": b"1", "b": b"1"}


async def test_without_room_an_emit_that_does_not_wait_leaves_no_trace_in_a_stage(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING + SMALL))
        stuck()
        await spring.context.emit(events(*range(20)))
        with pytest.raises(Backpressure):
            await spring.context.emit(events(*range(20)), wait=False)

        assert WORKSHOP.open[0].count == 20


# -- held --------------------------------------------------------------------------------------------------------------


async def test_an_emit_returns_when_what_is_held_of_it_is_due_and_stored(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: stage, holds: 0.05}\n"))
        stuck()
        await spring.context.emit(events(1, 2), positions={"file": b"2"})

        assert numbers(await stored(on)) == [(1, 1, 1), (1, 2, 2)]
        assert await on.spool.queue.positions("scripted/in") == {"file": b"2"}


async def test_an_input_that_rereads_goes_on_and_its_positions_are_stored_with_what_was_held(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(inputs=REREADING, more=HOLDING))
        stuck()
        await spring.context.emit(events(1), positions={"a": b"1", "b": b"1"})
        await spring.context.emit(events(2), positions={"a": b"2", "b": None})

        assert await on.spool.queue.positions("rereading/in") == {}
        assert await spring.context.positions() == {"a": b"2"}
        assert (await spring.context.positions("a"), await spring.context.positions("b")) == ({"a": b"2"}, {})
        assert [await spring.context.position(key) for key in "ab"] == [b"2", None]
        assert await stored(on) == []
        await on.intake.finish()
        assert await on.spool.queue.positions("rereading/in") == {"a": b"2"}
        assert numbers(await stored(on)) == [(1, 1, 1), (1, 2, 2)]


async def test_an_input_that_has_read_to_its_end_has_stored_what_was_held(tmp_path: Path) -> None:
    async def once(context: InputContext) -> None:
        await context.emit(events(1), positions={"a": b"1"})

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run = once
        spring = await running(on, policy(inputs=REREADING, more=HOLDING))
        await spring.until(lambda: on.intake.running["in"].ended)

        assert await on.spool.queue.positions("rereading/in") == {"a": b"1"}


@pytest.mark.parametrize("does", ["fail", "exit", "no due"])
async def test_a_stage_that_cannot_give_what_it_holds_is_passed_by_and_said_to_be_at_fault(
    tmp_path: Path, does: str
) -> None:
    """Otherwise its input would begin again for ever. Its events go on as they came, tagged, and nothing is lost."""
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=f"processors:\n  - {{type: stage, holds: 0, does: {does}}}\n"))
        stuck()
        await spring.context.emit(events(1), events(2), positions={"a": b"1"})
        await spring.context.emit(events(3), positions={"a": b"2"})
        found = [event for lane in on.delivery.lanes.values() for event in await loaded(on, lane.id)]

        assert [(event["n"], event["tags"], "count" in event) for event in found] == [
            (n, ["processor_error"], False) for n in (1, 2, 3)
        ]
        assert await spring.context.positions() == {"a": b"2"}
        assert (on.intake.running["in"].port.stages.fault or "").startswith("ScriptedStage failed: ")


async def test_an_input_that_rereads_gets_past_a_stage_that_cannot_give_what_it_holds(tmp_path: Path) -> None:
    async def emits(context: InputContext) -> None:
        await context.emit(events(1), positions={"a": b"1"})
        await trio.sleep_forever()

    async with theatre(tmp_path) as on:
        stuck()
        SPRINGS["in"].on_run = emits
        await on.offer(1, policy(inputs=REREADING, more="processors:\n  - {type: stage, holds: 0.01, does: fail}\n"))
        await on.ack(1, "active")
        await SPRINGS["in"].until(lambda: on.spool.figures.total().events > 0)

        assert (on.intake.running["in"].port.stages.fault or "").startswith("ScriptedStage failed: ")


async def test_a_stage_that_rested_gets_events_again_and_is_well_when_it_gives_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.chain.REST_SECONDS", (0.0, 0.0))
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors:\n  - {type: stage, holds: 0, does: fail once}\n"))
        stuck()
        with pytest.raises(PluginFault):  # it does not rest at all here, so the fault is told
            await spring.context.emit(events(1))
        assert on.intake.running["in"].port.stages.fault == "ScriptedStage failed: ZeroDivisionError"
        await spring.context.emit(events(1))

        assert numbers(await stored(on)) == [(1, 1, 1)]
        assert on.intake.running["in"].port.stages.fault is None


# -- the cut -----------------------------------------------------------------------------------------------------------


async def test_what_is_held_is_stored_before_the_cut_so_that_the_barrier_counts_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(
            on,
            policy(more=HOLDING),
        )
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(spring.context.emit, events(1, 2))
                await held(on)
                await offered(on, 2, policy(credential="k2", more=HOLDING), "k2")
        receipt = await on.ack(2, "drained")

        assert receipt.ledger == Counts(accepted=2, delivered=2)
        assert WORKSHOP.log == ["open count"]


async def test_what_an_input_emits_in_its_last_moment_is_not_held_over_the_cut(tmp_path: Path) -> None:
    async def emitting(context: InputContext) -> None:
        await context.emit(events(2))

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_quiesce = emitting
        spring = await running(on, policy(more=HOLDING))
        stuck()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(1))
            await held(on)
            await offered(on, 2, policy(at="elsewhere", more=HOLDING))

        assert [at for at, *_ in numbers(await stored(on))] == [1, 1]


async def test_a_cut_that_changes_nothing_for_an_input_leaves_what_is_held(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(inputs=REREADING, more=HOLDING))
        stuck()
        await spring.context.emit(events(1), positions={"a": b"1"})
        await offered(on, 2, policy(inputs=REREADING, more=HOLDING + "log_level: warning\n"))
        await spring.context.emit(events(2), positions={"a": b"2"})
        assert await stored(on) == []
        await on.intake.finish()

        assert numbers(await stored(on)) == [(2, 1, 1), (2, 2, 2)]
        assert spring.log == ["open ", "run"]


@pytest.mark.parametrize("again", [HOLDING, COUNTING, "processors: []\n"])
async def test_what_a_full_queue_keeps_out_runs_again_after_the_cut_and_counts_once(
    tmp_path: Path, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.SETTLE_SECONDS", 0.1)
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=HOLDING + SMALL))
        stuck()
        done: list[int] = []

        async def emit(*ns: int) -> None:
            await spring.context.emit(events(*ns), positions={"last": b"%d" % ns[-1]})
            done.extend(ns)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(emit, *range(20))
            await held(on)
            await on.intake.running["in"].port.stages.flush()
            nursery.start_soon(emit, 20, 21)
            await held(on)
            await offered(on, 2, policy(credential="k2", more=again + "queue: {max_bytes: 1MiB}\n"), "k2")
            if again == HOLDING:
                await held(on)
                await on.intake.finish()
        found = [(event["at"], event["n"]) for event in await on_all(on)]

        assert sorted(found) == [(1, n) for n in range(20)] + [(2, 20), (2, 21)]
        assert done == list(range(22))
        if again == HOLDING:
            assert WORKSHOP.open[0].counted == 22


async def on_all(on: Theatre) -> list[dict[str, Any]]:
    found = []
    for lane in on.delivery.lanes.values():
        for entry in await on.spool.queue.window(lane.id, 0, 1000):
            if not entry.is_barrier:
                batch = await stored_batch(on.spool, lane.id, entry)
                found += [event | {"at": entry.revision.number} for event in batch.own()]
    return found


async def test_an_input_that_rereads_reads_again_what_was_kept_out_by_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.SETTLE_SECONDS", 0.1)
    monkeypatch.setattr("shipper.pipeline.intake.intake.backoff", lambda *_, **__: iter(lambda: 0.01, None))
    total = 60

    async def reading(context: InputContext) -> None:
        at = int((await context.positions()).get("at", b"0"))
        while at < total:
            await context.emit(events(*range(at, at + 10)), positions={"at": b"%d" % (at + 10)})
            at += 10
            if at == 10:
                await on.intake.running["in"].port.stages.flush()
        await trio.sleep_forever()

    async with theatre(tmp_path) as on:
        SPRINGS["in"].on_run = reading
        stuck()
        await on.offer(1, policy(inputs=REREADING, more="processors: [{type: stage, holds: 0.01}]\n" + SMALL))
        await on.ack(1, "active")
        await SPRINGS["in"].until(lambda: on.intake.entrance.is_full)
        more = "processors: [{type: stage, holds: 0.02}]\nqueue: {max_bytes: 1MiB}\n"
        await on.offer(2, policy(inputs=REREADING, credential="k2", more=more), "k2")
        await on.ack(2, "active")
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        for lane in on.delivery.lanes.values():
            lane.cut_off()
            lane.poke()
        with trio.fail_after(60):
            await DESTINATIONS["main"].until(lambda: set(DESTINATIONS["main"].received) >= set(range(total)))

        assert Counter(DESTINATIONS["main"].received) == Counter(range(total))
        assert SPRINGS["in"].log.count("run") == 2


async def test_what_the_spool_refuses_after_a_hanging_disk_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.SETTLE_SECONDS", 0.1)
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        await spring.context.emit(events(1))
        enter, hangs, goes_on = on.spool.queue.enter, trio.Event(), trio.Event()
        refused = 0

        async def hanging(arrival: Any, *rest: Any, **options: Any) -> Any:
            nonlocal refused
            if not hangs.is_set():
                hangs.set()
                await goes_on.wait()
            try:
                return await enter(arrival, *rest, **options)
            except NotActive:
                refused += 1
                raise

        monkeypatch.setattr(on.spool.queue, "enter", hanging)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(2))
            await hangs.wait()
            await offered(on, 2, policy(credential="k2", more=COUNTING), "k2")
            nursery.start_soon(spring.context.emit, events(3))
            goes_on.set()

        found = await stored(on)
        assert refused == 1
        assert [(event["at"], event["count"]) for event in found] == [(1, 1), (2, 2), (2, 3)]
        assert sorted(event["n"] for event in found) == [1, 2, 3]


async def test_a_removed_input_gives_up_what_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.intake.SETTLE_SECONDS", 0.1)
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(inputs=REREADING, more=HOLDING + SMALL))
        stuck()
        await spring.context.emit(events(*range(30)), positions={"a": b"1"})
        await on.intake.running["in"].port.stages.flush()
        await spring.context.emit(events(*range(30)), positions={"a": b"2"})
        await offered(on, 2, policy(inputs="inputs: {}\n"))
        await spring.until(lambda: spring.log[-1] == "close" and not WORKSHOP.open)

        assert await on.spool.queue.positions("rereading/in") == {"a": b"1"}
        assert len(await stored(on)) == 30


async def test_a_cut_that_fails_lets_the_inputs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        await on.intake.settle(on.rollout.plan)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(1))
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert await stored(on) == []
            on.intake.resume()

        assert numbers(await stored(on)) == [(1, 1, 1)]


# -- outputs -----------------------------------------------------------------------------------------------------------

TWO = "inputs: {in: {type: scripted}}\noutputs:\n  main: {type: scripted}\n  other: {type: scripted, to: other%s}\n"


async def test_the_processors_of_an_output_see_its_events_alone_and_change_without_a_barrier(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        marked = "version: 1\n" + TWO % ", processors: [{type: stage}, {type: scripted, mark: own}]"
        spring = await running(on, marked)
        for script in DESTINATIONS.values():
            script.send = script.hang
        await spring.context.emit(events(1, 2))
        lanes = set(on.delivery.lanes)
        await on.offer(2, "version: 1\n" + TWO % "")
        ack = await on.ack(2, "active")
        found = {lane.key.output: await on.spool.queue.window(lane.id, 0) for lane in on.delivery.lanes.values()}
        batches = {
            lane.key.output: await stored_batch(on.spool, lane.id, found[lane.key.output][0])
            for lane in on.delivery.lanes.values()
        }

        assert (ack.change, set(on.delivery.lanes)) == ("live", lanes)
        assert batches["main"].own() == [{"n": 1}, {"n": 2}]
        assert [event["count"] for event in batches["other"].own()] == [1, 2]
        assert batches["other"].shared["own"]
        assert set(batches["main"].id_texts()).isdisjoint(batches["other"].id_texts())


async def test_a_part_goes_to_the_outputs_that_its_stage_names(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(
            on, "version: 1\n" + TWO % "" + "processors: [{type: stage, to: [other, unknown]}, {type: scripted}]\n"
        )
        for script in DESTINATIONS.values():
            script.send = script.hang
        await spring.context.emit(events(1, 2), positions={"a": b"1"})

        assert await stored(on, "main") == []
        assert [event["n"] for event in await stored(on, "other")] == [1, 2]
        assert on.spool.figures.total().events == 2


async def test_what_is_for_no_output_is_filtered(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors: [{type: stage, to: []}]\n"))
        await spring.context.emit(events(1, 2), positions={"a": b"1"})

        assert on.intake.inputs()["in"]["filtered"] == 2
        assert await on.spool.queue.positions("scripted/in") == {"a": b"1"}


async def test_a_stage_may_make_a_batch_of_any_size(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more="processors: [{type: stage, holds: 0}]\n"))
        stuck()
        await spring.context.emit(Batch.documents([b'{"n":1}'] * 40_000))

        assert len(await stored(on)) == 40_000


async def test_an_emit_that_cannot_be_leaves_no_trace_in_a_stage(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=COUNTING))
        stuck()
        with pytest.raises(PluginFault):
            await spring.context.emit(Batch.documents([b"{\n}"]))
        with pytest.raises(Backpressure, match="cannot be awaited"):
            await spring.context.emit(events(1), awaited=["k"])
        await spring.context.emit(events(2))

        assert numbers(await stored(on)) == [(1, 2, 1)]


async def test_an_emit_goes_behind_what_is_held_though_its_stage_is_taken_away(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, policy(more=HOLDING))
        stuck()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spring.context.emit, events(1))
            await held(on)
            nursery.start_soon(offered, on, 2, policy())
            await spring.context.emit(events(2))

        assert sorted(event["n"] for event in await plain(on)) == [1, 2]


async def plain(on: Theatre) -> list[dict[str, Any]]:
    """All events on the lanes, whether a stage has counted them or not."""
    found: list[dict[str, Any]] = []
    for lane in on.delivery.lanes.values():
        entries = [entry for entry in await on.spool.queue.window(lane.id, 0, 1000) if not entry.is_barrier]
        found += [event for entry in entries for event in (await stored_batch(on.spool, lane.id, entry)).own()]
    return found
