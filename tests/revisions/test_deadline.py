"""`drain.deadline`: counted in the spool, while the process runs and holds the credential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Held
from shipper.revisions.deadline import Deadlines
from shipper.spool import clock
from shipper.spool.drain_orders import Name
from shipper.values import Counts, Revisions
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Destination, Theatre, events, poke, policy, theatre


class Hand:
    """A clock that stands until it is moved on."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def deadlines(on: Theatre, now: Callable[[], float] = trio.current_time) -> Deadlines:
    return Deadlines(
        ground=on.spool,
        rollout=on.rollout,
        delivery=on.delivery,
        orders=on.orders,
        on_change=lambda: None,
        now=now,
    )


class Watch:
    """Deadlines that look when they are told to."""

    def __init__(self, on: Theatre) -> None:
        self.hand = Hand()
        self.of = deadlines(on, self.hand)

    async def look(self, *, after: float = 0.0) -> None:
        self.hand.at += after
        with trio.fail_after(PATIENCE):
            await self.of.look()


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
        watch = Watch(on)
        for _ in range(4):
            await watch.look(after=3600.0)
        assert orders == ["dead_letter"]
        assert watch.of.problem == "a drain is past its deadline of 3600 s, and the dead-letter store is full"
        await on.offer(3, policy(credential="k2", more=drain), "k2")
        await on.ack(3, "active")
        await watch.look(after=1.0)

        assert (await on.ack(3, "drained")).ledger == Counts(accepted=3, dead_letter=3)
        assert watch.of.problem is None


FORWARD = "drain: {deadline: 1h, on_deadline: forward}\n"


async def moved_away(on: Theatre, output: str = "main") -> None:
    """Revision 2, elsewhere, waits for three events of revision 1."""
    for name in ("other", "main"):
        DESTINATIONS[name].send = DESTINATIONS[name].raising(Held("401"))
    await on.offer(1, policy(credential="k1", to="other"), "k1")
    await on.ack(1, "drained")
    await SPRINGS["in"].context.emit(events(1, 2, 3))
    await on.offer(2, policy(credential="k2", more=FORWARD, output=output), "k2")
    await on.ack(2, "active")


async def test_a_late_drain_goes_to_where_its_output_goes_now_and_has_the_whole_deadline_there(tmp_path: Path) -> None:
    """It is not forwarded to where it is; there it is late again, held and shown."""
    async with theatre(tmp_path) as on:
        await moved_away(on)
        watch = Watch(on)
        await watch.look(after=3600.0)
        await watch.look(after=3600.0)
        await on.wait_gone("k1")
        await watch.look(after=3599.0)
        assert watch.of.problem is None
        placed = await on.spool.store.read(lambda db: db.execute("SELECT seq FROM sqlite_sequence").fetchall())
        for _ in range(3):
            await watch.look(after=3600.0)

        assert watch.of.problem == "a drain is past its deadline of 3600 s, and it waits where output main goes now"
        assert await on.spool.store.read(lambda db: db.execute("SELECT seq FROM sqlite_sequence").fetchall()) == placed
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        poke(on.delivery)
        assert (await on.ack(2, "drained")).ledger == Counts(accepted=3, delivered=3)
        await watch.look(after=1.0)
        assert watch.of.problem is None


async def test_a_late_drain_of_an_output_that_is_gone_is_held_and_shown(tmp_path: Path) -> None:
    """And looking again and again ends no request that is under way."""
    async with theatre(tmp_path) as on:
        await moved_away(on, output="archive")
        script = DESTINATIONS["other"]
        script.send = script.hang
        poke(on.delivery)
        await script.until(lambda: script.hanging > 0)  # not what was refused, and was still under way
        asked, watch = len(script.asked), Watch(on)
        for _ in range(4):
            await watch.look(after=3600.0)

        problem = "the active revision has no output main; its outputs are: archive"
        assert watch.of.problem == f"a drain is past its deadline of 3600 s, and {problem}"
        assert (script.hanging, len(script.asked)) == (1, asked)


