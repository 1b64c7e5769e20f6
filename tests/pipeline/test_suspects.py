"""Events that an output cannot handle: each becomes a dead letter, and nothing else does, whatever the output does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.attempts.suspects import FAILURES, MOST, Suspects, blames_event, said
from shipper.pipeline.delivery.request import LETTERS_FULL
from shipper.plugin import Answer, Answers, Outcome, PluginFault, StartFailed
from shipper.sdk.event import Batch
from shipper.spool.dead_letters import Limits
from shipper.spool.limits import SpoolLimits
from tests.fakes import DESTINATIONS, Bench, Destination, Send, bench, poke, secret

SECRET = "what the event says"


@asynccontextmanager
async def filled(path: Path, *batches: int) -> AsyncIterator[tuple[Bench, Destination]]:
    """A lane that holds batches of so many events, and begins to send them with `begin`."""
    async with bench(path) as on:
        await on.activate(1, {"main": {"workers": 1}}, main="missing")
        for count in batches:
            await on.enter(count)
        yield on, DESTINATIONS["main"]


def begin(on: Bench) -> None:
    on.keyring.keep({"missing": secret("missing")})
    poke(on.delivery)


def choking(script: Destination, on_numbers: Sequence[int], error: Exception | None = None) -> Send:
    """A send with a bug that these events bring out."""

    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        if any(event["n"] in on_numbers for event in batch.own()):
            raise error if error is not None else ZeroDivisionError(SECRET)
        return script.answer(batch, {})

    return send


def counts(on: Bench) -> dict[str, int]:
    return {name: count for name, count in on.active["main"].counters.items() if count and name != "retries"}


# -- what becomes of events --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "poison"),
    [
        ((1000,), [567]),
        ((100,), [0, 99]),
        ((1, 1), [0]),
        ((1, 6000), [0]),
        ((3, 3, 3), [3, 4, 5]),
        ((1, 1, 1, 1, 1, 1), [1, 2, 3]),
        ((40, 5), [*range(5, 35)]),
        ((20, 1), [*range(20)]),
    ],
)
async def test_just_the_events_that_an_output_cannot_handle_become_dead_letters(
    tmp_path: Path, batches: Sequence[int], poison: list[int]
) -> None:
    async with filled(tmp_path, *batches) as (on, script):
        script.send = choking(script, poison)
        begin(on)
        await on.empty()
        letters = await on.spool.letters.page(0, 100)

        every = range(sum(batches))
        assert sorted(script.received) == [n for n in every if n not in poison]
        assert counts(on) == {"delivered": len(every) - len(poison), "dead_letter": len(poison)}
        assert {letter["reason"].partition(":")[0] for letter in letters} == {"the output failed"}
        assert SECRET not in str([letter["reason"] for letter in letters])


async def test_an_output_that_fails_on_everything_gives_up_nothing_and_says_why(tmp_path: Path) -> None:
    async with filled(tmp_path, 20, 1, 30) as (on, script):
        script.send = script.raising(ZeroDivisionError(SECRET))
        begin(on)
        await script.until(lambda: on.active["main"].link.counters["retries"] >= 4 * FAILURES)
        problem, asked, failing = on.active["main"].problem, len(script.asked), on.active["main"].failing
        assert (counts(on), on.spool.figures.total().events) == ({}, 51)
        script.send = script.deliver
        await on.empty()

        assert problem is not None
        assert problem.startswith("the output failed: ZeroDivisionError at fakes.py:")
        assert failing is not None
        assert failing[0] == on.seqs[0]
        assert asked < 4 * FAILURES * 20 * 8  # no storm
        assert counts(on) == {"delivered": 51}


async def test_an_event_that_waits_alone_is_given_up_when_another_one_was_delivered(tmp_path: Path) -> None:
    async with filled(tmp_path, 1) as (on, script):
        script.send = choking(script, [0])
        begin(on)
        await script.until(lambda: on.active["main"].link.counters["retries"] > 2 * FAILURES)
        assert counts(on) == {}
        await on.enter(1)
        await on.empty()

        assert counts(on) == {"delivered": 1, "dead_letter": 1}


async def test_a_batch_that_fails_a_few_times_is_delivered_whole(tmp_path: Path) -> None:
    async with filled(tmp_path, 50, 1) as (on, script):
        script.send = script.raising(ZeroDivisionError(), times=FAILURES)
        begin(on)
        await on.empty()

        assert counts(on) == {"delivered": 51}


async def test_an_event_that_failed_alone_by_chance_is_delivered(tmp_path: Path) -> None:
    async with filled(tmp_path, 8, 1) as (on, script):
        chokes = choking(script, [4])

        async def send(batch: Batch) -> Answers:
            if "send 1" in script.log[:-1] and script.asked.count(4) > FAILURES + 4:
                return await script.deliver(batch)
            return await chokes(batch)

        script.send = send
        begin(on)
        await on.empty()

        assert counts(on) == {"delivered": 9}


async def test_a_barrier_is_passed_though_an_event_below_it_cannot_be_handled(tmp_path: Path) -> None:
    async with filled(tmp_path, 10) as (on, script):
        script.send = choking(script, [4])
        old = on.active["main"]
        begin(on)
        await on.activate(2, main="other")
        await on.empty()

        assert old.link.counters["dead_letter"] == 1
        assert on.barriers == 1


@pytest.mark.parametrize("error", [ConnectionResetError(), EOFError(), trio.BrokenResourceError()])
async def test_a_connection_that_breaks_on_some_batches_makes_no_dead_letters(tmp_path: Path, error: Exception) -> None:
    async with filled(tmp_path, 10, 1) as (on, script):
        script.send = choking(script, [4], error)
        begin(on)
        await script.until(lambda: on.active["main"].link.counters["retries"] > 3 * FAILURES)
        assert counts(on) == {}
        script.send = script.deliver
        await on.empty()

        assert counts(on) == {"delivered": 11}


async def test_what_has_no_room_among_the_dead_letters_is_held_and_holds_up_nothing(tmp_path: Path) -> None:
    async with filled(tmp_path, 5, 1) as (on, script):
        on.spool.limits = SpoolLimits(Limits(10, "hold"))
        script.send = choking(script, [2])
        begin(on)
        await script.until(lambda: len(script.received) == 5)
        await on.enter(20)
        await script.until(lambda: len(script.received) == 25)
        await script.until(lambda: on.spool.figures.total().events == 1)
        await script.until(lambda: on.active["main"].problem == LETTERS_FULL)
        await on.spool.revisions.take_over(SpoolLimits())
        on.active["main"].has_room()
        await on.empty()

        assert counts(on) == {"delivered": 25, "dead_letter": 1}


@pytest.mark.parametrize(
    "answers",
    [
        None,
        Answers(1, {0: Answer(Outcome.REJECTED, 7)}),  # type: ignore[arg-type]
        Answers(1, {0: "rejected"}),  # type: ignore[dict-item]
        Answers(1, {"0": Answer(Outcome.REJECTED)}),  # type: ignore[dict-item]
    ],
)
async def test_an_event_for_which_the_output_has_no_proper_answer_becomes_a_dead_letter(
    tmp_path: Path, answers: Answers
) -> None:
    async with filled(tmp_path, 1, 1) as (on, script):

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            return answers if batch.own()[0]["n"] == 0 else script.answer(batch, {})

        script.send = send
        begin(on)
        await on.empty()
        (letter,) = await on.spool.letters.page(0, 10)

        assert counts(on) == {"delivered": 1, "dead_letter": 1}
        assert letter["reason"].startswith(("the output answered ", "the output returned "))


async def test_an_event_of_a_target_that_refuses_others_is_given_up_too(tmp_path: Path) -> None:
    async with filled(tmp_path, 6, 20) as (on, script):
        script.target = lambda n: "bad" if n < 6 else "good"
        script.refused = {"bad"}
        begin(on)
        await script.until(lambda: len(script.received) == 20)
        script.send = choking(script, [3])
        script.refused.clear()
        await on.enter(1)
        await on.empty()

        assert counts(on) == {"delivered": 26, "dead_letter": 1}


def _fails(n: int) -> str:
    raise KeyError(SECRET)


@pytest.mark.parametrize("nowhere", [_fails, lambda n: n])
async def test_an_output_that_cannot_say_where_an_event_goes_sends_it(
    tmp_path: Path, nowhere: Callable[[int], str]
) -> None:
    async with filled(tmp_path, 6, 20) as (on, script):
        script.target = lambda n: "bad" if n < 6 else "good"
        script.refused = {"bad"}
        begin(on)
        await script.until(lambda: len(script.received) == 20)

        script.send, script.target = choking(script, [3]), nowhere
        deliver = script.answer
        script.answer = lambda batch, others: Answers(batch.count, others)  # type: ignore[method-assign]
        await on.enter(1)
        await on.empty()
        script.answer = deliver  # type: ignore[method-assign]

        assert counts(on) == {"delivered": 26, "dead_letter": 1}


# -- the bookkeeping ---------------------------------------------------------------------------------------------------


def test_of_too_many_failures_the_oldest_is_forgotten() -> None:
    suspects = Suspects()
    for seq in range(MOST + 1):
        suspects.failed(seq)

    assert (0 in suspects, 1 in suspects, MOST in suspects) == (False, True, True)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2 * MOST)), max_size=400))
def test_failures_are_remembered_in_a_row_and_not_without_bound(steps: list[tuple[bool, int]]) -> None:
    suspects, failures = Suspects(), dict[int, int]()
    for is_failure, seq in steps:
        if is_failure:
            suspects.failed(seq)
            failures[seq] = failures.get(seq, 0) + 1
        else:
            suspects.settled(seq)
            failures[seq] = 0

    known = [seq for seq in failures if seq in suspects]
    assert len(known) <= MOST
    assert all(failures[seq] for seq in known)
    assert all(failures[seq] >= FAILURES for seq in known if suspects.are_known([seq]))
    if len(failures) <= MOST:
        assert [suspects.are_known([seq]) for seq in failures] == [count >= FAILURES for count in failures.values()]


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    cause.__context__ = error  # a circle
    return error


def test_what_the_way_may_cause_is_blamed_on_no_event() -> None:
    for error, blames in [
        (ValueError(), True),
        (PluginFault("x"), True),
        (ExceptionGroup("", [KeyError()]), True),
        (caused(RuntimeError(), KeyError()), True),
        (OSError(), False),
        (StartFailed("x"), False),
        (ExceptionGroup("", [KeyError(), TimeoutError()]), False),
        (caused(RuntimeError(), ConnectionError()), False),
    ]:
        assert blames_event(error) is blames


def test_an_error_is_told_by_type_and_place_without_its_text() -> None:
    assert said(ExceptionGroup("", [ValueError(SECRET)])) == "the output failed: ValueError"
    assert said(PluginFault("the output answered with None")) == "the output answered with None"
