"""What waits for a wrong destination goes to the right one: by an order, and by itself where nobody ever answered."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from shipper.plugin import Answer, Answers, Held, Outcome
from shipper.protocol.messages import Ack
from shipper.revisions.orders import NothingToOrder, _hosts
from shipper.sdk.errors import Later, NotBegun, TooLarge
from shipper.sdk.event import Batch
from shipper.spool import doubt
from shipper.spool.drain_orders import Order, Step
from shipper.spool.forward import NotForwarded
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.revisions import LaneKey, LaneRow
from shipper.spool.store import StoreFailed
from shipper.values import Counts, Revision
from tests.fakes import (
    DESTINATIONS,
    PATIENCE,
    SPRINGS,
    Destination,
    Theatre,
    bench,
    events,
    poke,
    policy,
    secret,
    theatre,
)

COUNT = 40
FIRST = Revision(0, 1)


async def activate(on: Theatre, number: int, credential: str | None = "k1", **parts: Any) -> None:
    """A revision with one output, which tells of answers unless `type` says otherwise."""
    text = policy(credential=credential, **{"type": "telling", **parts})
    await on.offer(number, text, *([credential] if credential else []))
    await on.ack(number, "active")
    await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))


async def emit(first: int = 0, count: int = COUNT) -> None:
    for n in range(first, first + count):
        await SPRINGS["in"].context.emit(events(n))


async def wrong_at_first(on: Theatre, error: Exception | None = None, **parts: Any) -> None:
    """Revision 1 sends to `other`, where by default nobody answers; its events wait."""
    script = DESTINATIONS["other"]
    script.is_there = error is not None
    script.send = script.raising(error or Later("name not found"))
    await activate(on, 1, to="other", **parts)
    await emit()
    await script.until(lambda: bool(script.asked))


async def lanes_of(on: Theatre) -> list[tuple[str, str | None, int]]:
    """Where each open lane goes, with which credential, and how many events wait for it."""
    figures = on.spool.figures
    lanes = sorted(on.delivery.lanes.values(), key=lambda lane: lane.id)
    return [
        (lane.output.to, "".join(lane.key.credentials) or None, figures.of_lanes([lane.id]).events) for lane in lanes
    ]  # type: ignore[attr-defined]


async def delivered(on: Theatre, number: int) -> int:
    """How many events the acks up to `drained` of a revision count, all of them delivered."""
    await on.ack(number, "drained")
    ledgers = [message.ledger for message in on.said if isinstance(message, Ack) and message.ledger is not None]
    assert all(ledger == Counts(accepted=ledger.accepted, delivered=ledger.accepted) for ledger in ledgers)
    return sum(ledger.accepted for ledger in ledgers)


async def looked(on: Theatre) -> None:
    """All that goes without an order has gone."""
    with trio.fail_after(PATIENCE):
        for _ in range(2):
            await on.forwarding.look()


# -- by an order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credential", ["k1", "k2"])
async def test_what_waits_is_delivered_to_where_its_output_goes_now(tmp_path: Path, credential: str) -> None:
    """With the new credential, while the new lane is in a session that has long passed the places of what comes."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, credential)
        await emit(1000, 1)
        script = DESTINATIONS["main"]
        await script.until(lambda: 1000 in script.received)
        with trio.fail_after(PATIENCE):
            done = await on.orders.forward(FIRST, "main")
        ack = await on.ack(2, "drained")

        assert (done.events, done.credentials) == (COUNT, {"k1"})
        assert sorted(script.received) == [*range(COUNT), 1000]
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert on.rollout.in_use == [credential]
        assert {line for line in script.log if line.startswith("open")} == {f"open {credential}"}
        assert [lane.key.credentials for lane in on.delivery.lanes.values()] == [(credential,)]