async def test_a_drain_that_was_forwarded_goes_on_when_its_output_goes_elsewhere_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await moved_away(on)
        watch = Watch(on)
        for _ in range(2):
            await watch.look(after=3600.0)
        await on.wait_gone("k1")
        await on.offer(3, policy(credential="k3", to="third", more=FORWARD), "k3")
        DESTINATIONS["third"] = Destination()
        await on.ack(3, "active")
        for _ in range(2):
            await watch.look(after=3600.0)

        await on.ack(3, "drained")
        assert sorted(DESTINATIONS["third"].received) == [1, 2, 3]


DROP = "drain: {deadline: %s, on_deadline: drop}\n"


async def waited(on: Theatre) -> float:
    (seconds,) = await on.spool.store.read(lambda db: db.execute("SELECT waited FROM barrier").fetchone())
    return float(seconds)


async def test_time_without_the_credential_does_not_count(tmp_path: Path) -> None:
    """Nor does the time in which it came, or went."""
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "1h")
        watch = Watch(on)
        await watch.look()
        on.keyring.forget(["k1"])
        await watch.look(after=10000.0)
        assert await waited(on) == 0.0
        await on.rollout.supply({"k1": {"api_key": "k1:secret-of-k1"}})
        await watch.look(after=10000.0)
        assert await waited(on) == 0.0
        await watch.look(after=10.0)

        assert await waited(on) == 10.0
        assert on.spool.figures.total().events == 3


async def again(on: Theatre) -> None:
    """What a supervisor supplies after a restart, before any policy; the destination is as it was."""
    DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
    await on.rollout.supply({id: {"api_key": f"{id}:secret-of-{id}"} for id in ("k1", "k2")})


async def test_the_time_that_was_waited_is_kept_over_a_restart(tmp_path: Path) -> None:
    """And goes on before the policy has come again."""
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "1h")
        watch = Watch(on)
        await watch.look()
        await watch.look(after=3599.0)
    async with theatre(tmp_path) as on:
        await again(on)
        watch = Watch(on)
        await watch.look()
        assert on.spool.figures.total().events == 3
        await watch.look(after=2.0)

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=3, dropped=3)


async def test_a_shorter_deadline_gives_the_old_drains_its_own_time(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "4h")
        watch = Watch(on)
        await watch.look()
        await watch.look(after=3600.0)
        await on.offer(3, policy(credential="k2", more=DROP % "30m"), "k2")
        await on.ack(3, "active")
        for seconds in (1.0, 1.0, 1798.0):
            await watch.look(after=seconds)
            assert on.spool.figures.total().events == 3
        await watch.look(after=1.0)

        assert (await on.ack(3, "drained")).ledger == Counts(accepted=3, dropped=3)


async def test_a_shorter_deadline_has_its_own_time_whenever_the_process_was_restarted(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "60s")
        watch = Watch(on)
        await watch.look()
        await watch.look(after=9.0)
    async with theatre(tmp_path) as on:
        await again(on)
        await on.offer(3, policy(credential="k2", more=DROP % "8s"), "k2")
        await on.ack(3, "active")
        watch = Watch(on)
        await watch.look()
        await watch.look(after=1.0)
    async with theatre(tmp_path) as on:
        await again(on)
        watch = Watch(on)
        await watch.look()
        await watch.look(after=6.5)
        assert on.spool.figures.total().events == 3
        await watch.look(after=1.0)

        assert (await on.ack(3, "drained")).ledger == Counts(accepted=3, dropped=3)


