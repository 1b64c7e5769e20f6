"""Orders end drains that cannot end, on real lanes, at any moment of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Answers, Batch, Held, Later, Outcome
from shipper.revisions.orders import NothingToOrder, Orders, StoreFull
from shipper.sdk.credentials import Credential
from shipper.spool import credentials, doubt
from shipper.spool.dead_letters import Limits
from shipper.spool.drain_orders import Name, Order, Step
from shipper.spool.forward import Ended, NotForwarded
from shipper.spool.limits import SpoolLimits
from shipper.spool.revisions import LaneRow
from shipper.spool.schema import BARRIER
from shipper.values import Counts, Revision
from tests.fakes import (
    DESTINATIONS,
    PATIENCE,
    SPRINGS,
    Bench,
    Destination,
    Send,
    Theatre,
    active_again,
    bench,
    events,
    poke,
    policy,
    theatre,
)

COUNT = 40


async def stuck_under(on: Theatre, *credentials: str, more: str = "") -> None:
    """Revisions 1, 2, … each with a credential; the events of all but the last are held."""
    script = DESTINATIONS["main"]
    script.send = script.raising(Held("401"))
    for number, credential in enumerate(credentials, 1):
        await on.offer(number, policy(credential=credential, more=more), credential)
        await on.ack(number, "active")
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        if number < len(credentials):
            for n in range(COUNT):
                await SPRINGS["in"].context.emit(events(1000 * number + n))


async def works_with(*credentials: str) -> None:
    """From now on the destination takes these credentials only."""
    script = DESTINATIONS["main"]

    async def send(batch):  # type: ignore[no-untyped-def]
        await trio.lowlevel.checkpoint()
        last = next(line for line in reversed(script.log) if line.startswith("open"))
        if last.removeprefix("open ") not in credentials:
            raise Held("401")
        return script.answer(batch, {})

    script.send = send


@pytest.mark.parametrize("name", ["drop", "dead_letter"])
async def test_an_ended_drain_is_drained_and_counted(tmp_path: Path, name: str) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        with trio.fail_after(PATIENCE):
            await on.orders.end(name, Revision(0, 1), "main")  # type: ignore[arg-type]
        ack = await on.ack(2, "drained")

        counts = Counts(accepted=COUNT, **{"dropped" if name == "drop" else name: COUNT})
        assert ack.ledger == counts
        assert ack.credentials is not None
        assert ack.credentials.released == ["k1"]
        assert (await on.spool.letters.figures()).events == (0 if name == "drop" else COUNT)
        assert on.delivery.counters()["main"]["dropped" if name == "drop" else name] == COUNT


async def test_what_an_order_finds_damaged_is_counted_as_that(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await on.spool.store.do(lambda db: db.execute("UPDATE batch SET body = zeroblob(80)"))
        with trio.fail_after(PATIENCE):
            await on.orders.end("dead_letter", Revision(0, 1), "main")
        counters = on.delivery.counters()["main"]

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, damaged=COUNT)
        assert (counters["damaged"], counters.get("dead_letter", 0)) == (COUNT, 0)


def small_store(size: str, when_full: str) -> str:
    return f"dead_letters: {{max_bytes: {size}, when_full: {when_full}}}\n"


async def test_an_order_that_fills_the_dead_letter_store_fails_and_its_drain_stays_open(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2", more=small_store("1KiB", "hold"))
        with trio.fail_after(PATIENCE), pytest.raises(StoreFull, match=r"raise dead_letters\.max_bytes"):
            await on.orders.end("dead_letter", Revision(0, 1), "main")
        fitted = (await on.spool.letters.figures()).events

        assert 0 < fitted < COUNT
        assert on.spool.figures.total().events == COUNT - fitted
        assert "2 drained" not in on.lines()
        await on.offer(3, policy(credential="k2"), "k2")
        await on.ack(3, "active")
        await on.orders.end("dead_letter", Revision(0, 1), "main")
        assert (await on.ack(3, "drained")).ledger == Counts(accepted=COUNT, dead_letter=COUNT)
        assert (await on.spool.letters.figures()).events == COUNT


async def test_an_order_that_a_crash_interrupted_may_find_the_store_full(tmp_path: Path) -> None:
    limits = Limits(1024, "hold")
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        lasts = {lane: last.seq for lane, last in (await on.orders._barriers()).items()}
        await on.spool.drains.place(Order("dead_letter", *lasts.popitem()))
    async with bench(tmp_path) as on:
        on.spool.limits = SpoolLimits(limits)
        orders = Orders(drains=on.spool.drains, delivery=on.delivery, keyring=on.keyring, settled=lambda: None)
        await orders.resume()

        assert 0 < (await on.spool.letters.figures()).events < COUNT
        assert await on.spool.drains.standing() == []


async def test_letters_that_give_way_to_an_order_are_counted_for_its_output(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2", more=small_store("1KiB", "drop_oldest"))
        await on.orders.end("dead_letter", Revision(0, 1), "main")
        ack = await on.ack(2, "drained")
        letters = (await on.spool.letters.figures()).events

        assert ack.ledger == Counts(accepted=COUNT, dead_letter=COUNT)
        assert on.delivery.counters()["main"]["letters_dropped"] == COUNT - letters > 0


async def test_an_order_touches_only_its_revision_and_output(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2", "k3")
        await on.orders.end("drop", Revision(0, 1), None)
        await on.ack(2, "drained")

        assert "3 drained" not in on.lines()
        assert on.spool.figures.total().events == COUNT


async def test_an_order_that_names_nothing_lists_what_there_is(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")

        with pytest.raises(NothingToOrder, match="revision 1 of output main"):
            await on.orders.end("drop", Revision(0, 7), None)
        with pytest.raises(NothingToOrder, match="revision 1 of output main"):
            await on.orders.end("drop", Revision(0, 1), "other")
        with pytest.raises(NothingToOrder, match="k1"):
            await on.orders.rebind("k9", "k2")
        with pytest.raises(NothingToOrder, match="not held"):
            await on.orders.rebind("k1", "k9")
        on.keyring.keep({"k9": Credential.parse({"bearer_token": "of-another-shape"})})
        with pytest.raises(NothingToOrder, match="output main takes no credential of this shape in place of `k1`"):
            await on.orders.rebind("k1", "k9")


async def test_what_waits_is_delivered_with_another_credential_and_the_lost_one_is_released(tmp_path: Path) -> None:
    """The target is the lane that is active, in a session, and has passed the places of what is moved to it."""
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await works_with("k2")
        await SPRINGS["in"].context.emit(events(1))
        script = DESTINATIONS["main"]
        await script.until(lambda: 1 in script.received)
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k2")
        ack = await on.ack(2, "drained")

        assert sorted(script.received) == [1, *range(1000, 1000 + COUNT)]
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert "k1" not in on.rollout.in_use


async def test_a_rebind_to_a_third_credential_opens_a_lane_that_goes_when_it_is_empty(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await works_with("k3")
        await on.offer(3, policy(credential="k2", more="log_level: warning\n"), "k2")
        await on.ack(3, "active")
        await _offered(on, "k3")
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k3")
        ack = await on.ack(3, "drained")

        assert sorted(DESTINATIONS["main"].received) == list(range(1000, 1000 + COUNT))
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert [lane.key.credentials for lane in on.delivery.lanes.values()] == [("k2",)]


def _secret(id: str):  # type: ignore[no-untyped-def]
    from tests.fakes import secret

    return secret(id)


async def _offered(on: Theatre, id: str) -> None:
    """A credential that a revision has brought, and that is held."""
    await trio.testing.wait_all_tasks_blocked()
    await on.rollout.advance()  # what is under way after the cut would release it, since no revision names it
    await on.spool.store.do(lambda db: credentials.offer(db, {id: b"mark"}))
    on.keyring.keep({id: _secret(id)})


@pytest.mark.parametrize("state", ["released", "listed", "reported"])
async def test_nothing_is_bound_to_a_credential_that_was_released_before_the_commit(tmp_path: Path, state: str) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await _offered(on, "k3")
        await on.spool.store.do(lambda db: db.execute("UPDATE credential SET state = ? WHERE id = 'k3'", (state,)))

        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match="`k3` was released meanwhile"):
            await on.orders.rebind("k1", "k3")
        assert await on.spool.drains.standing() == []
        assert ("k3",) not in {row.key.credentials for row in await on.spool.revisions.lanes()}


async def test_a_rebind_to_itself_is_refused(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")

        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match="another credential"):
            await on.orders.rebind("k1", "k1")
        assert await on.spool.drains.standing() == []


async def test_a_rebind_of_a_lane_that_ends_in_that_moment_has_nothing_left_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await _offered(on, "k3")
        placed = on.spool.drains.place_rebind

        async def place(lane: int, upto: int, old: str, new: str) -> tuple[Order, LaneRow]:
            DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
            poke(on.delivery)
            await on.wait_gone("k1")
            return await placed(lane, upto, old, new)

        monkeypatch.setattr(on.spool.drains, "place_rebind", place)
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k3")

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert await on.spool.drains.standing() == []


async def test_a_forward_of_a_lane_that_ends_in_that_moment_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")

        async def place(*arguments: Any, **options: Any) -> Order:
            raise Ended("its drain has ended meanwhile")

        async def refuse(*arguments: Any, **options: Any) -> Order:
            raise NotForwarded("its output is gone")

        monkeypatch.setattr(on.spool.drains, "place_forward", place)
        with trio.fail_after(PATIENCE):
            assert await on.orders.forward(Revision(0, 1), "main") == (0, set())
        monkeypatch.setattr(on.spool.drains, "place_forward", refuse)
        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match="its output is gone"):
            await on.orders.forward(Revision(0, 1), "main")


async def test_lanes_that_are_poked_while_a_rebind_runs_settle_no_barrier_too_early(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        await works_with("k3")
        await _offered(on, "k3")
        step = on.spool.drains.step
        early: list[str] = []

        async def poking(order):  # type: ignore[no-untyped-def]
            poke(on.delivery)
            await trio.testing.wait_all_tasks_blocked(0.02)
            early.extend(line for line in on.lines() if line == "2 drained")
            return await step(order)

        on.spool.drains.step = poking  # type: ignore[method-assign]
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k3")
        ack = await on.ack(2, "drained")

        assert early == []
        assert sorted(DESTINATIONS["main"].received) == list(range(1000, 1000 + COUNT))
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_rebind_goes_on_after_a_crash_between_its_steps(tmp_path: Path, steps: int) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        lane = next(lane for lane in on.delivery.lanes.values() if not lane.active)
        (upto,) = await on.spool.store.read(
            lambda db: db.execute(
                "SELECT max(seq) FROM todo WHERE lane = ? AND kind = ?", (lane.id, BARRIER)
            ).fetchone()
        )
        await _offered(on, "k3")
        async with lane.suspended():
            order, _ = await on.spool.drains.place_rebind(lane.id, upto, "k1", "k3")
            for _ in range(steps):
                assert not (await on.spool.drains.step(order)).done
    async with theatre(tmp_path) as on:
        await works_with("k3")
        on.keyring.keep({id: _secret(id) for id in ("k1", "k2", "k3")})
        poke(on.delivery)
        ack = await on.ack(2, "drained")

        assert sorted(DESTINATIONS["main"].received) == list(range(1000, 1000 + COUNT))
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert await on.spool.drains.standing() == []


async def test_an_order_ends_a_request_that_is_under_way_and_counts_what_was_answered(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        script = DESTINATIONS["main"]
        script.send = script.hang
        poke(on.delivery)
        await script.until(lambda: script.sending > 0)
        with trio.fail_after(PATIENCE):
            await on.orders.end("drop", Revision(0, 1), None)
        ack = await on.ack(2, "drained")

        assert script.sending == 0
        assert ack.ledger == Counts(accepted=COUNT, dropped=COUNT)


async def test_a_rebind_answers_though_the_lane_becomes_active_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        step = on.spool.drains.step

        async def cutting(order):  # type: ignore[no-untyped-def]
            on.spool.drains.step = step  # type: ignore[method-assign]
            await on.offer(3, policy(credential="k1"), "k1")
            await on.ack(3, "active")
            return await step(order)

        on.spool.drains.step = cutting  # type: ignore[method-assign]
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k2")
        await works_with("k1", "k2")
        poke(on.delivery)
        await on.ack(3, "drained")


async def test_a_lane_that_a_revision_opens_while_an_order_runs_looks_at_what_the_order_left(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(2)
        main = on.active["main"].id
        await on.activate(2, other=None)
    async with bench(tmp_path) as on:
        await on.delivery.restore(
            [row for row in await on.spool.revisions.lanes() if row.id != main]
        )  # its plugin was gone
        orders = Orders(drains=on.spool.drains, delivery=on.delivery, keyring=on.keyring, settled=lambda: None)
        step = on.spool.drains.step

        async def opening(order: Order) -> Step:
            if main not in on.delivery.lanes:
                await on.activate(3, main="missing-1")
                await trio.testing.wait_all_tasks_blocked(0.05)
            return await step(order)

        on.spool.drains.step = opening  # type: ignore[method-assign]
        with trio.fail_after(PATIENCE):
            await orders._place(Order("drop", main, 10**9))
            await DESTINATIONS["main"].until(lambda: on.delivery.lanes[main].problem is None)

        assert (
            await on.spool.store.read(lambda db: db.execute("SELECT * FROM barrier WHERE lane = ?", (main,)).fetchall())
            == []
        )


async def test_an_order_about_what_entered_above_the_barrier_names_nothing(tmp_path: Path) -> None:
    """k1, k2 and k1 again: what entered under the third is on the same lane as what entered under the first."""
    async with theatre(tmp_path) as on:
        await active_again(on)

        with pytest.raises(NothingToOrder, match=r"draining: revision \S*1 of output main$"):
            await on.orders.end("drop", Revision(0, 3), None)


@pytest.mark.parametrize("credential", ["k1", "k2"])
async def test_nothing_is_bound_to_another_credential_from_or_to_what_is_in_doubt(
    tmp_path: Path, credential: str
) -> None:
    """Its barrier would wait there, and the order with it."""
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        lane = next(lane for lane in on.delivery.lanes.values() if credential in lane.key.credentials)
        await on.spool.store.do(lambda db: doubt.hold(db, lane.id, 10**6))

        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match="output main is damaged"):
            await on.orders.rebind("k1", "k2")
        assert await on.spool.drains.standing() == []


async def test_one_of_several_credentials_is_replaced_wherever_the_settings_have_it(tmp_path: Path) -> None:
    def nested(sasl: str, client: str, more: str) -> str:
        output = f"{{type: nested, sasl: {{secret: {sasl}}}, tls: [{{kind: own, client: {client}}}]{more}}}"
        return f"version: 1\ninputs:\n  in: {{type: scripted}}\noutputs:\n  main: {output}\n"

    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"))
        await on.offer(1, nested("k1", "c1", ""), "k1", "c1")
        await on.ack(1, "active")
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        await SPRINGS["in"].context.emit(events(1))
        await on.offer(2, nested("k2", "c1", ", to: other"), "k2", "c1")
        await on.ack(2, "active")
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k2")
        (row,) = [row for row in await on.spool.revisions.lanes() if not row.active]

        assert row.key.credentials == ("c1", "k2")
        assert row.settings is not None
        assert row.settings.credentials == ("c1", "k2")
        assert row.settings.values["sasl"] == {"secret": "k2"}
        script.send = script.deliver
        poke(on.delivery)
        ack = await on.ack(2, "drained")

        assert ack.credentials is not None
        assert (ack.credentials.in_use, ack.credentials.released) == (["c1", "k2"], ["k1"])
        assert script.received == [1]
        assert "open c1+k2" in script.log


# -- one batch ---------------------------------------------------------------------------------------------------------


def orders_of(on: Bench) -> Orders:
    return Orders(drains=on.spool.drains, delivery=on.delivery, keyring=on.keyring, settled=lambda: None)


@asynccontextmanager
async def blocked(path: Path, **feeding: object) -> AsyncIterator[tuple[Bench, Destination]]:
    """An active lane with six batches of two events; its output fails, as a bug makes it fail, on the fifth event."""
    async with bench(path) as on:
        script = DESTINATIONS["main"]
        script.feeding |= {"ordered": True, "events": 2, **feeding}
        script.send = failing_on(script, 5)
        await on.activate(1, main=None)
        await on.enter(2, batches=6)
        await script.until(lambda: script.asked.count(5) > 2)
        yield on, script


def failing_on(script: Destination, number: int) -> Send:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        if number in [event["n"] for event in batch.own()]:
            raise Later("not this one")
        return script.answer(batch, {})

    return send


@pytest.mark.parametrize("name", ["drop", "dead_letter"])
async def test_a_batch_that_fails_for_ever_at_the_front_of_an_active_lane_is_ended_and_the_rest_is_delivered(
    tmp_path: Path, name: Name
) -> None:
    async with blocked(tmp_path) as (on, script):
        with trio.fail_after(PATIENCE):
            ended = await orders_of(on).end_batch(name, "main", on.seqs[2])
        await on.empty()

        assert ended == 2
        assert script.received == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
        assert (await on.spool.letters.figures()).events == (0 if name == "drop" else 2)
        assert on.active["main"].active


async def test_an_order_for_a_batch_cuts_its_request_short_and_counts_what_was_answered(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        answered = script.refusing(1, outcome=Outcome.LATER)

        async def send(batch: Batch) -> Answers:
            return await (answered(batch) if 0 in [event["n"] for event in batch.own()] else script.hang(batch))

        script.send = send
        await on.activate(1, main=None)
        await on.enter(3)
        await script.until(lambda: script.sending == 1 and 1 in script.asked[3:])
        with trio.fail_after(PATIENCE):
            ended = await orders_of(on).end_batch("drop", "main", on.seqs[0])

        assert (ended, script.received, script.sending) == (1, [0, 2], 0)
        assert on.spool.figures.total().events == 0


async def test_a_batch_that_is_delivered_before_its_order_runs_leaves_nothing_to_do(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (on, script):
        place = on.spool.drains.place

        async def placing(order: Order) -> Order:
            script.send = script.deliver
            poke(on.delivery)
            await on.empty()
            return await place(order)

        on.spool.drains.place = placing  # type: ignore[method-assign]
        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match=r"waiting first: nothing$"):
            await orders_of(on).end_batch("drop", "main", on.seqs[2])

        assert script.received == list(range(12))
        assert await on.spool.drains.standing() == []


async def test_a_batch_that_is_not_there_is_named_with_those_that_wait_first(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (on, _):
        first = on.seqs[2]
        text = rf"batch {first} of output other; waiting first: batch {first} of output main$"
        with pytest.raises(NothingToOrder, match=text):
            await orders_of(on).end_batch("drop", "other", first)
        assert on.spool.figures.total().events == 8


async def test_an_order_for_a_batch_that_a_crash_interrupted_is_carried_on(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (on, _):
        batch = on.seqs[2]
        await on.spool.drains.place(Order("dead_letter", on.active["main"].id, batch, first=batch))
    async with bench(tmp_path) as on:
        await on.delivery.restore([])
        await orders_of(on).resume()

        assert (await on.spool.letters.figures()).events == 2
        assert on.spool.figures.total().events == 6
        assert await on.spool.drains.standing() == []


async def test_of_a_batch_for_which_the_dead_letter_store_is_full_the_rest_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        on.spool.limits = SpoolLimits(Limits(1024, "hold"))
        await on.enter(COUNT)
        with trio.fail_after(PATIENCE), pytest.raises(StoreFull):
            await orders_of(on).end_batch("dead_letter", "main", on.seqs[0])
        fitted = (await on.spool.letters.figures()).events

        assert 0 < fitted < COUNT
        assert on.spool.figures.total().events == COUNT - fitted
        assert await orders_of(on).end_batch("drop", "main", on.seqs[0]) == COUNT - fitted


async def test_a_batch_below_a_barrier_is_counted_there_and_the_rest_of_the_drain_is_delivered(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck_under(on, "k1", "k2")
        (lane,) = [lane for lane in on.delivery.lanes.values() if not lane.active]
        first, *_ = await on.spool.queue.window(lane.id, 0)
        with trio.fail_after(PATIENCE):
            assert await on.orders.end_batch("drop", "main", first.seq) == 1
        await works_with("k1", "k2")
        poke(on.delivery)
        ack = await on.ack(2, "drained")

        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT - 1, dropped=1)
