import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.units import Duration, Size, events_in_words


def test_a_size_is_a_number_of_bytes():
    for text, size in [
        ("0B", 0),
        ("1B", 1),
        ("1KB", 1000),
        ("512KiB", 524288),
        ("1 MiB", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("2TB", 2 * 10**12),
    ]:
        assert Size.parse(text) == size


def test_a_duration_is_a_number_of_seconds():
    for text, seconds in [("0s", 0), ("250ms", 0.25), ("30s", 30), ("1.5m", 90), ("4h", 14400), ("1d", 86400)]:
        assert Duration.parse(text) == seconds


def test_a_size_without_a_known_unit_is_refused_without_quoting_it():
    for value in [1, 1.5, True, None, [], "", "1", "GiB", "-1GiB", "1gib", "1GIB", "1e3B", "1GiB ", "1  GiB"]:
        with pytest.raises(ValueError, match=r"^expected a size with a unit, such as 512KiB or 1GiB$"):
            Size.parse(value)


def test_a_duration_without_a_known_unit_is_refused_without_quoting_it():
    for value in [30, 0, 0.5, None, "", "30", "s", "-1s", "30S", "1 week", "never", "1s\n", "٣s", "1:30"]:
        with pytest.raises(ValueError, match=r"^expected a duration with a unit, such as 250ms, 30s or 15m$"):
            Duration.parse(value)


@given(st.integers(0, 10**15 - 1))
def test_a_size_is_written_so_that_it_reads_back(number):
    assert Size.parse(str(Size(number))) == number


@given(st.integers(0, 10**12))
def test_a_duration_of_whole_milliseconds_is_written_so_that_it_reads_back(milliseconds):
    assert Duration.parse(str(Duration(milliseconds / 1000))) == pytest.approx(milliseconds / 1000)


def test_quantities_are_written_with_the_largest_unit_that_fits():
    assert [str(Size(n)) for n in (0, 1, 1000, 1024, 1 << 30, 1500)] == ["0B", "1B", "1KB", "1KiB", "1GiB", "1500B"]
    assert [str(Duration(n)) for n in (0, 0.25, 30, 90, 900, 14400)] == ["0ms", "250ms", "30s", "90s", "15m", "4h"]


def test_a_number_of_events_has_separators():
    assert [events_in_words(n) for n in (0, 1, 999, 953_635)] == ["0 events", "1 event", "999 events", "953,635 events"]