async def test_a_drain_that_began_between_two_looks_is_not_counted_from_the_first(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy(credential="k1", more=DROP % "2s"), "k1")
        await on.ack(1, "drained")
        watch = Watch(on)
        await watch.look()
        DESTINATIONS["main"].send = DESTINATIONS["main"].raising(Held("401"))
        await SPRINGS["in"].context.emit(events(1, 2, 3))
        await on.offer(2, policy(credential="k2", more=DROP % "2s"), "k2")
        await on.ack(2, "active")
        for seconds in (0.9, 0.9, 0.9):
            await watch.look(after=seconds)
            assert on.spool.figures.total().events == 3
        await watch.look(after=0.9)

        assert (await on.ack(2, "drained")).ledger == Counts(accepted=3, dropped=3)


async def test_time_in_which_the_process_was_stopped_does_not_count(tmp_path: Path) -> None:
    """To the process, SIGSTOP is a sleep that took longer."""
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "8s")
        watch = Watch(on)
        await watch.look()
        watch.of.slept(1.0, taken=61.0)
        await watch.look(after=61.0)

        assert await waited(on) == 1.0
        assert on.spool.figures.total().events == 3


async def test_a_drain_is_not_counted_before_its_revision_is_known_as_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "2s")
        watch, unknown = Watch(on), property(lambda rollout: Revisions())
        with monkeypatch.context() as before:
            before.setattr(type(on.rollout), "stages", unknown)  # the rollout itself would set what it keeps again
            await watch.look()
            await watch.look(after=9.0)
            assert await waited(on) == 0.0
        await watch.look(after=9.0)
        monkeypatch.setattr(type(on.rollout), "stages", unknown)
        await watch.look(after=1.0)

        assert await waited(on) == 1.0


async def test_a_drain_of_an_output_that_is_active_again_has_its_deadline(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await stuck(on, DROP % "3s")
        await on.offer(3, policy(credential="k1", more=DROP % "3s"), "k1")
        await on.ack(3, "active")
        await SPRINGS["in"].context.emit(events(4, 5))
        watch = Watch(on)
        await watch.look()
        await watch.look(after=3.0)

        assert (await on.ack(3, "drained")).ledger == Counts(accepted=3, dropped=3)
        assert on.spool.figures.total().events == 2


async def test_what_was_late_under_the_terms_before_is_not_ended_by_those_of_a_cut_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither policy drops it: one holds, and the other waits for four hours."""
    async with theatre(tmp_path) as on:
        await stuck(on, "drain: {deadline: 30s, on_deadline: hold}\n")
        watch = Watch(on)
        await watch.look()
        await watch.look(after=600.0)
        store, cut_meanwhile = on.spool.store.do, ["once"]

        async def slow(change: Callable[..., Any], **how: Any) -> Any:
            if cut_meanwhile and getattr(change, "func", None) is clock.advance:
                cut_meanwhile.clear()
                await on.offer(3, policy(credential="k2", more=DROP % "4h"), "k2")
                await on.ack(3, "active")
            return await store(change, **how)

        monkeypatch.setattr(on.spool.store, "do", slow)
        await watch.look(after=1.0)

        assert on.spool.figures.total().events == 3


class Stopping(Hand):
    """A clock of a process that is stopped for a minute in each of its sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0

    def __call__(self) -> float:
        self.looked += 1
        if self.looked == 2:  # at the end of a sleep; the first time is at its beginning
            self.at += 60.1
        return self.at


async def test_a_sleep_that_took_longer_by_far_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        await stuck(on, DROP % "0.4s")
        hand, looks = Stopping(), [trio.Event() for _ in range(3)]
        watch = deadlines(on, hand)
        look, left = watch.look, iter(looks)

        async def followed() -> None:
            await look()
            hand.looked = 0
            next(left, looks[-1]).set()

        monkeypatch.setattr(watch, "look", followed)
        nursery.start_soon(watch.run)
        with trio.fail_after(PATIENCE):
            await looks[1].wait()

        assert await waited(on) == pytest.approx(0.1)
        assert on.spool.figures.total().events == 3
        nursery.cancel_scope.cancel()
