"""A version that is fenced again, after it was sent above a fence, waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.attempts.fences import Fences
from shipper.plugin import Answer, Answers, Outcome
from shipper.sdk.state import Version, digest_of

FENCED = Answer(Outcome.SUPERSEDED, fence=(9, b""))


def version(key: str) -> Version:
    return Version("", "things", key, 1, digest_of(b"{}"), False)


def outcomes(fences: Fences, key: str, *answers: Answer | None) -> list[Outcome]:
    """Returns what becomes of these answers for a key, None for a delivery, one after the other."""
    found = []
    for answer in answers:
        judged = fences.judged([version(key)], Answers(1, {} if answer is None else {0: answer}))
        found.append(judged.others[0].outcome if judged.others else Outcome.DELIVERED)
    return found


def test_every_second_fence_in_a_row_is_held() -> None:
    fences = Fences()

    assert outcomes(fences, "a", *[FENCED] * 5) == [
        Outcome.SUPERSEDED,
        Outcome.HELD,
        Outcome.SUPERSEDED,
        Outcome.HELD,
        Outcome.SUPERSEDED,
    ]


def test_a_key_that_was_taken_may_be_fenced_once_more_without_a_wait() -> None:
    fences = Fences()

    assert outcomes(fences, "a", FENCED, None, FENCED) == [
        Outcome.SUPERSEDED,
        Outcome.DELIVERED,
        Outcome.SUPERSEDED,
    ]


def test_what_has_a_newer_version_and_names_no_fence_is_sent_no_more_and_does_not_wait() -> None:
    plain = Answer(Outcome.SUPERSEDED)

    assert outcomes(Fences(), "a", plain, plain, plain) == [Outcome.SUPERSEDED] * 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_no_two_fences_of_a_key_in_a_row_go_on_without_a_wait(said: list[tuple[str, bool]]) -> None:
    fences, last = Fences(), dict[str, Outcome]()
    for key, is_fenced in said:
        (outcome,) = outcomes(fences, key, FENCED if is_fenced else None)
        assert (outcome is Outcome.SUPERSEDED) <= (last.get(key) is not Outcome.SUPERSEDED)
        last[key] = outcome
