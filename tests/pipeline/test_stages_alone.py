"""The transactions of stages, without an input: what is stored, rolled back or run again, whatever comes between."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

from shipper.pipeline.intake.chain import Chain, Link
from shipper.pipeline.intake.stages import Emission, Group, Made, Opened, Stages
from shipper.plugin import Stage, StageContext, StartFailed
from shipper.sdk.meters import Meters
from tests.fakes import ScriptedStage

NONE = Chain(())


class Holding(Stage):
    """Holds what it is told to for an hour."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails_at: tuple[str, ...] = ()
        self.is_full = False

    @property
    def due(self) -> float | None:
        self._note("due")
        return -math.inf if self.is_full else trio.current_time() + 3600

    def commit(self) -> None:
        self._note("commit")

    def rollback(self) -> None:
        self._note("rollback")

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what in self.fails_at:
            raise ZeroDivisionError("a secret")


class Owner:
    """The input: what was stored of it, and what it was told. `storing` and `flushing` are waited for."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.told: list[str] = []
        self.error: Exception | None = None
        self.storing, self.flushing = trio.Event(), trio.Event()
        self.storing.set()
        self.flushing.set()

    async def process(self, emission: Emission) -> tuple[Sequence[Made], int]:
        await trio.lowlevel.checkpoint()
        self.told.append("process")
        return [], 0

    async def flush(self) -> tuple[Sequence[Made], int]:
        self.told.append("flush")
        await self.flushing.wait()
        return [], 0

    async def store(self, group: Group) -> bool:
        self.told.append("store")
        await self.storing.wait()
        if self.error is not None:
            raise self.error
        return True

    def stored(self, group: Group) -> None:
        self.groups.append(group)

    def read_again(self) -> None:
        self.told.append("read again")

    def stage_failed(self) -> None:
        self.told.append("a stage failed")


class Room:
    """Running stages and what is emitted through them."""

    def __init__(self, nursery: trio.Nursery, *, rereads: bool = False, count: int = 1) -> None:
        self.owner, self.nursery = Owner(), nursery
        self.held = [Holding() for _ in range(count)]
        self.stages = Stages(self.owner, trio.current_time, rereads=rereads)
        self.said: list[bool | Exception] = []
        opened = {("", number): Opened(ScriptedStage()) for number in range(count)}
        for one, stage in zip(opened.values(), self.held, strict=True):
            one.stage = stage
        links = [Link(ScriptedStage(), Meters(), "p", stage) for stage in self.held]
        self.stages.switch(Chain((), links), opened, is_kept=False)
        nursery.start_soon(self.stages.run)

    async def emit(self, scope: trio.CancelScope | None = None) -> None:
        with scope or trio.CancelScope():
            try:
                self.said.append(await self.stages.emit(Emission([], datetime.now(UTC), {}, True)))
            except ZeroDivisionError as error:
                self.said.append(error)

    async def begin(self, scope: trio.CancelScope | None = None) -> None:
        """Emits, and goes on when nothing more happens."""
        self.nursery.start_soon(self.emit, scope)
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def room(**how: Any) -> AsyncIterator[Room]:
    async with trio.open_nursery() as nursery:
        yield Room(nursery, **how)
        nursery.cancel_scope.cancel()


async def test_an_emit_that_waited_for_a_cut_which_took_its_stages_away_runs_again_without_them() -> None:
    async with room() as on:
        await on.stages.settle(flush=False)
        await on.begin()
        on.stages.switch(NONE, {}, is_kept=False)
        await trio.testing.wait_all_tasks_blocked()

        assert (on.said, on.owner.told) == ([False], [])


async def test_an_emit_that_is_cancelled_in_its_transaction_knows_how_that_ended() -> None:
    async with room() as on:
        on.owner.storing, on.held[0].is_full, scope = trio.Event(), True, trio.CancelScope()
        await on.begin(scope)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert not scope.cancelled_caught, "it waits for the transaction"
        on.owner.storing.set()
        await trio.testing.wait_all_tasks_blocked()

        assert scope.cancelled_caught
        assert [[one.is_stored for one in group.waiting] for group in on.owner.groups] == [[True]]


async def test_what_is_emitted_without_stages_goes_behind_what_they_hold_or_a_cut() -> None:
    async with room() as on:
        await on.begin()
        free = trio.Event()

        async def wait() -> None:
            await on.stages.free()
            free.set()

        on.nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not free.is_set()
        await on.stages.flush()
        await free.wait()

        free = trio.Event()
        await on.stages.settle(flush=False)
        on.nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not free.is_set()
        on.stages.resume()
        await free.wait()
        await on.stages.free()


async def test_what_is_held_of_another_way_is_rolled_back_at_the_cut() -> None:
    async with room() as on:
        await on.begin()
        on.stages.switch(NONE, {}, is_kept=False)
        await trio.testing.wait_all_tasks_blocked()

        assert (on.said, on.held[0].log[-1], on.owner.groups) == ([False], "rollback", [])


async def test_what_is_cancelled_while_stages_give_what_they_hold_is_not_stored() -> None:
    async with room() as on:
        on.owner.flushing, on.held[0].is_full, scope = trio.Event(), True, trio.CancelScope()
        await on.begin(scope)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        on.owner.flushing.set()
        await trio.testing.wait_all_tasks_blocked()

        assert (on.owner.told, on.held[0].log[-1]) == (["process", "flush"], "rollback")


async def test_an_input_that_is_closed_in_a_transaction_rolls_it_back() -> None:
    async with room() as on:
        on.owner.storing, on.held[0].is_full = trio.Event(), True
        await on.begin()
        on.stages.close()
        await trio.testing.wait_all_tasks_blocked()

        assert (on.said, on.held[0].log[-1]) == ([False], "rollback")


async def test_an_input_whose_held_events_are_lost_is_accepted_nothing_of_until_it_is_opened_again() -> None:
    async with room(rereads=True) as on:
        on.owner.error = ZeroDivisionError()
        await on.begin()
        assert on.said == [True], "it does not wait for what is held"
        await on.stages.flush()
        scope = trio.CancelScope()
        await on.begin(scope)
        assert (on.said, on.owner.told[-1], on.stages.is_idle) == ([True], "read again", False)
        scope.cancel()
        on.stages.reopened()
        await on.begin()

        assert on.said == [True, True]


@pytest.mark.parametrize("fails_at", ["due", "rollback"])
async def test_a_stage_that_fails_rests_alone_and_what_it_holds_is_rolled_back(fails_at: str) -> None:
    async with room(count=2) as on:
        well, ill = on.held
        ill.fails_at = (fails_at,)
        scope = trio.CancelScope()
        await on.begin(scope)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

        assert "rollback" in well.log
        assert on.owner.groups == []
        assert "a stage failed" in on.owner.told
        assert [one.rest.is_on for one in on.stages.opened.values()] == [False, True]


async def test_what_is_stored_stays_so_though_a_stage_fails_to_take_note_of_it() -> None:
    async with room() as on:
        on.held[0].fails_at, on.held[0].is_full = ("commit",), True
        await on.begin()

        assert (on.said, len(on.owner.groups)) == ([True], 1)
        assert on.stages.fault == "ScriptedStage failed: ZeroDivisionError"


# -- what is open ------------------------------------------------------------------------------------------------------


class Breaking(ScriptedStage, frozen=True):
    """Opens a stage, and fails once that has begun."""

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        async def fail() -> None:
            await trio.testing.wait_all_tasks_blocked()
            raise ZeroDivisionError("a secret")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            yield Holding()


class Wrong(ScriptedStage, frozen=True):
    """Opens no stage."""

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Any]:
        yield None


async def test_a_stage_that_fails_after_it_was_opened_is_at_fault() -> None:
    opened = Opened(Breaking())
    async with trio.open_nursery() as nursery:
        await nursery.start(opened.run, StageContext("in", None))  # type: ignore[arg-type]
        assert opened.rest.reason is None

    assert opened.rest.reason == "Breaking failed: ZeroDivisionError"


async def test_what_is_no_stage_is_not_begun_with() -> None:
    with pytest.raises(StartFailed, match="NoneType, which is no Stage"):
        await Opened(Wrong()).run(StageContext("in", None))  # type: ignore[arg-type]
