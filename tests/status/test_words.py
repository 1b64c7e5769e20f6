"""Durations, rates and counts in words."""

from __future__ import annotations

from shipper.status.words import counted, rate, span


def test_a_duration_has_one_unit():
    for seconds, words in [
        (0.0, "0 s"),
        (3.24, "3.2 s"),
        (90.0, "90 s"),
        (5400.0, "90 min"),
        (86400.0, "24 h"),
        (864000.0, "10 d"),
    ]:
        assert span(seconds) == words


def test_a_rate_has_the_digits_that_count():
    for per_second, words in [(None, "–"), (0.0, "0/s"), (0.04, "0.04/s"), (2.5, "2.5/s"), (12345.6, "12,346/s")]:
        assert rate(per_second) == words


def test_a_count_agrees_with_its_noun():
    assert [counted(1, "key"), counted(1200, "key"), counted(2, "match", "matches")] == [
        "1 key",
        "1,200 keys",
        "2 matches",
    ]
