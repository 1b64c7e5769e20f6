"""What a broker's codes mean."""

import pytest

from shipper.plugin import Code, Held, Later, Outcome
from shipper_plugins.kafka import answers as codes


def test_what_is_over_in_time_is_later() -> None:
    for code in [3, 5, 6, 7, 19, 20, 56, 89, 4242]:
        assert codes.answer(code, "t").outcome is Outcome.LATER


@pytest.mark.parametrize("code", [29, 31, 35, 76])
def test_what_a_person_has_to_change_is_held(code: int) -> None:
    assert codes.answer(code, "t").outcome is Outcome.HELD


def test_a_topic_without_permission_holds_its_own_events() -> None:
    answer = codes.answer(codes.TOPIC_FORBIDDEN, "t")
    assert (answer.of_target, answer.code) == (True, Code.FORBIDDEN)
    assert "t: TOPIC_AUTHORIZATION_FAILED" in answer.reason


def test_only_what_was_certainly_not_appended_is_without_doubt() -> None:
    """A batch that timed out at its replicas, or met a code that nobody knows, may be in the log."""
    assert all(codes.is_in_doubt(code) for code in (-1, 7, 20, 56, 4242))
    assert not any(codes.is_in_doubt(code) for code in (0, 3, 6, 10, 19, 29, 45, 46, 59, 87))


def test_a_failed_login_is_held_as_unauthorized() -> None:
    error = codes.refusal(codes.SASL_FAILED, "kafka:9092")
    assert isinstance(error, Held)
    assert error.code == Code.UNAUTHORIZED
    assert isinstance(codes.refusal(14, "kafka:9092"), Later)
