from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.processors.instants import are_exact, instant


def test_a_time_in_a_common_shape_is_that_time() -> None:
    for written, expected in [
        ("2026-05-17T12:34:56Z", "2026-05-17T12:34:56Z"),
        ("2026-05-17T12:34:56.123456789+02:00", "2026-05-17T12:34:56.123456789+02:00"),
        ("2026-05-17T12:34:56+0200", "2026-05-17T12:34:56+0200"),
        ("2026-05-17 12:34:56,789 +02:00", "2026-05-17T12:34:56.789+02:00"),
        ("2026-05-17t12:34:56z", "2026-05-17T12:34:56Z"),
        ("2026-05-17T12:34:56.5", "2026-05-17T12:34:56.5Z"),
        (1779014096, "2026-05-17T10:34:56.000Z"),
        (1779014096.789, "2026-05-17T10:34:56.789Z"),
        (1779014096789, "2026-05-17T10:34:56.789Z"),
        (1779014096789.4, "2026-05-17T10:34:56.789Z"),
        (0, "1970-01-01T00:00:00.000Z"),
    ]:
        assert instant(written) == expected
        assert are_exact([written]) == (written == expected)


def test_what_no_backend_takes_for_a_time_is_none() -> None:
    for written in [
        *("garbage", "", "2026-05-17", "2026-05-17T12:34Z", "2026-02-30T00:00:00Z", "2026-05-17T24:00:00Z"),
        *("2026-05-17T12:34:60Z", "2026-05-17T12:34:56+18:30", "2026-05-17T12:34:56Z\n", "1779014096", "0000-01-01"),
        *("2026-05-17T12:34:56.1234567890Z", "2026-05-17T12:34:56.Z", "٢٠٢٦-05-17T12:34:56Z", "20260517T123456Z"),
        *(-1, 10**14, 10**400, 1e300, True, None, [], {}, ["2026-05-17T12:34:56Z"]),
    ]:
        with pytest.raises(ValueError, match=r"."):
            instant(written)

        assert not are_exact(["2026-05-17T12:34:56Z", written])


@given(
    st.lists(
        st.one_of(
            st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1)).map(lambda t: t.isoformat() + "Z"),
            st.text(st.sampled_from("0123456789-+:.,TtZz \n"), max_size=36),
            st.text(max_size=12).map(lambda text: "2026-05-17T12:34:56" + text),
        ),
        max_size=4,
    )
)
def test_times_are_exact_where_each_stays_as_it_is(written: list[str]) -> None:
    def stays(text: str) -> bool:
        try:
            return instant(text) == text
        except ValueError:
            return False

    assert are_exact(written) == all(map(stays, written))


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(-17 * 60, 17 * 60), st.sampled_from("T "))
def test_every_instant_with_a_zone_is_read_back(time: datetime, minutes: int, between: str) -> None:
    time = time.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    assert datetime.fromisoformat(instant(time.isoformat(between))) == time
    assert datetime.fromisoformat(instant(time.timestamp())) - time.astimezone(UTC) < timedelta(milliseconds=1)
