"""The order of resourceVersions, against that of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.apiserver.versions import compare, is_covered, is_number, is_older, newest

numbers = st.integers(1, 1 << 80).map(str)
anything = numbers | st.text(max_size=4) | st.sampled_from(["0", "01", "-1", "+1", " 1", "1_0", "١", "1.0", ""])


@given(st.integers(1, 1 << 80), st.integers(1, 1 << 80))
def test_numbers_of_any_length_have_the_order_of_integers(a, b):
    assert compare(str(a), str(b)) == (a > b) - (a < b)


@given(anything, anything)
def test_the_order_is_the_same_from_both_sides(a, b):
    found, turned = compare(a, b), compare(b, a)

    assert (found is None) == (turned is None)
    assert found is None or turned is None or found == -turned


@given(anything)
def test_a_version_is_equal_to_itself_but_for_none_at_all(a):
    assert compare(a, a) == (0 if a else None)


@given(anything, anything, anything)
def test_what_is_older_than_an_older_one_is_older(a, b, c):
    if is_older(a, b) and is_older(b, c):
        assert is_older(a, c)


def test_what_is_no_number_has_no_order():
    for version in ["", "0", "01", "007", "-1", "+1", "1.0", "1e3", "abc", "12~never", "١٢"]:
        assert not is_number(version)
        assert compare(version, "12") is None
        assert not is_covered(version, "12")


@given(st.lists(numbers, min_size=1, max_size=6))
def test_the_newest_of_numbers_is_their_maximum(versions):
    found = ""
    for version in versions:
        found = newest(found, version)

    assert int(found) == max(map(int, versions))


def test_of_opaque_versions_the_one_learnt_later_is_newest():
    assert newest("a", "b") == "b"
    assert newest("a", "") == "a"
    assert newest("7", "b") == "b"
