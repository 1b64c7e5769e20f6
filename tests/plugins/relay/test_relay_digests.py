"""Two sets are compared by few bytes, and every difference is found."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.relay import digests
from shipper_plugins.relay.digests import DEPTHS, FEW, Comparison, Differences, Digests, Entry, Unreadable

# Points that are near each other, or the same: what differs stands deep in the tree.
_points = st.integers(0, 2**64 - 1) | st.integers(0, 40) | st.sampled_from([2**64 - 1, 2**63, 2**60 - 1])
_sets = st.sets(st.builds(lambda point, what: entry(point, what), _points, st.binary(max_size=2)), max_size=3 * FEW)


def entry(point: int, what: bytes) -> Entry:
    """Of what is there, at a point."""
    return point, hashlib.blake2b(b"%d/%b" % (point, what), digest_size=16).digest()


def compared(ours: set[Entry], theirs: set[Entry]) -> tuple[Differences, int, int]:
    """What the asker finds, by how many bytes, in how many questions."""
    asker, other = Comparison(Digests(ours)), Digests(theirs)
    size = questions = 0
    while (question := asker.question()) is not None:
        answer = other.answer(question)
        asker.take(answer)
        size, questions = size + len(question) + len(answer), questions + 1
    return asker.differences(), size, questions


def many(count: int) -> set[Entry]:
    points = [int.from_bytes(hashlib.sha256(b"key %d" % n).digest()[:8]) for n in range(count)]
    return {entry(point, b"a document") for point in points}


@given(_sets, _sets, _sets)
def test_both_sides_differences_are_found_and_no_others(both: set[Entry], ours: set[Entry], theirs: set[Entry]) -> None:
    found, _, _ = compared(both | ours, both | theirs)

    assert found == (frozenset(ours - theirs - both), frozenset(theirs - ours - both))


@given(_sets)
def test_an_empty_side_is_a_side_like_any_other(entries: set[Entry]) -> None:
    assert compared(entries, set())[0] == (entries, frozenset())
    assert compared(set(), entries)[0] == (frozenset(), entries)
    assert compared(set(), set()) == ((frozenset(), frozenset()), 12, 1)


def test_ten_thousand_equal_entries_cost_one_question_of_a_few_bytes() -> None:
    entries = many(10_000)

    assert compared(entries, entries) == ((frozenset(), frozenset()), 12, 1)


def test_ten_changes_among_ten_thousand_cost_a_few_kilobytes() -> None:
    ours = many(10_000)
    changed = set(random.Random(1).sample(sorted(ours), 10))
    theirs = (ours - changed) | {entry(point, b"another one") for point, _ in changed}

    found, size, questions = compared(ours, theirs)

    assert found.ours == changed
    assert {point for point, _ in found.theirs} == {point for point, _ in changed}
    assert size < 15 << 10
    assert questions <= DEPTHS + 1


def test_what_differs_everywhere_is_found_too() -> None:
    ours, theirs = many(5000), {entry(point ^ 1, b"a document") for point, _ in many(5000)}

    assert compared(ours, theirs)[0] == (ours, theirs)


@given(_sets, st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\1" + rest))
def test_no_bytes_of_the_other_side_do_more_than_be_unreadable(entries: set[Entry], hostile: bytes) -> None:
    asker = Comparison(Digests(entries))
    asker.question()
    for say in (Digests(entries).answer, asker.take):
        try:
            say(hostile)
        except Unreadable:
            continue


def test_a_question_that_cannot_be_is_unreadable() -> None:
    for question in [
        b"",
        b"\0",
        b"\2",
        b"\1",
        b"\1" + b"\x11" + bytes(8),
        b"\1" + b"\x01" + bytes(7) + b"\1",
        b"\1" + bytes(9) * 257,
    ]:
        with pytest.raises(Unreadable):
            Digests(()).answer(question)


def test_entries_of_another_range_than_was_asked_for_are_unreadable() -> None:
    ours = many(500)
    asker, other = Comparison(Digests(ours)), Digests(set(sorted(ours)[:-1]))
    first = asker.question()
    assert first is not None
    asker.take(other.answer(first))
    asker.question()
    with pytest.raises(Unreadable, match="range"):
        asker.take(b"\1\1\0\1" + bytes(24))


SUMS, LISTING = b"\1\0", b"\1\1"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"\2", "begins with 1"),
        (SUMS + bytes(159), "too short"),
        (b"\1\2" + bytes(2), "neither sums nor entries"),
        (LISTING + b"\0", "neither sums nor entries"),
        (LISTING + b"\0\1" + bytes(23), "too short"),
        (LISTING + bytes(2) + b"more", "too long"),
    ],
)
def test_an_answer_that_cannot_be_is_unreadable(answer: bytes, why: str) -> None:
    asker = Comparison(Digests([]))
    asker.question()

    with pytest.raises(Unreadable, match=why):
        asker.take(answer)


def test_sums_without_end_make_a_comparison_that_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set has so many entries, but nobody can see that: each sum may be that of any."""
    monkeypatch.setattr(digests, "MOST_AT_ONCE", 20)
    asker = Comparison(Digests(set()))
    for number in range(2 * digests.MOST_AT_ONCE):
        assert asker.is_long == (number > digests.MOST_AT_ONCE)
        question = asker.question()
        assert question is not None
        depths = [0] if number == 0 else question[1::9]
        asker.take(b"\x01" + b"".join([b"\x00" + b"\x01" * 160 if d < DEPTHS else b"\x01\x00\x00" for d in depths]))


def test_an_other_side_that_has_more_than_anybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_THEIRS", 1000)

    with pytest.raises(Unreadable):
        compared(set(), many(1001))
    assert len(compared(set(), many(1000))[0].theirs) == 1000
