"""Times of syslog messages: with and without years, zones and fractions."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.syslog.time import MOST_AHEAD, exact, leading, written, zone_of

NOW = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)
BERLIN = zone_of("Europe/Berlin")


def at(text, zone=UTC, now=NOW):
    found = leading(text, zone, now)
    return None if found is None else found[0]


def test_every_form_is_read():
    for text, expected in [
        ("2026-05-17T12:34:56Z", "2026-05-17T12:34:56Z"),
        ("2026-05-17T12:34:56.123456+02:00", "2026-05-17T10:34:56.123456Z"),
        ("2026-05-17T12:34:56.123456789Z", "2026-05-17T12:34:56.123456789Z"),
        ("2026-05-17 12:34:56,5 -0530", "2026-05-17T18:04:56.5Z"),
        ("2026-05-17T12:34:56", "2026-05-17T10:34:56Z"),
        ("May 17 12:34:56", "2026-05-17T10:34:56Z"),
        ("May  7 02:34:56.25", "2026-05-07T00:34:56.25Z"),
        ("May 07 02:34:56", "2026-05-07T00:34:56Z"),
        ("May 17 2024 12:34:56", "2024-05-17T10:34:56Z"),
        ("May 17 12:34:56 2024 host", "2024-05-17T10:34:56Z"),
        ("May 17 12:34:56.123 UTC: %SYS-5-X: y", "2026-05-17T12:34:56.123Z"),
        ("May 17 12:34:56 CEST: %SYS-5-X: y", "2026-05-17T10:34:56Z"),
        ("May 17 12:34:56 +03:00 host", "2026-05-17T09:34:56Z"),
        ("May 17 12:34:56 CRON: text", "2026-05-17T10:34:56Z"),
    ]:
        assert at(text, BERLIN) == expected


def test_what_no_calendar_has_is_no_time():
    for text in [
        *("", "May 32 12:34:56", "Mai 17 12:34:56", "May 17 25:00:00", "2026-02-30T00:00:00Z", "May 17 12:34:56x"),
        *(
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+10:00",
            "9999-12-31T23:00:00-10:00",
            "2026-05-17T12:00:00+02:70",
        ),
    ]:
        assert at(text) is None


def test_december_stays_in_the_old_year_after_the_new_one_has_begun():
    now = datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert at("Dec 31 23:59:59", now=now) == "2025-12-31T23:59:59Z"
    assert at("Jan  1 00:00:01", now=now) == "2026-01-01T00:00:01Z"


def test_a_clock_that_is_ahead_at_new_year_has_the_year_that_comes():
    now = datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert at("Jan  1 00:00:01", now=now) == "2026-01-01T00:00:01Z"


def test_the_new_year_begins_in_the_zone_of_the_sender():
    now = datetime(2025, 12, 31, 23, 30, tzinfo=UTC)
    assert at("Jan  1 00:30:00", BERLIN, now) == "2025-12-31T23:30:00Z"


@pytest.mark.parametrize(("now", "year"), [(2026, 2024), (2024, 2024), (2103, 2096)])
def test_the_29th_of_february_is_of_the_last_year_that_had_one(now, year):
    assert at("Feb 29 00:00:00", now=datetime(now, 6, 1, tzinfo=UTC)) == f"{year}-02-29T00:00:00Z"


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),
    st.timedeltas(timedelta(days=-350), MOST_AHEAD - timedelta(seconds=2)),
    st.integers(-12 * 60, 14 * 60),
)
def test_the_year_is_found_again(now, ahead, minutes):
    zone = timezone(timedelta(minutes=minutes))
    now = now.replace(tzinfo=UTC)
    instant = (now + ahead).replace(microsecond=0)
    text = instant.astimezone(zone).strftime("%b %e %H:%M:%S")

    assert at(text, zone, now) == f"{instant.replace(tzinfo=None).isoformat()}Z"


def test_an_hour_that_comes_twice_is_the_later_one_unless_that_is_to_come():
    first, second = (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))
    assert at("Oct 25 02:30:00", BERLIN, first) == "2026-10-25T00:30:00Z"
    assert at("Oct 25 02:30:00", BERLIN, second) == "2026-10-25T01:30:00Z"


def test_local_is_the_zone_of_this_host():
    local = datetime(2026, 5, 17, 12, 34, 56).astimezone(UTC)
    assert at("May 17 12:34:56", zone_of("local")) == f"{local.replace(tzinfo=None).isoformat()}Z"


def test_an_unknown_zone_is_refused():
    for name in ["", "Mars/Base", "+25:00", "+02:99", "../../etc/passwd", "/etc/localtime", "a\0b"]:
        with pytest.raises(ValueError, match="time zone"):
            zone_of(name)


@given(st.text(max_size=60) | st.text("MayJnDec 0123456789:.,+-TZ", max_size=40))
def test_any_text_is_a_time_or_none(text):
    found = leading(text, BERLIN, NOW)
    if found is not None:
        assert at(found[0], UTC) == found[0]
    assert exact(text, UTC, NOW) is None or found is not None


def test_what_is_behind_a_time_makes_it_none_for_rfc_5424():
    assert exact("2026-05-17T12:34:56Z", UTC, NOW) is not None
    assert exact("2026-05-17T12:34:56Z ", UTC, NOW) is None


def test_a_clock_is_written_in_utc():
    assert written(datetime(2026, 5, 17, 14, 0, tzinfo=BERLIN)) == "2026-05-17T12:00:00.000Z"