async def test_a_forward_of_a_lane_that_ends_in_that_moment_has_nothing_left_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2")
        obstacle = on.orders._obstacle

        async def answered_meanwhile(lane: int) -> NotForwarded | None:
            problem = await obstacle(lane)
            DESTINATIONS["other"].send = DESTINATIONS["other"].deliver
            poke(on.delivery)
            await on.wait_gone("k1")
            return problem

        monkeypatch.setattr(on.orders, "_obstacle", answered_meanwhile)
        with trio.fail_after(PATIENCE):
            done = await on.orders.forward(FIRST, "main")

        assert (done.events, done.credentials) == (0, set())
        assert sorted(DESTINATIONS["other"].received) == list(range(COUNT))


async def test_what_waits_goes_to_an_output_of_another_type(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, None, type="scripted")
        await on.orders.forward(FIRST, "main")

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)


async def test_drained_waits_until_what_was_forwarded_has_its_answer(tmp_path: Path) -> None:
    """Its barriers go with it: the old credential is free, and nothing is drained."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Later("503"))
        await activate(on, 2, "k2")
        await on.orders.forward(FIRST, "main")

        assert await lanes_of(on) == [("main", "k2", COUNT)]
        assert "2 drained" not in on.lines()
        assert await on.rollout.release_now("k1") == ["k1"]
        assert [at for at, _ in on.spool.figures.pairs(on.delivery.lanes)] == [FIRST]
        await emit(1000, 1)
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)


async def test_a_lane_that_is_retired_after_it_took_a_drain_drains_it_in_order(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await activate(on, 2, "k2")
        await emit(1000, 3)
        await on.orders.forward(FIRST, "main")
        await activate(on, 3, "k3")
        await emit(2000, 2)
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        poke(on.delivery)

        assert await delivered(on, 3) == COUNT + 3
        main = DESTINATIONS["main"]
        await main.until(lambda: len(main.received) == COUNT + 5)


async def test_a_cut_while_an_order_moves_events_counts_them_all(tmp_path: Path) -> None:
    """What comes after the new barrier was put is counted by it, and goes on from there by itself or by an order."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await activate(on, 2, "k2")
        step = on.spool.drains.step

        async def cutting(order: Order) -> Step:
            on.spool.drains.step = step  # type: ignore[method-assign]
            done = await step(order)
            await activate(on, 3, "k3")
            return done

        on.spool.drains.step = cutting  # type: ignore[method-assign]
        with trio.fail_after(PATIENCE):
            await on.orders.forward(FIRST, "main")
        assert await lanes_of(on) == [("main", "k2", COUNT), ("main", "k3", 0)]
        await on.orders.forward(FIRST, "main")
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        poke(on.delivery)

        assert await delivered(on, 3) == COUNT
        assert sorted(DESTINATIONS["main"].received) == list(range(COUNT))


