"""The bookkeeping of one attempt: whatever is answered, every event is counted once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.attempts.attempt import MOST_WAIT, SMALL_BYTES, Attempt, Trouble, seconds
from shipper.plugin import Answer, Answers, Code, Later, Outcome, PluginFault
from shipper.process import log
from shipper.sdk.answers import Ranked
from shipper.sdk.event import Batch
from shipper.sdk.state import Version, digest_of
from shipper.sdk.weights import MOST_WEIGHT
from shipper.values import Counts

OUTCOMES = st.sampled_from(sorted(set(Outcome) - {Outcome.SUPERSEDED}, key=str))


def batch(count: int) -> Batch:
    return Batch.documents([b'{"n":%d}' % n for n in range(count)])


def later(reason: str = "429") -> Answer:
    return Answer(Outcome.LATER, reason)


def test_what_was_delivered_is_held_no_longer_and_still_counted() -> None:
    attempt = Attempt(batch(5))
    piece = attempt.next_piece()
    assert piece is not None
    attempt.answered(piece[0], Answers(5))

    assert attempt.batch.count == 0
    assert attempt.next_piece() is None
    settlements = [attempt.settlement("main", part) for part in (range(2), range(2, 5))]
    assert [settlement.counts.delivered for settlement in settlements if settlement is not None] == [2, 3]


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.LATER, Outcome.HELD, "too_large", "broke", "put_off"])
def test_a_reason_of_an_output_loses_its_secrets(outcome: Outcome | str) -> None:
    """What it becomes is stored as the reason of a dead letter, and shown by the status: not only the log."""
    log.hide("hunter2-in-a-reason")
    reason = "refused hunter2-in-a-reason"
    attempt = Attempt(Batch.documents([b'{"n":"%s"}' % (b"x" * (SMALL_BYTES + 1))]))
    piece = attempt.next_piece()
    assert piece is not None
    if isinstance(outcome, Outcome):
        attempt.answered(piece[0], Answers(1, {0: Answer(outcome, reason, code="own_code")}))
    elif outcome == "too_large":
        attempt.too_large(piece[0], reason)
    elif outcome == "broke":
        attempt.broke(piece[0], reason, works_otherwise=True)
        attempt.give_up_doubted()
    else:
        attempt.put_off(Later(reason))

    settlement = attempt.settlement("main", range(1))
    letters = [letter.reason for letter in settlement.letters] if settlement is not None else []
    found = [*letters, attempt.worst().reason, *(each.reason for each in (attempt.trouble, attempt.doubt) if each)]
    assert {reason for reason in found if reason} == {"refused [hidden]"}


def test_what_the_destination_had_already_is_counted_apart() -> None:
    attempt = Attempt(batch(5))
    piece = attempt.next_piece()
    assert piece is not None
    attempt.answered(piece[0], Answers(5, {1: Answer(Outcome.DUPLICATE), 3: Answer(Outcome.DUPLICATE)}))

    counts = [settlement.counts for part in (range(2), range(2, 5)) if (settlement := attempt.settlement("main", part))]
    assert [(count.delivered, count.duplicate) for count in counts] == [(1, 1), (2, 1)]


def test_events_that_share_much_are_sent_in_parts() -> None:
    """They may be of a spool that did not part them."""
    heavy = Batch.documents([b'{"n":%d}' % n for n in range(40)], shared={"a": "x" * 1_000_000})
    attempt, sent = Attempt(heavy), list[int]()
    while (piece := attempt.next_piece()) is not None:
        positions, events = piece
        assert events.weight <= MOST_WEIGHT
        assert [event["n"] for event in events.own()] == list(positions)
        sent += positions
        attempt.answered(positions, Answers(len(positions)))

    assert sent == list(range(40))
    assert attempt.progress == 40


@given(
    count=st.integers(1, 40),
    probed=st.none() | st.integers(1, 10),
    keep=st.booleans(),
    ordered=st.booleans(),
    data=st.data(),
)
def test_every_event_is_counted_once_whatever_is_answered(
    count: int, probed: int | None, keep: bool, ordered: bool, data: st.DataObject
) -> None:
    attempt = Attempt(batch(count)) if probed is None else Attempt.probe(batch(count), probed)
    attempt.ordered = ordered
    final: dict[int, Outcome] = {}
    doubted: list[int] = []
    while (piece := attempt.next_piece()) is not None:
        positions, events = piece
        assert not ordered or list(final) == list(range(positions[0]))
        assert not ordered or not {Outcome.LATER, Outcome.HELD} & set(final.values())
        assert [event["n"] for event in events.own()] == list(positions)
        match data.draw(st.sampled_from(["answers", "short", "wild", "too large", "trouble", "held", "broken"])):
            case "answers":
                others = data.draw(st.dictionaries(st.integers(0, len(positions) - 1), OUTCOMES))
                answers = {at: Answer(outcome, "why") for at, outcome in others.items()}
                attempt.answered(positions, Answers(len(positions), answers))
                final |= {n: others.get(at, Outcome.DELIVERED) for at, n in enumerate(positions)}
            case "short" | "wild" as fault:
                wild = {len(positions): Answer(Outcome.DUPLICATE)} if fault == "wild" else {}
                with pytest.raises(PluginFault):
                    attempt.answered(positions, Answers(len(positions) - (fault == "short"), wild))
                attempt.failed(Trouble("a fault"))
            case "broken":
                attempt.broke(positions, "broken", works_otherwise=data.draw(st.booleans()))
                if len(positions) == 1:
                    doubted.append(positions[0])
                    final[positions[0]] = Outcome.LATER
            case "too large":
                attempt.too_large(positions, "413")
                if len(positions) == 1:
                    final[positions[0]] = Outcome.HELD  # it is small
            case "trouble":
                attempt.failed(Trouble("503"))
            case "held":
                attempt.failed(Trouble("401", held=True))
    assert attempt.overloaded() is not None or not ordered or len(final) == min(count, probed or count)
    if data.draw(st.booleans()):
        attempt.give_up_doubted()
        final |= dict.fromkeys(doubted, Outcome.REJECTED)
    settlement = attempt.settlement("main", letters=() if keep else None)
    settled = [n for n, outcome in final.items() if outcome not in (Outcome.LATER, Outcome.HELD)]
    if keep:
        settled = [n for n in settled if final[n] is not Outcome.REJECTED]

    if settlement is None:
        assert settled == []
    else:
        rest = [] if settlement.rest is None else [event["n"] for event in settlement.rest.own()]
        assert sorted(rest + settled) == list(range(count))
        assert settlement.counts.answered == len(settled)
        assert len(settlement.letters) == [final[n] for n in settled].count(Outcome.REJECTED)
        assert settlement.answers == {n: final[n] for n in settled if final[n] is not Outcome.DELIVERED}
        assert settlement.counts == Counts(**Counter(Ranked.of(final[n]).name.lower() for n in settled))
        assert settlement.rest is None or settlement.rest.items == rest


def test_what_is_too_large_comes_in_halves_and_in_order() -> None:
    attempt = Attempt(batch(4))
    seen = []
    while (piece := attempt.next_piece()) is not None:
        seen.append(list(piece[0]))
        if len(piece[0]) > 1:
            attempt.too_large(piece[0], "413")
        else:
            attempt.answered(piece[0], Answers(1))

    assert seen == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3], [2], [3]]


def test_most_events_put_off_one_by_one_are_trouble() -> None:
    attempt = Attempt(batch(10))
    attempt.answered(range(10), Answers(10, {n: later() for n in range(6)}, retry_after=7.0))

    assert attempt.overloaded() == Trouble("429", retry_after=7.0)


def test_some_events_put_off_are_none() -> None:
    attempt = Attempt(batch(10))
    attempt.answered(range(10), Answers(10, {n: later() for n in range(5)}))

    assert attempt.overloaded() is None
    assert attempt.worst().reason == "429"


def test_in_strict_order_one_event_that_was_put_off_is_trouble_and_is_not_left_behind() -> None:
    attempt = Attempt(batch(10))
    attempt.ordered = True
    attempt.answered(range(10), Answers(10, {7: Answer(Outcome.HELD, "403")}, retry_after=3.0))

    assert attempt.overloaded() == Trouble("403", held=True, retry_after=3.0, code=Code.REFUSED)
    assert attempt.keeps(range(10)) is None


def test_a_wait_that_an_output_states_is_bounded() -> None:
    for stated, wait in [(None, None), (7, 7.0), (-1, 0.0), (math.inf, MOST_WAIT), (10**400, MOST_WAIT)]:
        assert seconds(stated) == wait


@pytest.mark.parametrize("stated", ["60", math.nan, True, [1.0]])
def test_a_wait_that_is_no_number_is_a_fault_of_the_plugin_and_other_answers_count(stated: Any) -> None:
    answered, raised = Attempt(batch(2)), Attempt(batch(2))
    answered.answered(range(2), Answers(2, {1: later()}, retry_after=stated))
    raised.put_off(Later("429", stated))

    for attempt, progress in ((answered, 1), (raised, 0)):
        assert attempt.trouble is not None
        assert (attempt.trouble.code, attempt.trouble.retry_after) == (Code.PLUGIN_FAULT, None)
        assert attempt.progress == progress


def test_a_probe_that_was_delivered_is_no_trouble() -> None:
    attempt = Attempt.probe(batch(1000), 8)
    attempt.answered(range(8), Answers(8))

    assert attempt.overloaded() is None
    assert attempt.progress == 8


def test_a_probe_that_was_put_off_is_trouble() -> None:
    attempt = Attempt.probe(batch(1000), 8)
    attempt.answered(range(8), Answers(8, {n: later() for n in range(8)}))

    assert attempt.overloaded() is not None


@pytest.mark.parametrize(("size", "outcome"), [(SMALL_BYTES - 9, "held"), (SMALL_BYTES - 8, "dead letter")])
def test_an_event_alone_that_is_too_large_is_a_dead_letter_if_it_is_large(size: int, outcome: str) -> None:
    attempt = Attempt(Batch.documents([b'{"n":"' + b"x" * size + b'"}', b'{"n":1}']))
    attempt.too_large(range(2), "413")
    attempt.too_large(range(1), "413")
    attempt.answered(range(1, 2), Answers(1))
    settlement = attempt.settlement("main")

    assert settlement is not None
    assert (settlement.counts.delivered, settlement.counts.dead_letter) == (1, outcome == "dead letter")
    assert attempt.trouble is attempt.overloaded() is None


@pytest.mark.parametrize("count", [1, 3, 8, 1000])
def test_a_destination_that_takes_no_small_event_is_asked_a_few_times(count: int) -> None:
    attempt, asked = Attempt(batch(count)), 0
    while (piece := attempt.next_piece()) is not None:
        asked += 1
        attempt.too_large(piece[0], "413")

    assert attempt.worst().reason.startswith("413 for one event of ")
    assert asked <= 32
    assert attempt.settlement("main") is None
    assert attempt.progress == 0


def test_events_that_can_be_delivered_are_found_behind_many_that_are_too_large() -> None:
    attempt, bad = Attempt(batch(1000)), range(100)
    while (piece := attempt.next_piece()) is not None:
        if set(piece[0]) & set(bad):
            attempt.too_large(piece[0], "413")
        else:
            attempt.answered(piece[0], Answers(len(piece[0])))
    settlement = attempt.settlement("main")

    assert settlement is not None
    assert settlement.counts.delivered == 900
    assert settlement.rest is not None
    assert settlement.rest.count == 100


def test_a_refusal_is_named_before_a_mere_delay() -> None:
    attempt = Attempt(batch(4))
    attempt.answered(range(4), Answers(4, {0: later(), 1: Answer(Outcome.HELD, "403")}))

    assert attempt.worst().reason == "403"


@pytest.mark.parametrize("held", [True, False])
def test_trouble_ends_the_attempt(held: bool) -> None:
    attempt = Attempt(batch(4))
    attempt.too_large(range(4), "413")
    piece = attempt.next_piece()
    assert piece is not None
    attempt.failed(Trouble("gone", held=held))

    assert attempt.next_piece() is None
    assert attempt.settlement("main") is None
    assert attempt.progress == 0


def test_what_was_never_asked_for_is_open() -> None:
    attempt = Attempt(Batch.events([{"n": n} for n in range(3)]))

    assert attempt.settlement("main") is None
    attempt.next_piece()
    assert attempt.settlement("main") is None
    assert attempt.progress == 0


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_the_verdicts_of_the_parts_are_the_verdict_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    attempt = Attempt(Batch.events([{"n": n} for n in range(total)]))
    outcomes = st.sampled_from([Outcome.DUPLICATE, Outcome.REJECTED, Outcome.LATER, Outcome.HELD])
    others = data.draw(st.dictionaries(st.integers(0, total - 1), outcomes.map(lambda o: Answer(o, "why"))))
    piece = attempt.next_piece()
    assert piece is not None
    attempt.answered(piece[0], Answers(total, others))

    start = 0
    for size in sizes:
        part = range(start, start + size)
        start += size
        settlement = attempt.settlement("main", part)
        left = [at for at in part if at in others and others[at].outcome in (Outcome.LATER, Outcome.HELD)]
        if len(left) == size:
            assert settlement is None
            continue
        assert settlement is not None
        assert settlement.counts.answered + len(left) == size
        assert settlement.counts.dead_letter == len(settlement.letters)
        assert (settlement.rest.count if settlement.rest is not None else 0) == len(left)


# -- targets -----------------------------------------------------------------------------------------------------------


def refused(*positions: int) -> dict[int, Answer]:
    return {at: Answer(Outcome.HELD, "403", of_target=True) for at in positions}


def with_targets(*targets: str) -> Attempt:
    attempt = Attempt(batch(len(targets)))
    attempt.targets = targets
    return attempt


def answer(attempt: Attempt, others: dict[int, Answer]) -> Sequence[int]:
    """Answer the next piece; returns which events were in it."""
    piece = attempt.next_piece()
    assert piece is not None
    attempt.answered(piece[0], Answers(len(piece[0]), others))
    return list(piece[0])


def test_events_of_places_that_refuse_are_left_out_and_stay_open() -> None:
    attempt = with_targets("a", "b", "a", "c")
    attempt.leave_out({"a"})

    assert answer(attempt, {}) == [1, 3]
    settlement = attempt.settlement("main")
    assert settlement is not None
    assert settlement.counts.delivered == 2
    assert settlement.rest is not None
    assert [event["n"] for event in settlement.rest.own()] == [0, 2]
    assert attempt.keeps(range(4)) == {"a"}


def test_a_batch_all_of_whose_places_refuse_is_not_sent() -> None:
    attempt = with_targets("a", "a")
    attempt.leave_out({"a"})

    assert (attempt.next_piece(), attempt.settlement("main"), attempt.is_asked) == (None, None, False)


def test_a_place_is_asked_with_a_few_of_its_events() -> None:
    attempt = with_targets("b", "a", "a", "a")
    attempt.ask_target("a", 2)

    assert answer(attempt, {}) == [1, 2]
    assert attempt.taking_targets() == {"a"}
    assert attempt.keeps(range(4)) == {"a", "b"}


def test_a_place_refuses_unless_it_takes_another_event_in_the_same_moment() -> None:
    attempt = with_targets("a", "a", "b", "c")
    answer(attempt, refused(0, 2))

    assert set(attempt.refused_targets()) == {"b"}
    assert attempt.taking_targets() == {"a", "c"}
    assert attempt.keeps(range(4)) == {"a", "b"}


def test_a_part_is_kept_by_what_keeps_its_own_events() -> None:
    attempt = with_targets("a", "b", "b", "c")
    answer(attempt, refused(0) | {3: later()})

    assert attempt.keeps(range(2)) == {"a"}
    assert attempt.keeps(range(2, 4)) == {None}


def test_of_rejected_events_those_become_letters_that_have_room() -> None:
    attempt = Attempt(batch(6))
    answer(attempt, {at: Answer(Outcome.REJECTED, "400") for at in (1, 2, 4)})
    settlement = attempt.settlement("main", range(1, 6), letters=[0, 2])

    assert settlement is not None
    assert settlement.rest is not None
    assert ([letter.item for letter in settlement.letters], [event["n"] for event in settlement.rest.own()]) == (
        [1, 4],
        [2],
    )
    assert settlement.counts == Counts(delivered=2, dead_letter=2)
    assert (attempt.rejected(range(1, 6)), attempt.rejected(range(3))) == (3, 2)


def test_what_was_not_asked_for_comes_again_at_once() -> None:
    probe = Attempt.probe(batch(4), 2)
    answer(probe, {})
    failed = Attempt(batch(4))
    failed.failed(Trouble("503"))

    assert (probe.keeps(range(4)), failed.keeps(range(4))) == (None, None)
    assert Attempt(batch(4)).keeps(range(4)) is None


def test_a_question_without_an_answer_leaves_its_events_to_their_targets() -> None:
    attempt = with_targets("a", "b", "a")
    attempt.ask_target("a", 1)
    assert attempt.keeps(range(3)) == {"a", "b"}
    attempt.failed(Trouble("503"))

    assert attempt.keeps(range(3)) == {"a", "b"}


def test_places_that_refuse_most_events_are_no_trouble_of_the_destination() -> None:
    attempt = with_targets("a", "a", "a", "b")
    answer(attempt, {at: Answer(Outcome.LATER, "404", of_target=True) for at in range(3)})

    assert attempt.overloaded() is None
    assert not attempt.is_singly_put_off


def test_nothing_is_known_of_places_before_somebody_asks() -> None:
    attempt = Attempt(batch(2))
    answer(attempt, refused(0))

    assert (attempt.refused_targets(), attempt.taking_targets()) == ({}, frozenset())
    assert attempt.keeps(range(2)) == {None}


def test_a_version_that_the_destination_supersedes_has_its_final_answer() -> None:
    version = Version("", "inventory", "a", 1, digest_of(b"{}"), False)
    attempt = Attempt(Batch.documents([b"{}", b"{}"]).with_columns(versions=[version, version._replace(key="b")]))

    attempt.answered([0, 1], Answers(2, {1: Answer(Outcome.SUPERSEDED)}))

    settlement = attempt.settlement("main")
    assert settlement is not None
    assert settlement.counts == Counts(delivered=1, superseded=1)
    assert settlement.rest is None


def test_a_log_event_is_never_superseded() -> None:
    attempt = Attempt(Batch.documents([b"{}"]))

    with pytest.raises(PluginFault, match="log event"):
        attempt.answered([0], Answers(1, {0: Answer(Outcome.SUPERSEDED)}))


def test_an_event_that_is_said_to_be_delivered_or_dropped_beyond_has_its_final_answer() -> None:
    attempt = Attempt(batch(3))
    answer(attempt, {0: Answer(Outcome.DELIVERED), 1: Answer(Outcome.DROPPED)})

    settlement = attempt.settlement("main")
    assert settlement is not None
    assert settlement.counts == Counts(delivered=2, dropped=1)
    assert settlement.rest is None
