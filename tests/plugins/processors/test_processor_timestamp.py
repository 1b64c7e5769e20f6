from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import BadOption, Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.layouts import reading
from shipper_plugins.processors.timestamp import Timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_text_is_read_as_the_layout_has_it_and_as_go_reads_it() -> None:
    for layout, text, time in [
        ("02/Jan/2006:15:04:05 -0700", "17/May/2026:12:34:56 +0200", "2026-05-17T10:34:56Z"),
        ("2006-01-02T15:04:05.000Z07:00", "2026-05-17T12:34:56.789012Z", "2026-05-17T12:34:56.789012Z"),
        ("2006-01-02T15:04:05.999Z07:00", "2026-05-17T12:34:56+02:00", "2026-05-17T10:34:56Z"),
        ("2006-01-02 15:04:05,000", "2026-05-17 12:34:56,789", "2026-05-17T12:34:56.789Z"),
        ("Mon, 02 Jan 2006 15:04:05 MST", "Sun, 17 May 2026 12:34:56 GMT", "2026-05-17T12:34:56Z"),
        ("Monday, 2-Jan-06 3:04:05 PM", "Sunday, 7-may-26 1:02:03 pm", "2026-05-07T13:02:03Z"),
        ("January 2 2006 03:04 PM", "December 1 2025 12:00 AM", "2025-12-01T00:00:00Z"),
        ("2006 002 15:04", "2024 366 23:59", "2024-12-31T23:59:00Z"),
        ("Jan _2 15:04:05", "Feb  3 01:02:03", "2026-02-03T01:02:03Z"),
        ("UNIX", 1779014096.789, "2026-05-17T10:34:56.789Z"),
        ("UNIX", "1779014096", "2026-05-17T10:34:56.000Z"),
        ("UNIX_MS", 1779014096789, "2026-05-17T10:34:56.789Z"),
        ("2006-01-02T15:04:05Z07:00", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2006-01-02T15:04:05Z07:00", "2026-01-01T00:00:00.123456789+05:30", "2025-12-31T18:30:00.123456789Z"),
        ("2006-01-02 15:04:05", "2026-01-01 00:00:00,25", "2026-01-01T00:00:00.25Z"),
        ("2006-01-02 15:04:05", "2026-01-01 7:00:00.1234567891234", "2026-01-01T07:00:00.123456789Z"),
        ("2006-1-2 15:4:5.000 -0700", "2026-3-1 0:0:9.5 +0000", "2026-03-01T00:00:09.5Z"),
        ("Jan _2 2006 15:04:05", "May 7 2026 01:02:03", "2026-05-07T01:02:03Z"),
        ("Jan _2 2006 15:04:05", "May  7 2026 01:02:03.5", "2026-05-07T01:02:03.5Z"),
        ("Jan _2 2006 15:04:05", "May 17 2026 01:02:03", "2026-05-17T01:02:03Z"),
        ("02_01_2006 15:04", "17_05_2026 01:02", "2026-05-17T01:02:00Z"),
        ("2006 __2 15:04 Z07", "2026  32 01:02 +01", "2026-02-01T00:02:00Z"),
        ("UNIX", "1779014096.123456789", "2026-05-17T10:34:56.123456789Z"),
        ("UNIX", 1779014096, "2026-05-17T10:34:56.000Z"),
        ("UNIX_MS", "1779014096789.0005", "2026-05-17T10:34:56.7890005Z"),
    ]:
        assert reading(layout, UTC)(text, NOW) == time


@pytest.mark.parametrize(
    ("now", "text", "time"),
    [
        (datetime(2026, 1, 1, 0, 5, tzinfo=UTC), "Dec 31 23:59:00", "2025-12-31T23:59:00Z"),
        (datetime(2025, 12, 31, 23, 59, tzinfo=UTC), "Jan  1 00:00:30", "2026-01-01T00:00:30Z"),
        (datetime(2026, 3, 1, tzinfo=UTC), "Mar  1 23:00:00", "2026-03-01T23:00:00Z"),
        (datetime(2024, 3, 1, tzinfo=UTC), "Feb 29 01:00:00", "2024-02-29T01:00:00Z"),
    ],
)
def test_a_year_that_is_not_written_is_the_nearest_one(now: datetime, text: str, time: str) -> None:
    assert reading("Jan _2 15:04:05", UTC)(text, now) == time


def test_a_time_without_a_zone_is_one_of_the_given_zone() -> None:
    assert reading("2006-01-02 15:04", ZoneInfo("Europe/Berlin"))("2026-07-01 12:00", NOW) == "2026-07-01T10:00:00Z"


def test_what_is_no_time_is_refused() -> None:
    for text in ["", "2026-02-30 00:00:00", "2026-13-01 00:00:00", "2026-01-01 24:00:00", 7, None, "x" * 999]:
        with pytest.raises(ValueError):
            reading("2006-01-02 15:04:05", UTC)(text, NOW)


@given(st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_every_time_that_is_written_in_a_layout_is_read(moment: datetime, minutes: int) -> None:
    sign, offset = "-" if minutes < 0 else "+", f"{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    text = f"{moment:%d.%m.}{moment.year:04} {moment:%H:%M:%S.%f} {sign}{offset}"
    read = datetime.fromisoformat(reading("02.01.2006 15:04:05.000000 -07:00", UTC)(text, NOW))

    assert read == moment.replace(tzinfo=UTC) - timedelta(minutes=minutes)


def once(event: Fields, **options: object) -> Fields:
    timestamp = Timestamp(field="time", **options)  # type: ignore[arg-type]
    batch = Batch.events([event], shared={"@timestamp": "2026-03-01T00:00:00.000Z"})
    (made,) = check_processor(timestamp, batch).whole()
    return made


def test_the_time_of_the_event_is_that_of_the_field() -> None:
    made = once({"time": "Feb 28 10:00:00"}, layouts=("UNIX", "Jan _2 15:04:05"))

    assert made == {"@timestamp": "2026-02-28T10:00:00Z", "time": "Feb 28 10:00:00"}


@pytest.mark.parametrize(
    "event", [{}, *[{"time": text} for text in ("soon", "NaN", "sNaN", "inf", "-1", "1e999999999", "1_0x", "1e11")]]
)
def test_an_event_without_a_time_keeps_the_one_it_has_and_is_tagged(event: Fields) -> None:
    made = once(event, layouts=("UNIX",))

    assert made["@timestamp"] == "2026-03-01T00:00:00.000Z"
    assert made["tags"] == ["processor_error"]


def test_settings_that_make_no_sense_are_refused_at_their_place() -> None:
    for options, at in [
        ({"layouts": ("15:04:05",)}, ("layouts", 0)),
        ({"layouts": ("UNIX", "2006-01-02")}, ("layouts", 1)),
        ({"layouts": ("2006-01-02 03:04",)}, ("layouts", 0)),
        ({"layouts": ("2006-01-02 15:04 2006",)}, ("layouts", 0)),
        ({"layouts": ("UNIX",), "timezone": "Middle/Earth"}, ("timezone",)),
        ({"layouts": ("UNIX",), "timezone": "../../etc/passwd"}, ("timezone",)),
        ({"layouts": ("2006-01-02 15:04",), "test": ("2026-01-01 00:00", "tomorrow")}, ("test", 1)),
    ]:
        with pytest.raises(BadOption) as caught:
            Timestamp(field="time", **options)  # type: ignore[arg-type]

        assert caught.value.at == at
