"""What the watchdog is fed by."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from shipper.protocol.messages import Observed, QueueFigures, Unit
from shipper.sdk.codes import Code
from shipper.supervise.alive import STALLED_SECONDS, Alive
from shipper.supervise.vault import Vault
from shipper.values import DeadLetterFigures, Revisions


def observed(code: str = Code.OK, *units: Unit) -> Observed:
    queue = QueueFigures(events=0, bytes=0, limit_bytes=0, oldest_seconds=0.0, disk_bytes=0)
    return Observed(
        state="DEGRADED",
        message="",
        code=code,
        revisions=Revisions(),
        draining=(),
        units=units,
        queue=queue,
        dead_letters=DeadLetterFigures(),
        credentials_in_use=(),
        credentials_wanted=(),
    )


class Member:
    """A member with a real state directory, whose disk answers when it is let."""

    def __init__(self, state: Path) -> None:
        self.name, self.observed = str(state), observed()
        self.vault = Vault(state)
        self.answers = threading.Event()
        self.answers.set()
        self.touched, self.durable = 0, threading.Event()

    def touch(self) -> None:
        self.touched += 1
        self.answers.wait(60)
        self.vault.touch()
        self.durable.set()


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path / "state")


async def test_a_member_whose_disk_answers_is_well(member: Member) -> None:
    told: list[str | None] = []

    assert await Alive([member], told.append).check(60)
    assert (member.touched, told) == (1, [])


async def test_a_disk_that_does_not_answer_is_told_once_until_it_does(member: Member) -> None:
    told: list[str | None] = []
    alive = Alive([member], told.append)
    member.answers.clear()

    assert [await alive.check(0.01) for _ in range(3)] == [False] * 3
    assert told == [f"the disk under {member.name} does not answer"]
    member.answers.set()
    assert await alive.check(60)
    assert told[1:] == [None]


async def test_a_disk_that_answers_between_two_checks_is_alive(member: Member) -> None:
    alive = Alive([member], lambda what: None)
    member.answers.clear()
    assert not await alive.check(0.01)

    member.answers.set()
    assert await trio.to_thread.run_sync(member.durable.wait, 60)
    member.answers.clear()
    with trio.fail_after(60):
        while not await alive.check(0.01):
            pass
    member.answers.set()


async def test_a_disk_that_does_not_answer_takes_one_thread(member: Member) -> None:
    alive = Alive([member], lambda what: None)
    member.answers.clear()
    for _ in range(3):
        await alive.check(0.01)

    assert member.touched == 1
    member.answers.set()


async def test_a_disk_that_answers_with_an_error_is_alive(member: Member) -> None:
    member.vault.close()

    assert await Alive([member], lambda what: None).check(60)


@pytest.mark.parametrize(
    "said",
    [observed(Code.DISK_SILENT), observed(Code.OK, Unit("inputs.a", "input", "file", "DEGRADED", code="disk_silent"))],
)
async def test_a_writer_that_has_not_answered_for_too_long_is_not_alive(
    member: Member, said: Observed, mock_clock: MockClock
) -> None:
    alive = Alive([member], lambda what: None)
    member.observed = said

    assert await alive.check(60)
    mock_clock.jump(STALLED_SECONDS + 1)
    assert not await alive.check(60)


async def test_a_writer_that_answers_now_and_then_is_alive(member: Member, mock_clock: MockClock) -> None:
    alive = Alive([member], lambda what: None)
    for said in (Code.DISK_SILENT, Code.OK, Code.DISK_SILENT):
        member.observed = observed(said)
        assert await alive.check(60)
        mock_clock.jump(STALLED_SECONDS - 1)
