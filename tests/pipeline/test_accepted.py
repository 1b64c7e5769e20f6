"""What shows that a destination accepts a credential, and how an output without events learns it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from shipper.pipeline.destination.accepted import is_accepted, shows_acceptance
from shipper.plugin import Held, OutputContext, StartFailed
from shipper.plugin.asking import Finding, Question, Tell
from tests.fakes import DESTINATIONS, PATIENCE, ScriptedOutput, bench


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], False),
        ([("address", "good"), ("login", "good"), ("destination", "good")], True),
        ([("login", "good"), ("privilege", "bad")], False),
        ([("login", "bad")], False),
        ([("address", "bad"), ("login", "good")], True),
        ([("login", "unknown"), ("destination", "good")], True),
        ([("login", "unknown"), ("destination", "unknown")], False),
        ([("address", "bad")], False),
    ],
)
def test_a_login_that_is_good_is_accepted_and_one_host_that_is_away_changes_nothing(
    findings: list[tuple[str, str]], expected: bool
) -> None:
    assert shows_acceptance([Finding(asked, "es-1", verdict) for asked, verdict in findings]) is expected  # type: ignore[arg-type]


async def test_a_credential_is_accepted_once_an_event_was_taken_with_it_and_not_by_a_refusal(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        script = DESTINATIONS["main"]
        script.send = script.raising(Held("401"), times=1)
        await on.enter()
        await script.until(lambda: bool(on.active["main"].problem))
        assert on.delivery.pool.accepted() == []
        await on.empty()

        assert on.delivery.pool.accepted() == ["k1"]


class Asking:
    """An `Output.ask` that notes with which credentials it begins and ends."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.may_answer, self.has_begun = trio.Event(), trio.Event()

        async def ask(output: ScriptedOutput, context: OutputContext, question: Question, tell: Tell) -> None:
            ids = ",".join(context.credentials)
            self.log.append(f"asks {ids}")
            self.has_begun.set()
            try:
                await self.may_answer.wait()
                tell(Finding("login", "es-1", "good"))
            finally:
                self.log.append(f"has asked {ids}")

        patch.setattr(ScriptedOutput, "ask", ask)

    @property
    def is_under_way(self) -> bool:
        return len(self.log) % 2 == 1


async def test_a_lane_without_events_is_accepted_when_its_destination_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(monkeypatch)
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        on.delivery.pool.ask({"k2"})
        on.delivery.pool.ask({"k1"})
        asking.may_answer.set()
        await DESTINATIONS["main"].until(lambda: on.delivery.pool.accepted() == ["k1"])
        before = [*asking.log]
        on.delivery.pool.ask({"k1"})

    assert {*asking.log} == {"asks k1", "has asked k1"}
    assert asking.log == before


async def test_a_question_that_is_ahead_of_its_revision_is_asked_once_that_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(monkeypatch)
    asking.may_answer.set()
    async with bench(tmp_path) as on:
        on.delivery.pool.ask({"k1"})
        await on.activate(1, main="k1")
        await DESTINATIONS["main"].until(lambda: on.delivery.pool.accepted() == ["k1"])


@pytest.mark.parametrize("news", ["retired", "withdrawn", "event"])
async def test_a_question_ends_with_its_connection_before_anything_else_happens_to_the_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, news: str
) -> None:
    asking = Asking(monkeypatch)
    async with bench(tmp_path) as on:
        await on.activate(1, main="k1")
        on.delivery.pool.ask({"k1"})
        with trio.fail_after(PATIENCE):
            await asking.has_begun.wait()
        if news == "retired":
            await on.activate(2, main="k2")
        elif news == "withdrawn":
            on.keyring.withdraw(["k1"])
            on.delivery.pool.withdrawn(["k1"])
        else:
            await on.enter()
            await on.empty()
        await DESTINATIONS["main"].until(lambda: not asking.is_under_way)

    assert {*asking.log} == {"asks k1", "has asked k1"}


@pytest.mark.parametrize("error", [StartFailed("no library"), ZeroDivisionError("a secret")])
async def test_an_output_that_fails_to_ask_does_not_show_that_a_credential_is_accepted(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ScriptedOutput, "ask", fail)

    assert not await is_accepted(ScriptedOutput(), OutputContext("main", None, {}))  # type: ignore[arg-type]
