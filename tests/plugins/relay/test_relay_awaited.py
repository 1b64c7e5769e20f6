"""Whatever a principal answers to requests for answers, it cannot make its edge ask without a pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from shipper.plugin import Answers, Batch, Code, Later
from shipper_plugins.relay.edge.awaited import Awaited
from shipper_plugins.relay.edge.jobs import Job
from shipper_plugins.relay.frames import FrameError, Generation, Outcomes, Told, Welcome, part_of

ORIGIN = bytes(16)
SECONDS = 100


def session(counter: int = 1) -> Welcome:
    return Welcome(1, Generation("ab" * 16, counter), "berlin", "delivered", 25.0, 1 << 20, "cd" * 16)


def job(count: int) -> Job:
    batch = Batch.documents([b"{}"] * count).stored(ORIGIN, 1)
    return Job(part_of(batch), count, batch.size, range(count))


def outcomes(seq: int, first: int) -> Outcomes:
    return Outcomes(ORIGIN.hex(), seq, ((first, first),), b"\0")


class Hasty:
    """Sessions with a principal that answers each request at once; `say` makes its answers, by their number."""

    def __init__(self, say: Callable[[int], Told], *, ends: bool = False) -> None:
        self.asked = 0
        self.lineage = SimpleNamespace(confirmed=lambda *args, **named: None)
        self._say, self._ends = say, ends
        self.session = session()

    async def within(self, act: Callable[[Any], Awaitable[None]]) -> None:
        if self._ends:
            self.session = session(self.asked)
        await act(SimpleNamespace(session=self.session, head=lambda: None, ask=self._ask))

    async def _ask(self, *args: Any) -> Told:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        return self._say(self.asked)


def awaiting(hasty: Hasty, one: Job) -> Awaited:
    """A job is stored, and has no answers yet."""
    awaited = Awaited(hasty, 60.0, lambda jobs: None, lambda: None)  # type: ignore[arg-type]
    awaited.add(one)
    awaited.stored(one, hasty.session)
    return awaited


async def asked(hasty: Hasty, events: int = 1) -> int:
    """Returns how often it is asked in SECONDS for the answers of a job, which is sent again as often as it wants."""
    one = job(events)

    def send_again(jobs: Any) -> None:
        awaited.stored(one, session(0))

    awaited = Awaited(hasty, 60.0, send_again, lambda: None)  # type: ignore[arg-type]
    awaited.add(one)
    awaited.stored(one, session(0))
    with trio.move_on_after(SECONDS):
        await awaited.listen()
    return hasty.asked


@pytest.mark.parametrize(
    "told",
    [Told(0, []), Told(5, [outcomes(7, 0)]), Told(5, [outcomes(1, 9)]), Told(5, [outcomes(1, 0)])],
    ids=["nothing", "of others", "of other events", "the same again"],
)
@pytest.mark.parametrize("ends", [False, True], ids=["", "in a new session each time"])
async def test_it_is_asked_about_once_a_second_while_it_tells_nothing_new(
    told: Told, ends: bool, autojump_clock: trio.testing.MockClock
) -> None:
    assert 10 < await asked(Hasty(lambda number: told, ends=ends), 2) < 4 * SECONDS


async def test_it_is_asked_at_once_while_answers_come(autojump_clock: trio.testing.MockClock) -> None:
    hasty, one = Hasty(lambda number: Told(number, [outcomes(1, number - 1)])), job(500)
    begun = trio.current_time()
    awaited = awaiting(hasty, one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(awaited.listen)
        await one.ended.wait()
        nursery.cancel_scope.cancel()

    assert hasty.asked == 500
    assert trio.current_time() < begun + 1


async def test_what_fails_ends_what_waits(autojump_clock: trio.testing.MockClock) -> None:
    def fail(number: int) -> Told:
        raise Later("no answer")

    assert await asked(Hasty(fail)) == 1


async def test_a_principal_that_sends_no_answers_is_said_to_be_wrong(autojump_clock: trio.testing.MockClock) -> None:
    def fail(number: int) -> Told:
        raise FrameError("no such message")

    one = job(1)
    with trio.move_on_after(SECONDS):
        await awaiting(Hasty(fail), one).listen()

    with pytest.raises(Later) as error:
        one.result()
    assert error.value.code == Code.BAD_ANSWER


async def test_a_job_ends_once_and_waits_for_no_answer_then() -> None:
    one, other, hasty = job(1), job(1), Hasty(lambda number: Told(0, []))
    awaited = Awaited(hasty, 60.0, lambda jobs: None, lambda: None)  # type: ignore[arg-type]
    awaited.add(one)
    awaited.add(other)
    one.end(Answers(1))
    one.end(error=Later("too late"))
    awaited.stored(one, hasty.session)
    awaited.remove(one)

    assert one.result() == Answers(1)
    assert awaited.is_under_way, "the other part of the same batch"
    awaited.remove(other)
    assert not awaited.is_under_way
