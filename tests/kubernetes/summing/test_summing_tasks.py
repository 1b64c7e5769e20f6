"""When a leader does the next thing for an object."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from shipper.apiserver.errors import Busy, Conflict, Forbidden, Invalid, Unreachable
from shipper.kubernetes.summing.tasks import GAP, REFUSED_SECONDS, Key, NotLeading, Tasks
from shipper.kubernetes.summing.troubles import Troubles
from shipper.kubernetes.summing.writing import OldKind

WEB = ("policy", "web")


class World:
    """What the tasks have told."""

    def __init__(self) -> None:
        self.troubles: dict[str, str | None] = {}
        self.due: list[Key] = []
        self.reads = 0
        self.newer = True
        self.tasks: Tasks

    async def again(self, key: Key) -> bool:
        self.reads += 1
        return self.newer

    async def run(self, raised: Exception | None = None) -> float:
        """Runs a task that raises this, as soon as it may; returns the seconds until the next one may run."""

        async def act() -> None:
            if raised is not None:
                raise raised

        await trio.sleep_until(max(self.tasks.free_at(WEB), trio.current_time()))
        self.tasks.start(WEB, act)
        assert self.tasks.free_at(WEB) == math.inf
        await trio.testing.wait_all_tasks_blocked()
        return self.tasks.free_at(WEB) - trio.current_time()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    found = World()
    async with trio.open_nursery() as nursery:
        found.tasks = Tasks(
            nursery,
            Troubles(found.troubles.__setitem__),
            trio.current_time,
            again=found.again,
            due=found.due.append,
            changed=lambda: None,
        )
        yield found


async def test_an_object_that_was_written_waits_for_the_rest_of_the_gap(autojump_clock):
    async with world() as found:
        found.tasks.wrote(WEB)

        assert found.tasks.free_at(WEB) - trio.current_time() == pytest.approx(GAP)
        assert found.tasks.free_at(("policy", "other")) < trio.current_time()


@pytest.mark.parametrize(
    ("error", "cause", "longest"),
    [
        (Forbidden("no"), "status_forbidden", REFUSED_SECONDS),
        (Invalid("no"), "status_refused", REFUSED_SECONDS),
        (OldKind(), "crd_outdated", REFUSED_SECONDS),
        (Unreachable("no"), "status_unreachable", 10.0),
    ],
)
async def test_a_failure_is_said_and_tried_again_ever_later(
    autojump_clock, error: Exception, cause: str, longest: float
):
    async with world() as found:
        waits = [await found.run(error) for _ in range(12)]
        assert found.troubles[cause]
        assert found.due == [WEB] * 12
        assert max(waits[:2]) <= 2.0
        assert longest / 10 <= max(waits[7:]) <= longest

        await found.run()
        assert found.troubles[cause] is None
        assert await found.run(error) <= 1.0


async def test_a_server_that_names_a_time_is_obeyed(autojump_clock):
    busy = Busy("later")
    busy.retry_after = 7.0
    async with world() as found:
        assert await found.run(busy) == pytest.approx(7.0)


async def test_a_conflict_is_read_and_judged_again_at_once(autojump_clock):
    async with world() as found:
        assert await found.run(Conflict("newer")) <= 0

        assert (found.reads, found.due, found.troubles) == (1, [WEB], {})


async def test_a_conflict_that_nothing_explains_is_no_busy_loop(autojump_clock):
    async with world() as found:
        found.newer = False

        assert await found.run(Conflict("newer")) > 0


async def test_a_task_of_a_leader_whose_lease_is_over_ends_in_silence(autojump_clock):
    async with world() as found:
        await found.run(NotLeading())

        assert (found.troubles, found.due) == ({}, [])


async def test_what_needs_nothing_has_no_trouble_any_more(autojump_clock):
    async with world() as found:
        await found.run(Forbidden("no"))
        found.tasks.start(WEB, None)

        assert found.troubles["status_forbidden"] is None


async def test_objects_that_are_gone_are_forgotten(autojump_clock):
    async with world() as found:
        await found.run(Forbidden("no"))
        found.tasks.forget(lambda key: False)

        assert (len(found.tasks), found.troubles["status_forbidden"]) == (0, None)
