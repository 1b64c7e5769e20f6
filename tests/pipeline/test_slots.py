"""Retired lanes drain a few at a time; those that make no progress are in nobody's way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio

from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.memory.slots import DRAINING_AT_ONCE, Slot, Slots
from shipper.plugin import Answers, Feeding
from shipper.sdk.event import Batch
from tests.fakes import DESTINATIONS, PATIENCE, Bench, Destination, ScriptedOutput, bench, poke, secret


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.delivery.WATCH_SECONDS", 0.1)
    monkeypatch.setattr(ScriptedOutput, "feeding", each_batch_a_request)


def each_batch_a_request(output: ScriptedOutput) -> Feeding:
    return Feeding(events=1, in_flight=output.workers, backoff=(0.01, 0.02))


def taken(on: Bench) -> int:
    slots = on.delivery.slots
    return slots.draining.borrowed_tokens + slots.asking.borrowed_tokens


def patiently(patch: pytest.MonkeyPatch) -> None:
    """No lane is silent for too long."""
    patch.setattr("shipper.pipeline.delivery.lane.SILENT_SECONDS", PATIENCE)


async def held_back(on: Bench, count: int, *, batches: int = 1) -> Destination:
    """So many lanes with events, retired before they could ask; `k0` is the newest of them."""
    for number in range(count):
        await on.activate(number + 1, main=f"missing-{count - 1 - number}")
        await on.enter(batches=batches)
    await on.activate(count + 1, main="last")
    return DESTINATIONS["main"]


def let_go(on: Bench, count: int) -> None:
    on.keyring.keep({f"missing-{number}": secret(f"missing-{number}") for number in range(count)})
    poke(on.delivery)


def asked(script: Destination) -> set[str]:
    return {line.split()[1] for line in script.log if line.startswith("open missing")}


# -- how many ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 8])
async def test_so_many_lanes_ask_at_once_whether_their_destination_answers(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    patiently(monkeypatch)
    monkeypatch.setattr("shipper.pipeline.memory.slots.ASKING_AT_ONCE", limit)
    async with bench(tmp_path) as on:
        script = await held_back(on, 12)
        script.send = script.hang
        let_go(on, 12)
        await script.until(lambda: script.sending == limit)
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert (script.sending, script.open_senders) == (limit, limit)


async def test_eight_lanes_that_answer_drain_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patiently(monkeypatch)
    async with bench(tmp_path) as on:
        script = await held_back(on, 12, batches=2)

        async def first_only(batch: Batch) -> Answers:
            is_second = batch.own()[0]["n"] % 2
            return await (script.hang(batch) if is_second else script.deliver(batch))

        script.send = first_only
        let_go(on, 12)
        await script.until(lambda: script.sending == DRAINING_AT_ONCE and len(script.received) == 12)
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert script.sending == DRAINING_AT_ONCE
        assert len(script.received) == 12


# -- given back --------------------------------------------------------------------------------------------------------


async def gated(on: Bench) -> tuple[Destination, trio.Event]:
    """The active lane has a request under way, which is answered when the event is set."""
    script, gate = DESTINATIONS["main"], trio.Event()

    async def slowly(batch: Batch) -> Answers:
        await gate.wait()
        return script.answer(batch, {})

    script.send = slowly
    await on.enter()
    await script.until(lambda: script.sending == 1)
    return script, gate


async def test_a_lane_that_retires_twice_in_one_session_needs_one_slot(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        script, gate = await gated(on)
        for number, credential in enumerate(("k2", "k1", "k2"), 2):
            await on.activate(number, main=credential)
        assert taken(on) == 1
        gate.set()
        await on.empty()

        assert script.log.count("open k1") == 1
        assert taken(on) == 0
        assert (await on.spool.revisions.advance(None, ()))[0].revision == 4  # type: ignore[union-attr]


async def test_a_lane_that_becomes_active_again_in_a_session_gives_its_slot_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        _, gate = await gated(on)
        await on.activate(2, main="k2")
        await on.activate(3, main="k1")

        assert taken(on) == 0
        gate.set()


async def test_outputs_that_were_rolled_back_do_not_keep_another_from_draining(tmp_path: Path) -> None:
    outputs = [f"o{n}" for n in range(DRAINING_AT_ONCE)]
    async with bench(tmp_path) as on:
        first = dict.fromkeys(outputs, "k1")
        await on.activate(1, main="z1", **first)  # type: ignore[arg-type]
        for name in outputs:
            DESTINATIONS[name].send = DESTINATIONS[name].hang
        await on.enter()
        for name in outputs:
            await DESTINATIONS[name].until(lambda name=name: DESTINATIONS[name].sending == 1)  # type: ignore[misc]
        await on.activate(2, main="z1", **dict.fromkeys(outputs, "k2"))  # type: ignore[arg-type]
        await on.activate(3, main="z1", **first)  # type: ignore[arg-type]
        script, gate = await gated(on)
        await on.activate(4, main="z2", **first)  # type: ignore[arg-type]
        gate.set()

        await script.until(lambda: "close z1" in script.log)
        await script.until(lambda: all(lane.key.credentials != ("z1",) for lane in on.delivery.lanes.values()))


async def test_a_held_event_gives_back_the_slot_of_its_lane(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        count = 12
        for number in range(1, count + 1):
            await on.activate(number, main=f"k{number}")
            DESTINATIONS["main"].send = DESTINATIONS["main"].refusing(*range(0, 2 * count, 2))
            await on.enter(2)
        await on.activate(count + 1, main="last")
        script = DESTINATIONS["main"]

        await script.until(lambda: on.spool.figures.total().events == count)
        assert sorted(script.received) == list(range(1, 2 * count, 2))


# -- silent destinations -----------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.delivery.lane.SILENT_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
async def test_lanes_without_answers_let_the_others_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.memory.slots.ASKING_AT_ONCE", 1)
    async with bench(tmp_path) as on:
        script = await held_back(on, 12)
        script.send = script.hang
        let_go(on, 12)

        await script.until(lambda: script.sending == 12)


@pytest.mark.usefixtures("impatient")
async def test_a_lane_that_falls_silent_while_it_drains_lets_another_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.memory.slots.DRAINING_AT_ONCE", 1)
    async with bench(tmp_path) as on:
        script = await held_back(on, 2, batches=3)

        async def first_only(batch: Batch) -> Answers:
            (number,) = (event["n"] for event in batch.own())
            return await script.deliver(batch) if number in (0, 3) else await script.hang(batch)

        script.send = first_only
        let_go(on, 2)
        await script.until(lambda: {1, 4} <= set(script.asked))


@pytest.mark.usefixtures("impatient")
async def test_answers_that_come_late_count_and_more_is_sent_in_a_slot_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shipper.pipeline.memory.slots.DRAINING_AT_ONCE", 1)
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 1}}, main="k1")
        script, gate = await gated(on)
        await on.enter(batches=3)
        await on.activate(2, main="k2")
        await script.until(lambda: taken(on) == 0)
        other = Slot(on.delivery.slots, is_needed=True)
        await other.take_to_drain()
        gate.set()
        await script.until(lambda: len(script.received) >= 1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(script.received) <= 2  # the second may have been handed out while there was a slot

        other.give_back()
        await on.empty()
        assert len(script.received) == 4


# -- the queue ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, pytest.MonkeyPatch]:
    patiently(monkeypatch)
    monkeypatch.setattr("shipper.pipeline.memory.slots.ASKING_AT_ONCE", 8)
    return tmp_path, monkeypatch


async def twelve_that_hang(on: Bench) -> Destination:
    script = await held_back(on, 12)
    script.send = script.hang
    let_go(on, 12)
    await script.until(lambda: script.sending == 8)
    await trio.testing.wait_all_tasks_blocked(0.01)
    return script


def lane_that_waits(on: Bench, script: Destination) -> Lane:
    lanes = (lane for lane in on.delivery.lanes.values() if not lane.active)
    return next(lane for lane in lanes if lane.key.credentials[0] not in asked(script))


async def test_a_lane_that_waits_for_a_slot_obeys_an_order_at_once(queued: tuple[Path, pytest.MonkeyPatch]) -> None:
    async with bench(queued[0]) as on:
        lane = lane_that_waits(on, await twelve_that_hang(on))
        with trio.fail_after(PATIENCE):
            async with lane.suspended():
                pass


async def test_a_lane_that_waits_for_a_slot_needs_none_once_it_is_active_again(
    queued: tuple[Path, pytest.MonkeyPatch],
) -> None:
    async with bench(queued[0]) as on:
        script = await twelve_that_hang(on)
        lane = lane_that_waits(on, script)
        await on.activate(14, main=lane.key.credentials[0])

        await script.until(lambda: f"open {lane.key.credentials[0]}" in script.log)


async def test_a_lane_that_waits_long_for_a_slot_says_so(queued: tuple[Path, pytest.MonkeyPatch]) -> None:
    queued[1].setattr("shipper.pipeline.delivery.shown.STALLED_SECONDS", 0.1)
    async with bench(queued[0]) as on:
        script = await twelve_that_hang(on)
        lane = lane_that_waits(on, script)

        await script.until(lambda: "others drain before it" in (lane.problem or ""))


async def test_a_lane_that_retires_while_all_drain_slots_are_taken_closes_its_connections(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, {"main": {"workers": 1}}, main="k1")
        script, gate = await gated(on)
        await on.enter(batches=3)
        others = [Slot(on.delivery.slots, is_needed=True) for _ in range(DRAINING_AT_ONCE)]
        for other in others:
            await other.take_to_drain()
        await on.activate(2, main="k2")
        gate.set()
        await script.until(lambda: "close k1" in script.log)
        assert len(script.received) < 4

        others[0].give_back()
        await on.empty()


# -- a slot alone ------------------------------------------------------------------------------------------------------


async def test_a_slot_that_is_granted_in_the_instant_in_which_it_is_not_needed_any_more_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shipper.pipeline.memory.slots.DRAINING_AT_ONCE", 1)
    slots = Slots()
    first, second = Slot(slots, is_needed=True), Slot(slots, is_needed=True)
    await first.take_to_drain()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.take_to_drain)
        await trio.testing.wait_all_tasks_blocked()
        first.give_back()
        second.is_needed = False
        second.give_back()
        second.leave_queue()

    assert slots.draining.borrowed_tokens == 0


async def test_who_waits_to_drain_keeps_no_slot_for_asking() -> None:
    slots = Slots()
    for _ in range(DRAINING_AT_ONCE):
        await Slot(slots, is_needed=True).take_to_drain()
    slot = Slot(slots, is_needed=True)
    await slot.take_to_ask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slot.take_to_drain)
        await trio.testing.wait_all_tasks_blocked()
        assert (slot.is_waited_for, slots.asking.borrowed_tokens) == (True, 0)
        nursery.cancel_scope.cancel()

    assert not slot.is_waited_for


async def test_a_slot_for_asking_becomes_one_for_draining() -> None:
    slots = Slots()
    slot = Slot(slots, is_needed=True)
    await slot.take_to_ask()
    assert (slots.asking.borrowed_tokens, slots.draining.borrowed_tokens) == (1, 0)

    assert slot.take_at_once()
    await slot.take_to_drain()
    assert (slots.asking.borrowed_tokens, slots.draining.borrowed_tokens) == (0, 1)
    slot.give_back()
    slot.give_back()
    assert slots.draining.borrowed_tokens == 0


async def test_a_new_slot_is_neither_taken_nor_waited_for() -> None:
    slot = Slot(Slots(), is_needed=True)

    slot.leave_queue()

    assert (slot.is_waited_for, slot.since) == (False, -math.inf)


async def test_a_lane_that_needs_no_slot_takes_none() -> None:
    slots = Slots()
    slot = Slot(slots, is_needed=False)

    await slot.take_to_drain()

    assert slot.take_at_once()
    assert slots.draining.borrowed_tokens == 0


async def test_a_lane_that_has_a_slot_for_asking_takes_no_second_one() -> None:
    slots = Slots()
    slot = Slot(slots, is_needed=True)
    for _ in range(2):
        await slot.take_to_ask()

    assert slots.asking.borrowed_tokens == 1
