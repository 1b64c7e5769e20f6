"""What the answers for events say after an error of their request."""

from __future__ import annotations

import pytest

from shipper.plugin import Answer, Answers, Code, Held, Later, NotBegun, Outcome, TooLarge
from shipper.plugin.relay import Ranked


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (Later("busy", 7.0, code=Code.OVERLOADED), Outcome.LATER, Code.OVERLOADED),
        (Held("why", code=Code.FORBIDDEN), Outcome.HELD, Code.FORBIDDEN),
        (TooLarge("why"), Outcome.LATER, Code.TOO_LARGE),
        (NotBegun("why"), Outcome.LATER, Code.UNAVAILABLE),
    ],
)
def test_events_of_a_request_that_ended_by_an_error_come_later_or_are_held(
    error: Later | Held | TooLarge | NotBegun, outcome: Outcome, code: Code
) -> None:
    assert Answer.of(error) == Answer(outcome, str(error), code=code)


def test_the_answers_before_an_error_stay_and_the_rest_has_its_own() -> None:
    rejected = {1: Answer(Outcome.REJECTED, "bad")}
    busy = Later("busy", 7.0)

    assert Answers.until(2, busy, 4, rejected) == Answers(4, {**rejected, 2: Answer.of(busy), 3: Answer.of(busy)}, 7.0)
    assert Answers.until(2, Held("no"), 3, rejected).retry_after is None
    assert list(rejected) == [1]


def test_the_rank_of_a_final_answer_says_what_became_of_an_event_and_a_rejected_one_is_a_dead_letter() -> None:
    assert [Ranked.of(outcome).outcome for outcome in (Outcome.DELIVERED, Outcome.DUPLICATE, Outcome.SUPERSEDED)] == [
        Outcome.DELIVERED,
        Outcome.DUPLICATE,
        Outcome.SUPERSEDED,
    ]
    assert Ranked.of(Outcome.REJECTED) is Ranked.DEAD_LETTER