async def test_several_drains_of_an_output_are_forwarded_one_after_the_other(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2", to="other")
        await emit(1000, 10)
        await activate(on, 3, "k3")
        for number in (1, 2):
            await on.orders.forward(Revision(0, number), "main")

        assert await delivered(on, 3) == COUNT + 10
        assert sorted(DESTINATIONS["main"].received) == [*range(COUNT), *range(1000, 1010)]
        assert await lanes_of(on) == [("main", "k3", 0)]


async def test_an_order_takes_what_entered_under_its_revision_and_leaves_the_rest_of_the_lane(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, to="other", more="log_level: warning\n")
        await emit(1000, 10)
        await activate(on, 3, "k3")
        with trio.fail_after(PATIENCE):
            done = await on.orders.forward(Revision(0, 2), "main")
        main = DESTINATIONS["main"]
        await main.until(lambda: on.spool.figures.total().events == COUNT)

        assert done.events == 10
        assert "3 drained" not in on.lines()
        assert await lanes_of(on) == [("other", "k1", COUNT), ("main", "k3", 0)]
        await on.orders.forward(FIRST, "main")
        assert (await on.ack(3, "drained")).ledger == Counts(accepted=COUNT + 10, delivered=COUNT + 10)


async def test_rests_and_places_left_behind_go_along(tmp_path: Path) -> None:
    """Of a batch that was settled in part, what is left is forwarded, and a place that refused there may take it."""
    async with theatre(tmp_path) as on:
        other, main = DESTINATIONS["other"], DESTINATIONS["main"]
        other.target = main.target = lambda n: "odd" if n % 2 else "even"
        other.refused = {"odd"}
        await activate(on, 1, to="other")
        await SPRINGS["in"].context.emit(events(*range(10)))
        await other.until(lambda: on.spool.figures.total().events == 5)
        main.refused = {"odd"}
        await activate(on, 2, "k2")
        await SPRINGS["in"].context.emit(events(11, 12))
        await main.until(lambda: 12 in main.received)
        await on.orders.forward(FIRST, "main")
        await main.until(lambda: 9 in main.asked)
        assert on.spool.figures.total().events == 6
        main.refused = set()
        ack = await on.ack(2, "drained")

        assert ack.ledger == Counts(accepted=5, delivered=5)
        await main.until(lambda: on.spool.figures.total().events == 0)
        assert sorted(main.received) == [1, 3, 5, 7, 9, 11, 12]


async def test_a_batch_that_another_output_holds_too_counts_once_before_and_after(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1", side="missing-1")
        await on.enter(4, batches=3)
        source = on.active["main"].id
        await on.activate(2, main=None, side="missing-1")
        order, _ = await on.spool.drains.place_forward(source)
        before = on.spool.figures.total()
        while not (await on.spool.drains.step(order)).done:
            pass

        assert on.spool.figures.total() == before
        await on.spool.heed_damage()
        assert on.spool.figures.total() == before


async def test_an_order_that_cannot_be_lists_what_there_is(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2", output="archive")

        with pytest.raises(NothingToOrder, match=r"draining: revision \S*1 of output main$"):
            await on.orders.forward(Revision(0, 7), "main")
        with pytest.raises(NothingToOrder, match=r"draining: revision \S*1 of output main$"):
            await on.orders.forward(FIRST, "archive")
        with pytest.raises(NothingToOrder, match="the active revision has no output main; its outputs are: archive"):
            await on.orders.forward(FIRST, "main")


async def test_what_waits_where_its_output_goes_already_is_not_moved(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await activate(on, 2, "k2")
        await on.orders.forward(FIRST, "main")

        with pytest.raises(NothingToOrder, match="it waits where output main goes now"):
            await on.orders.forward(FIRST, "main")
        assert await on.spool.drains.standing() == []


@pytest.mark.parametrize("which", ["source", "target"])
async def test_nothing_is_forwarded_from_or_to_what_damage_made_doubtful(tmp_path: Path, which: str) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2")
        lane = next(lane for lane in on.delivery.lanes.values() if lane.active == (which == "target"))
        await on.spool.store.do(lambda db: doubt.hold(db, lane.id, 10**6))

        with trio.fail_after(PATIENCE), pytest.raises(NothingToOrder, match="is damaged: only `drop` or `dead_letter`"):
            await on.orders.forward(FIRST, "main")


async def test_a_lane_that_cannot_be_opened_is_forwarded_too(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2")
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET type = 'gone' WHERE NOT active"))
    async with theatre(tmp_path) as on:
        on.keyring.keep({"k2": secret("k2")})
        poke(on.delivery)
        assert "main" in on.delivery.unreadable
        with trio.fail_after(PATIENCE):
            done = await on.orders.forward(FIRST, "main")
        ack = await on.ack(2, "drained")

        assert done.events == COUNT
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert on.delivery.unreadable == {}


async def test_nothing_is_forwarded_to_what_cannot_be_opened(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET reached = 1"))
        await activate(on, 2, "k2")
        await on.spool.store.do(lambda db: db.execute("UPDATE lane SET type = 'gone' WHERE active"))
    async with theatre(tmp_path) as on:
        with pytest.raises(NothingToOrder, match="where output main goes now cannot be opened"):
            await on.orders.forward(FIRST, "main")


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_forward_goes_on_after_a_crash_between_its_steps(tmp_path: Path, steps: int) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await activate(on, 2, "k2")
        (source,) = [lane for lane in on.delivery.lanes.values() if not lane.active]
        (target,) = [lane for lane in on.delivery.lanes.values() if lane.active]
        async with source.suspended(), target.suspended():
            order, _ = await on.spool.drains.place_forward(source.id)
            for _ in range(steps):
                assert not (await on.spool.drains.step(order)).done
    async with theatre(tmp_path) as on:
        on.keyring.keep({id: secret(id) for id in ("k1", "k2")})
        poke(on.delivery)
        ack = await on.ack(2, "drained")
        before_it_went_on = DESTINATIONS["other"].received

        assert sorted([*DESTINATIONS["main"].received, *before_it_went_on]) == list(range(COUNT))
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert await on.spool.drains.standing() == []


async def test_lanes_that_are_poked_while_a_forward_runs_settle_no_barrier_too_early(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        await activate(on, 2, "k2")
        step = on.spool.drains.step
        early: list[str] = []

        async def poking(order: Order) -> Step:
            poke(on.delivery)
            await trio.testing.wait_all_tasks_blocked(0.02)
            early.extend(line for line in on.lines() if line == "2 drained")
            return await step(order)

        on.spool.drains.step = poking  # type: ignore[method-assign]
        await on.orders.forward(FIRST, "main")

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert early == []


# -- without an order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credential", ["k1", None])
async def test_what_waits_for_a_destination_that_never_answered_goes_to_the_corrected_one(
    tmp_path: Path, credential: str | None
) -> None:
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["other"]
        script.vanish()
        await activate(on, 1, credential, to="other")
        await emit()
        await activate(on, 2, credential)
        ack = await on.ack(2, "drained")

        assert sorted(DESTINATIONS["main"].received) == list(range(COUNT))
        assert ack.ledger == Counts(accepted=COUNT, delivered=COUNT)
        assert script.received == []


async def test_several_corrections_in_a_row_end_at_the_right_destination(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        for name in ("typo", "another"):
            DESTINATIONS[name] = Destination()
            DESTINATIONS[name].vanish()
        await activate(on, 1, to="typo")
        await emit(0)
        await activate(on, 2, to="another")
        await emit(COUNT)
        await activate(on, 3)

        assert await delivered(on, 3) == 2 * COUNT
        assert sorted(DESTINATIONS["main"].received) == list(range(2 * COUNT))


async def too_large(batch: Batch) -> Answers:
    raise TooLarge("413")


def singly(outcome: Outcome) -> Any:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return Answers(batch.count, dict.fromkeys(range(batch.count), Answer(outcome, "as the test says")))

    return send


def raising(error: Exception) -> Any:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        raise error

    return send


ANSWERS = [
    raising(Held("401 Unauthorized")),
    raising(Later("503 Service Unavailable")),
    too_large,
    singly(Outcome.LATER),
    singly(Outcome.HELD),
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_after_one_answer_of_any_kind_nothing_goes_elsewhere_without_an_order(
    tmp_path: Path, answer: Any
) -> None:
    """Nor after many that did not come, nor in another process."""
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["other"]
        script.send = answer
        await activate(on, 1, to="other")
        await emit()
        await script.until(lambda: bool(script.asked) and not script.sending)
        script.vanish()
        await activate(on, 2)
        await looked(on)
        assert [line for line in await lanes_of(on) if line[2]] == [("other", "k1", COUNT)]
    async with theatre(tmp_path, keep=True) as on:
        on.keyring.keep({"k1": secret("k1")})
        await activate(on, 3, more="log_level: warning\n")
        await looked(on)

        assert [line for line in await lanes_of(on) if line[2]] == [("other", "k1", COUNT)]
        assert DESTINATIONS["main"].received == []


async def test_with_another_credential_nothing_goes_elsewhere_without_an_order(tmp_path: Path) -> None:
    """It may not have the rights of the old one; when the old one is back, it goes."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        await activate(on, 2, "k2")
        await looked(on)
        assert await lanes_of(on) == [("other", "k1", COUNT), ("main", "k2", 0)]
        await activate(on, 3, "k1")

        assert await delivered(on, 3) == COUNT


@pytest.mark.parametrize(
    ("parts", "name"),
    [({"more": "drain: {never_reached: hold}\n"}, "main"), ({"output": "archive"}, "main"), ({}, "scripted")],
)
async def test_what_nobody_may_take_waits_for_an_order(tmp_path: Path, parts: dict[str, str], name: str) -> None:
    """The policy says so, the output is gone, or its destination tells of no answers."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, type="scripted" if name == "scripted" else "telling")
        await activate(on, 2, **parts)
        await looked(on)

        assert ("other", "k1", COUNT) in await lanes_of(on)
        assert DESTINATIONS["main"].received == []


async def test_it_goes_on_in_the_process_after_a_crash(tmp_path: Path) -> None:
    """Before any policy has come again, be the order placed or not."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        on.orders._one.acquire_nowait()  # nothing is ordered before the crash
        await activate(on, 2)
        assert [line[2] for line in await lanes_of(on)] == [COUNT, 0]
        on.orders._one.release()
    async with theatre(tmp_path) as on:
        on.keyring.keep({"k1": secret("k1")})
        poke(on.delivery)

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)


async def test_what_is_or_may_be_in_flight_goes_nowhere_else_by_itself(tmp_path: Path) -> None:
    """The first request of all is under way when the next revision comes, and when the process is killed."""
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["other"]
        script.send = script.hang
        await activate(on, 1, to="other")
        await emit(0, 1)
        await script.until(lambda: script.sending > 0)
        await activate(on, 2)
        await looked(on)
        assert ("other", "k1", 1) in await lanes_of(on)
    async with theatre(tmp_path, keep=True) as on:
        on.keyring.keep({"k1": secret("k1")})
        DESTINATIONS["other"].vanish()
        await activate(on, 3, more="log_level: warning\n")
        await looked(on)

        assert ("other", "k1", 1) in await lanes_of(on)
        assert DESTINATIONS["main"].received == []


async def test_a_request_that_has_not_begun_is_ended_before_its_events_go_elsewhere(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script, right = DESTINATIONS["other"], DESTINATIONS["main"]
        beside = []

        async def take(batch: Batch) -> Answers:
            beside.append(script.sending)
            return await right.deliver(batch)

        script.vanish()
        script.send, right.send = script.hang, take
        await activate(on, 1, to="other")
        await emit(0, 1)
        await script.until(lambda: script.sending > 0)
        await activate(on, 2)
        await on.ack(2, "drained")

        assert (right.received, beside) == ([0], [0])


async def test_a_request_that_begins_before_the_order_is_placed_has_its_say(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        on.orders._one.acquire_nowait()
        await activate(on, 2)
        await SPRINGS["in"].until(lambda: on.orders._one.statistics().tasks_waiting == 1)  # it is to be forwarded
        (retired,) = (lane for lane in on.delivery.lanes.values() if not lane.active)
        await retired.destination.begins()
        on.orders._one.release()
        async with on.orders._one:
            pass  # its turn has come and gone
        await looked(on)

        assert ("other", "k1", COUNT) in await lanes_of(on)


async def test_nothing_begins_where_it_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(op: Any) -> None:
        raise StoreFailed("the disk is gone")

    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await activate(on, 1)
        (lane,) = on.delivery.lanes.values()
        monkeypatch.setattr(lane.link.contact, "ground", SimpleNamespace(urgent=failing))
        with pytest.raises(NotBegun):
            await lane.link.contact.begins()

        assert script.asked == []


async def test_where_a_host_was_asked_once_nothing_leaves_any_lane_to_it(tmp_path: Path) -> None:
    """A revision that changes the index alone makes another lane to the same host, which nobody has heard of yet."""
    async with theatre(tmp_path) as on:
        script = DESTINATIONS["main"]
        await activate(on, 1)
        await emit(0, 1)
        await script.until(lambda: script.received == [0])
        script.vanish()
        await activate(on, 2, index="two")
        await emit(1, 1)
        await activate(on, 3, index="three")
        await looked(on)
        assert [line[2] for line in await lanes_of(on)] == [1, 0]

        script.is_there, script.send = True, script.deliver
        await on.ack(3, "drained")
        assert script.received == [0, 1]


def without(directory: Path, *columns: str) -> None:
    """Has a closed spool be one of a version that had none of these columns of lanes."""
    (path,) = directory.rglob("spool-*.db")
    with closing(sqlite3.connect(path)) as db:
        for column in columns:
            db.execute(f"ALTER TABLE lane DROP COLUMN {column}")


async def test_a_lane_of_a_spool_that_counted_no_answers_is_reached(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        await activate(on, 2, "k2")
    without(tmp_path, "pair", "contacts", "confirmed_versions", "confirmed", "reached")
    async with theatre(tmp_path, keep=True) as on:
        on.keyring.keep({"k1": secret("k1")})
        await activate(on, 3, "k1")
        await looked(on)

        assert on.spool.store.report is None
        assert ("other", "k1", COUNT) in await lanes_of(on)


async def test_a_lane_that_is_active_again_keeps_its_own(tmp_path: Path) -> None:
    """Its destination may be there by now."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        await activate(on, 2, "k2")
        await activate(on, 3, "k1", to="other")
        await looked(on)

        assert [line for line in await lanes_of(on) if line[2]] == [("other", "k1", COUNT)]
        assert await on.spool.drains.never_reached() == []


async def test_what_was_rebound_before_any_answer_came_goes_where_its_new_credential_goes(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await wrong_at_first(on)
        await activate(on, 2, "k2")
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k2")

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=COUNT, delivered=COUNT)


async def test_what_was_rebound_after_an_answer_stays_though_its_new_credential_never_had_one(tmp_path: Path) -> None:
    """It is the same destination, and may have taken what was never answered."""
    async with theatre(tmp_path) as on:
        await wrong_at_first(on, Held("401"))
        DESTINATIONS["other"].vanish()
        await activate(on, 2, "k2", to="other")
        with trio.fail_after(PATIENCE):
            await on.orders.rebind("k1", "k2")
        await activate(on, 3, "k2")
        await looked(on)

        assert ("other", "k2", COUNT) in await lanes_of(on)
        assert DESTINATIONS["main"].received == []


def test_the_log_names_hosts_and_nothing_else_that_a_url_holds() -> None:
    def hosts(settings: LaneSettings | None) -> list[str]:
        return _hosts(LaneRow(1, LaneKey("main", "fake", "there"), settings, True))

    named = ["https://u:p@es-1:9200/x?y", 5, "odd", "http://[no-address"]
    assert hosts(LaneSettings({"hosts": named})) == ["es-1:9200", "", ""]
    assert hosts(None) == hosts(LaneSettings({"hosts": "es"})) == []


async def test_the_same_place_on_both_lanes_does_not_end_the_process(tmp_path: Path) -> None:
    """Damage may bring back an entry that had gone to another lane before."""
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(4)
        source = on.active["main"].id
        await on.activate(2, main="missing-2")
        target = on.active["main"].id
        columns = "seq, kind, epoch, revision, count, bytes, at, awaited"
        copy = f"INSERT INTO todo SELECT ?, {columns} FROM todo WHERE lane = ? AND kind = 0"
        await on.spool.store.do(lambda db: db.execute(copy, (target, source)))
        order, _ = await on.spool.drains.place_forward(source)
        while not (await on.spool.drains.step(order)).done:
            pass

        assert [entry.events for entry in await on.spool.queue.window(target, 0) if not entry.is_barrier] == [4]
