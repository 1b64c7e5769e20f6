"""Strict order: of a lane that is fed in order nothing is sent before what came earlier has its final answer.

What a session does without that is tested with its lane (`test_lane`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from shipper.plugin import Answer, Answers, Code, Held, Later, Outcome, TooLarge
from shipper.sdk.event import Batch
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from tests.fakes import DESTINATIONS, Bench, Destination, Send, bench, poke, secret


@asynccontextmanager
async def in_order(path: Path, *batches: int, events: int = 2) -> AsyncIterator[tuple[Bench, Destination]]:
    """A lane in strict order that holds batches of so many events, and begins to send them with `begin`."""
    async with bench(path) as on:
        script = DESTINATIONS["main"]
        script.feeding |= {"ordered": True, "events": events}
        await on.activate(1, {"main": {"workers": 4}}, main="missing")
        for count in batches:
            await on.enter(count)
        yield on, script


def begin(on: Bench) -> None:
    on.keyring.keep({"missing": secret("missing")})
    poke(on.delivery)


def in_turn(script: Destination, outcome: Outcome, *numbers: int, times: int, of_target: bool = False) -> Send:
    """A send that takes events in their order up to the first of these, each of which it refuses so often."""
    left = dict.fromkeys(numbers, times)

    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        own = [event["n"] for event in batch.own()]
        refused = next((at for at, n in enumerate(own) if left.get(n)), len(own))
        if refused < len(own):
            left[own[refused]] -= 1
        return script.answer(batch, {at: Answer(outcome, "not now", of_target) for at in range(refused, len(own))})

    return send


@pytest.mark.parametrize("outcome", [Outcome.LATER, Outcome.HELD])
async def test_an_event_that_is_refused_stops_the_lane_until_it_is_taken(tmp_path: Path, outcome: Outcome) -> None:
    async with in_order(tmp_path, *[3] * 12) as (on, script):
        script.send = in_turn(script, outcome, 0, 7, 8, 20, times=3)
        begin(on)
        await on.empty()

        assert script.received == list(range(36))


async def test_an_event_that_is_refused_for_ever_holds_all_that_came_later(tmp_path: Path) -> None:
    async with in_order(tmp_path, *[1] * 9) as (on, script):
        script.send = in_turn(script, Outcome.HELD, 4, times=1_000_000)
        begin(on)
        await script.until(lambda: script.asked.count(4) > 3)
        lane = on.active["main"]

        assert script.received == [0, 1, 2, 3]
        assert max(script.asked) <= 5
        assert (lane.problem, lane.is_held) == ("not now, events held", True)
        assert lane.failing is not None
        assert lane.failing[0] == on.seqs[4]
        poke(on.delivery)
        script.send = script.deliver
        await on.empty()
        await script.until(lambda: lane.failing is None)


async def test_a_destination_that_is_not_there_makes_no_batch_one_that_fails(tmp_path: Path) -> None:
    async with in_order(tmp_path, 1, 1) as (on, script):
        script.send = script.raising(Later("503"))
        begin(on)
        await script.until(lambda: len(script.asked) > 3)

        assert on.active["main"].problem == "503"
        assert on.active["main"].failing is None


async def test_a_batch_that_fails_again_and_again_does_so_since_its_first_failure(tmp_path: Path) -> None:
    async with in_order(tmp_path, 1, 1, 1) as (on, script):
        script.send = in_turn(script, Outcome.LATER, 1, times=1_000_000)
        begin(on)
        await script.until(lambda: script.asked.count(1) > 1)
        first, now = on.active["main"].failing, trio.current_time()
        await script.until(lambda: script.asked.count(1) > 4)
        later = on.active["main"].failing

        assert first is not None
        assert later is not None
        assert (first[0], later[0]) == (on.seqs[1], on.seqs[1])
        assert later[1] >= first[1] + trio.current_time() - now - 0.01


async def test_the_order_is_kept_over_a_restart(tmp_path: Path) -> None:
    async with in_order(tmp_path, *[3] * 6) as (on, script):
        script.send = in_turn(script, Outcome.LATER, 7, times=1_000_000)
        begin(on)
        await script.until(lambda: script.asked.count(7) > 2)
        before = list(script.received)
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.feeding |= {"ordered": True, "events": 2}
        on.keyring.keep({"missing": secret("missing")})
        await on.delivery.restore(await on.spool.revisions.lanes())
        await on.empty()

        assert before == list(range(7))
        assert script.received == list(range(7, 18))


async def test_one_request_is_under_way_whatever_the_policy_says_of_workers(tmp_path: Path) -> None:
    async with in_order(tmp_path, *[2] * 8) as (on, script):
        script.send = script.hang
        begin(on)
        await script.until(lambda: script.sending == 1)
        await trio.testing.wait_all_tasks_blocked(0.05)

        assert script.sending == 1


async def test_an_event_that_is_rejected_is_a_dead_letter_and_the_lane_goes_on(tmp_path: Path) -> None:
    async with in_order(tmp_path, *[3] * 4) as (on, script):
        script.send = script.refusing(4, outcome=Outcome.REJECTED, reason="400")
        begin(on)
        await on.empty()

        assert script.received == [n for n in range(12) if n != 4]
        assert script.asked == list(range(12))
        assert [letter["reason"] for letter in (await on.spool.letters.page(0, 10))] == ["400"]


async def test_a_dead_letter_without_room_stops_the_lane_until_there_is_room(tmp_path: Path) -> None:
    async with in_order(tmp_path, *[1] * 6, events=1) as (on, script):
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        script.send = script.refusing(2, outcome=Outcome.REJECTED)
        begin(on)
        await script.until(lambda: script.asked.count(2) > 1)

        assert script.received == [0, 1]
        assert on.active["main"].code == Code.DEAD_LETTERS_FULL
        on.spool.limits = SpoolLimits()
        await on.empty()
        assert script.received == [0, 1, 3, 4, 5]


async def test_room_for_dead_letters_hastens_a_lane_that_it_stopped(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.feeding |= {"ordered": True, "events": 1, "backoff": (1000.0, 1000.0)}
        await on.activate(1, main=None)
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        script.send = script.refusing(0, outcome=Outcome.REJECTED)
        await on.enter()
        await on.enter()
        await script.until(lambda: on.active["main"].next_attempt is not None)
        on.spool.limits = SpoolLimits()
        on.active["main"].has_room()
        await on.empty()

        assert script.received == [1]


@pytest.mark.parametrize("error", [Later("503"), Held("401"), TooLarge("413"), OSError(), KeyError("a secret")])
async def test_whatever_becomes_of_requests_nothing_overtakes(tmp_path: Path, error: Exception) -> None:
    async with in_order(tmp_path, *[5] * 6, events=10) as (on, script):
        count = 0

        async def send(batch: Batch) -> Answers:
            nonlocal count
            await trio.lowlevel.checkpoint()
            count += 1
            if count % 3:
                raise error
            return script.answer(batch, {})

        script.send = send
        begin(on)
        await on.empty()

        letters = len(await on.spool.letters.page(0, 100))
        assert script.received == sorted(script.received)
        assert len(script.received) + letters == 30


@pytest.mark.parametrize("outcome", [Outcome.LATER, Outcome.HELD])
async def test_a_target_that_refuses_stops_the_lane_too(tmp_path: Path, outcome: Outcome) -> None:
    async with in_order(tmp_path, *[3] * 6) as (on, script):
        script.target = lambda n: "odd" if n % 2 else "even"
        script.send = in_turn(script, outcome, 1, 7, times=4, of_target=True)
        begin(on)
        await on.empty()

        assert script.received == list(range(18))


async def test_an_event_on_which_the_output_fails_is_given_up_only_after_events_of_its_batch(tmp_path: Path) -> None:
    async with in_order(tmp_path, 4, 4, events=4) as (on, script):

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if any(event["n"] == 2 for event in batch.own()):
                raise ZeroDivisionError
            return script.answer(batch, {})

        script.send = send
        begin(on)
        await on.empty()

        assert script.received == [0, 1, 3, 4, 5, 6, 7]


async def test_no_later_event_is_asked_first_whether_the_output_works(tmp_path: Path) -> None:
    async with in_order(tmp_path, 1, 1, 1, events=1) as (on, script):

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if any(event["n"] == 0 for event in batch.own()):
                raise ZeroDivisionError
            return script.answer(batch, {})

        script.send = send
        begin(on)
        await script.until(lambda: script.asked.count(0) > 8)

        assert set(script.asked) == {0}
        assert await on.spool.letters.page(0, 10) == []


# -- how much goes together, and what plugins get wrong ----------------------------------------------------------------


async def test_no_more_text_goes_together_than_the_output_wants(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.feeding["bytes"] = 10_000
        await on.activate(1, main="missing")
        await on.enter(1, batches=10, padding=4000)
        await on.enter(5, batches=2, padding=4000)
        begin(on)
        await on.empty()

        sizes = [int(line.split()[1]) for line in script.log if line.startswith("send")]
        assert sorted(sizes) == [2, 2, 2, 2, 2, 5, 5]


async def test_an_output_that_leaves_out_an_event_in_its_answers_loses_none(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            kept = [at for at, event in enumerate(batch.own()) if event["n"] != 3]
            if len(kept) < batch.count:
                return Answers(len(kept))
            return script.answer(batch, {})

        script.send = send
        await on.activate(1, main=None)
        await on.enter(5)
        await on.empty()
        (letter,) = await on.spool.letters.page(0, 10)

        assert sorted(script.received) == [0, 1, 2, 4]
        assert letter["reason"] == "the output answered for 0 of 1 events"


async def test_a_wait_that_is_no_number_is_shown_and_the_backoff_applies(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        script = DESTINATIONS["main"]
        script.send = script.raising(Later("429", "soon"))  # type: ignore[arg-type]
        await on.activate(1, main=None)
        await on.enter()
        await script.until(lambda: len(script.asked) > 3)
        lane = on.active["main"]

        assert lane.code == Code.PLUGIN_FAULT
        assert lane.problem == "the output states a wait that is no number of seconds: 429"
        script.send = script.deliver
        await on.empty()
        assert lane.problem is None
