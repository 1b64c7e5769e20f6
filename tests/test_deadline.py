"""`drain.deadline`: counted in the spool, while the process runs and holds the credential."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from shipper.deadline import Deadlines
from shipper.messages import Counts
from shipper.plugin import Held
from shipper.spool.orders import Name
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Theatre, events, policy, theatre


def deadlines(on: Theatre) -> Deadlines:
    return Deadlines(
        spool=on.spool,
        rollout=on.rollout,
        delivery=on.delivery,
        keyring=on.keyring,
        orders=on.orders,
        on_change=lambda: None,
    )


async def stuck(on: Theatre, drain: str) -> None:
    """Revision 2 waits for three events of revision 1."""
    DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
    await on.offer(1, policy(credential="k1"), "k1")
    await on.ack(1, "drained")
    await SPRINGS["in"].context.emit(events(1, 2, 3))
    await on.offer(2, policy(credential="k2", more=drain), "k2")
    await on.ack(2, "active")


async def test_a_drain_past_its_deadline_is_dropped_if_the_policy_says_so(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        nursery.start_soon(deadlines(on).run)
        await stuck(on, "drain: {deadline: 200ms, on_deadline: drop}\n")
        ack = await on.ack(2, "drained")
        nursery.cancel_scope.cancel()

    assert ack.ledger == Counts(accepted=3, dropped=3)


async def test_a_drain_past_its_deadline_is_held_and_shown(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        watch = deadlines(on)
        nursery.start_soon(watch.run)
        await stuck(on, "drain: {deadline: 200ms}\n")
        await SPRINGS["in"].until(lambda: watch.problem is not None)
        assert on.spool.figures.total().events == 3
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        ack = await on.ack(2, "drained")
        assert ack.ledger == Counts(accepted=3, delivered=3)
        await SPRINGS["in"].until(lambda: watch.problem is None)
        nursery.cancel_scope.cancel()


async def test_letters_of_a_late_drain_that_do_not_fit_wait_and_are_tried_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = "drain: {deadline: 1h, on_deadline: dead_letter}\n"
    async with theatre(tmp_path) as on:
        await stuck(on, drain + "dead_letters: {max_bytes: 1B, when_full: hold}\n")
        orders: list[str] = []
        end_lane = on.orders.end_lane

        async def counted(name: Name, lane: int, upto: int) -> None:
            orders.append(name)
            await end_lane(name, lane, upto)

        monkeypatch.setattr(on.orders, "end_lane", counted)
        watch = deadlines(on)
        for _ in range(4):
            await watch._count(3600.0)
        assert orders == ["dead_letter"]
        assert watch.problem == "a drain is past its deadline of 3600 s, and the dead-letter store is full"
        await on.offer(3, policy(credential="k2", more=drain), "k2")
        await on.ack(3, "active")
        await watch._count(1.0)

        assert (await on.ack(3, "drained")).ledger == Counts(accepted=3, dead_letter=3)
        assert watch.problem is None


async def test_time_without_the_credential_does_not_count(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, "drain: {deadline: 200ms, on_deadline: drop}\n")
        on.keyring.forget(["k1"])
        await deadlines(on)._count(100.0)
        (waited,) = await on.spool.query(lambda db: db.execute("SELECT waited FROM barrier").fetchone())

        assert waited == 0.0
        assert on.spool.figures.total().events == 3


async def test_the_time_that_was_waited_is_kept_over_a_restart(tmp_path: Path) -> None:
    drain = "drain: {deadline: 1h, on_deadline: drop}\n"
    async with theatre(tmp_path) as on:
        await stuck(on, drain)
        await deadlines(on)._count(3599.0)
    async with theatre(tmp_path) as on:
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await on.rollout.supply({"k1": {"api_key": "k1:secret-of-k1"}})
        await on.offer(2, policy(credential="k2", more=drain), "k2")
        await SPRINGS["in"].until(lambda: on.rollout.plan is not None)
        with trio.fail_after(PATIENCE):
            await deadlines(on)._count(2.0)

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=3, dropped=3)


async def test_a_shorter_deadline_gives_the_old_drains_its_own_time(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, "drain: {deadline: 4h, on_deadline: drop}\n")
        watch = deadlines(on)
        await watch._count(3600.0)
        await on.offer(3, policy(credential="k2", more="drain: {deadline: 30m, on_deadline: drop}\n"), "k2")
        await on.ack(3, "active")
        await watch._count(1.0)

        assert on.spool.figures.total().events == 3
