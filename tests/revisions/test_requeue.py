"""The order to requeue dead letters, on real lanes, at any moment of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from shipper.plugin import Held, Outcome
from shipper.process import log
from shipper.revisions.orders import NothingToOrder
from shipper.revisions.requeue import EndedEarly, Requeued
from shipper.sdk.errors import Backpressure
from shipper.spool.figures import Figures
from shipper.spool.requeue import STEP, Requeue, Step, Wanted
from shipper.values import Counts
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Theatre, events, policy, theatre

COUNT = 50


async def refused(on: Theatre, count: int = COUNT, *, credential: str = "k1") -> None:
    """Revision 1, and a batch of events that the destination refused for ever; from now on it takes all."""
    await on.offer(1, policy(credential=credential), credential)
    await on.ack(1, "drained")
    await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
    script = DESTINATIONS["main"]
    script.send = script.refusing(*range(count), outcome=Outcome.REJECTED, reason="400 mapping")
    await SPRINGS["in"].context.emit(events(*range(count)))
    await script.until(lambda: on.spool.figures.total().events == 0)
    script.send = script.deliver


async def delivered(on: Theatre) -> list[int]:
    script = DESTINATIONS["main"]
    await script.until(lambda: on.spool.figures.total().events == 0)
    return sorted(script.received)


async def test_what_was_refused_is_delivered_once_by_a_destination_that_takes_it_now(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        with trio.fail_after(PATIENCE):
            assert await on.requeuing.requeue(Wanted()) == Requeued(COUNT, 0)

        assert await delivered(on) == list(range(COUNT))
        assert (await on.spool.letters.figures()).events == 0
        assert on.spool.figures == Figures.none()


async def test_the_next_barrier_counts_what_was_requeued_and_its_sum_is_true(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await on.requeuing.requeue(Wanted())
        assert on.spool.figures.total().events == COUNT
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "active")
        script.send = script.deliver
        for lane in on.delivery.lanes.values():
            lane.poke()
        ack = await on.ack(2, "drained")

        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert await delivered(on) == list(range(COUNT))


async def test_what_is_refused_again_is_a_dead_letter_again_and_the_order_ends(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        script = DESTINATIONS["main"]
        script.send = script.refusing(*range(COUNT), outcome=Outcome.REJECTED, reason="400 again")
        with trio.fail_after(PATIENCE):
            done = await on.requeuing.requeue(Wanted())
        assert await delivered(on) == []
        letters = await on.spool.letters.page(0, 1000)

        assert done.requeued == COUNT
        assert [letter["reason"] for letter in letters] == ["400 again"] * COUNT


async def test_letters_go_where_their_output_goes_now(tmp_path: Path) -> None:
    """To the lane of the new credential, though the one that refused them is gone."""
    async with theatre(tmp_path) as on:
        await refused(on)
        await on.offer(2, policy(credential="k2"), "k2")
        await on.ack(2, "drained")
        await on.requeuing.requeue(Wanted())

        assert await delivered(on) == list(range(COUNT))
        assert [line for line in DESTINATIONS["main"].log if line.startswith("open")][-1] == "open k2"


async def test_letters_of_an_output_that_is_gone_are_named_with_the_outputs_that_there_are(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        await on.offer(2, "version: 1\noutputs:\n  other: {type: scripted, to: other}\n")
        await on.ack(2, "drained")
        with pytest.raises(NothingToOrder, match=r"50 of output main, which is not in .* its outputs are: other"):
            await on.requeuing.requeue(Wanted())

        assert (await on.spool.letters.figures()).events == COUNT
        assert await on.spool.letters.standing() == []


async def test_a_filter_that_fits_nothing_lists_what_there_is(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        with pytest.raises(NothingToOrder, match="there are none"):
            await on.requeuing.requeue(Wanted())
        await refused(on)
        with pytest.raises(NothingToOrder, match="nothing was requeued; there are 50 of output main"):
            await on.requeuing.requeue(Wanted("other"))


async def test_it_stops_where_the_queue_is_full_and_says_how_many_are_left(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        on.intake.entrance.max_bytes = 500
        with trio.fail_after(PATIENCE), pytest.raises(EndedEarly) as ended:
            await on.requeuing.requeue(Wanted())
        waits = on.spool.figures.total()
        left = (await on.spool.letters.figures()).events

        assert 0 < waits.events < COUNT
        assert waits.bytes <= 500
        assert waits.events + left == COUNT
        assert "queue.max_bytes" in str(ended.value)
        assert f"{waits.events} dead letters were requeued, {left} are left" in str(ended.value)
        assert await on.spool.letters.standing() == []


async def test_inputs_take_for_used_what_a_step_may_fill(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        on.intake.entrance.max_bytes = 1000
        with (
            on.intake.entrance.room(800, 1 << 30) as first,
            on.intake.entrance.room(800, 1 << 30) as second,
            pytest.raises(Backpressure, match="the queue is full"),
        ):
            await SPRINGS["in"].context.emit(events(1), wait=False)
        await SPRINGS["in"].context.emit(events(1), wait=False)

        assert (first, second) == ((800, True), (200, False))


async def test_it_stops_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        monkeypatch.setattr(on.spool.store, "problem", "disk full: intake waits")
        with trio.fail_after(PATIENCE), pytest.raises(EndedEarly, match=r"disk full: intake waits; 0 .* 50 are left"):
            await on.requeuing.requeue(Wanted())

        assert await on.spool.letters.standing() == []


async def test_it_goes_on_after_a_crash_where_it_was(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on, STEP + COUNT)
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        order = await on.spool.letters.place(Requeue(Wanted(upto=STEP + COUNT), 1 << 30))
        await on.requeuing._step(order)
    DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
    told = trio.Event()
    with log.followed(lambda line: told.set() if b"entered the queue again" in line else None):
        async with theatre(tmp_path, keep=True) as on:
            await on.offer(1, policy(credential="k1"), "k1")
            await DESTINATIONS["main"].until(lambda: len(DESTINATIONS["main"].received) >= STEP + COUNT)

            assert await delivered(on) == list(range(STEP + COUNT))
            assert (await on.spool.letters.figures()).events == 0
            assert await on.spool.letters.standing() == []
            with trio.fail_after(PATIENCE):
                await told.wait()


async def test_an_order_that_goes_on_after_a_crash_keeps_to_the_limit_that_it_was_given_under(tmp_path: Path) -> None:
    """No policy has come again yet, so nobody else knows it."""
    async with theatre(tmp_path) as on:
        await refused(on)
        await on.spool.letters.place(Requeue(Wanted(upto=COUNT), 500))
    async with theatre(tmp_path, keep=True) as on:
        await DESTINATIONS["main"].until(lambda: on.spool.figures.total().events > 0)
        with trio.fail_after(PATIENCE):
            while await on.spool.letters.standing():  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.005)

        assert on.spool.figures.total().bytes <= 500
        assert (await on.spool.letters.figures()).events + on.spool.figures.total().events == COUNT


async def test_of_two_orders_for_the_same_letters_each_letter_enters_once(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        done: list[int] = []

        async def order() -> None:
            done.append((await on.requeuing.requeue(Wanted())).requeued)

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(order)
                nursery.start_soon(order)

        assert sorted(done) == [0, COUNT]
        assert await delivered(on) == list(range(COUNT))


async def test_letters_that_come_while_it_runs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused again at once would go round for ever."""
    async with theatre(tmp_path) as on:
        await refused(on)
        script = DESTINATIONS["main"]
        script.send = script.refusing(*range(COUNT), outcome=Outcome.REJECTED, reason="400 again")
        steps = []
        step = on.requeuing._step

        async def step_and_refuse(order: Requeue) -> Step:
            assert len(steps) < 3
            steps.append(await step(order))
            await script.until(lambda: on.spool.figures.total().events == 0)
            return steps[-1]

        monkeypatch.setattr(on.requeuing, "_step", step_and_refuse)
        with trio.fail_after(PATIENCE):
            done = await on.requeuing.requeue(Wanted())

        assert [each.requeued for each in steps] == [COUNT, 0]
        assert done.requeued == (await on.spool.letters.figures()).events == COUNT


async def test_it_stops_where_a_revision_took_the_output_away_meanwhile(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await refused(on)
        order = await on.spool.letters.place(Requeue(Wanted(upto=COUNT), 1 << 30))
        await on.offer(2, "version: 1\noutputs:\n  other: {type: scripted, to: other}\n")
        await on.ack(2, "drained")
        with pytest.raises(EndedEarly, match=r"its outputs are: other; 0 dead letters were requeued, 50 are left"):
            await on.requeuing._carry_out(order)

        assert await on.spool.letters.standing() == []


async def test_letters_wait_for_an_output_that_cannot_be_opened(tmp_path: Path) -> None:
    """Its plugin is gone: what is requeued is held like all that waits for it."""
    async with theatre(tmp_path) as on:
        await refused(on)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET settings = zeroblob(60)"))
    async with theatre(tmp_path, keep=True) as on:
        assert await on.requeuing.requeue(Wanted()) == Requeued(COUNT, 0)
        assert on.spool.figures.total().events == COUNT
