"""Converts the times of syslog messages to instants in UTC. No I/O.

    2026-05-17T12:34:56.789+02:00     RFC 5424, and rsyslog's and syslog-ng's variant of RFC 3164
    May 17 12:34:56                   RFC 3164: neither a year nor a zone
    May 17 2026 12:34:56.789 UTC:     network devices, in several variants

A time without a year gets the latest one that is no more than `MOST_AHEAD` in the future: so December stays in the old
year on the first of January, and a clock that is a little ahead does not lose a year. A time without a zone gets the
caller's zone. If the clocks are set back and an hour occurs twice, it is the later one, unless that is in the future.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

MOST_AHEAD: Final = timedelta(days=7)
_CLOCKS_DIFFER = timedelta(minutes=5)
_MOST_OFFSET = timedelta(days=1)
_YEARS_BACK = 8
"""The most years between two dates of 29 February, as over the year 2100."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(\d\d?):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*+)?"
_UTC = ("Z", "z", "UTC", "GMT")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)
_ISO = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[Tt ]{_CLOCK} ?([Zz]|[+-]\d\d:?\d\d)?+(?::?(?=\s)|:?$)", re.ASCII)
_BSD = re.compile(
    rf"({'|'.join(_MONTHS)}) {{1,2}}(\d\d?)(?: (\d{{4}}))? {_CLOCK}(?: ((?:19|20)\d\d)(?=[ :]))?"
    r"(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d|[A-Z]{2,5}(?=: %))(?=[ :]|$))?(?::?(?=\s)|:?$)",
    re.ASCII,
)


def zone_of(name: str) -> tzinfo | None:
    """Returns the zone of `local` (None), a name such as Europe/Berlin, or an offset such as +02:00; raises
    ValueError."""
    if name == "local":
        return None
    try:
        return _fixed(name) if _OFFSET.fullmatch(name) else ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(
            "not a time zone that this host knows; write one such as Europe/Berlin, +02:00 or local"
        ) from None


def written(instant: datetime) -> str:
    """Returns an instant as `@timestamp`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact(text: str, zone: tzinfo | None, now: datetime) -> str | None:
    """Returns a TIMESTAMP of RFC 5424 as `@timestamp`; None if it is invalid."""
    found = leading(text, zone, now)
    return found[0] if found is not None and found[1] == len(text) else None


def leading(text: str, zone: tzinfo | None, now: datetime) -> tuple[str, int] | None:
    """Returns the time at the start of a text as `@timestamp`, and where it ends; None if there is none.

    `zone` is for a time without one (None: that of this host), `now` the instant when the text arrived.
    """
    if iso := _ISO.match(text):
        year, month, day, *clock, fraction, offset = iso.groups()
        return _found(_instant([int(year)], int(month), int(day), clock, offset, zone, now), fraction, iso.end())
    if bsd := _BSD.match(text):
        name, day, year, *clock, fraction, year_after, offset = bsd.groups()
        year = year or year_after
        years = [int(year)] if year else _years(now)
        instant = _instant(years, _MONTHS.index(name) + 1, int(day), clock, offset, zone, now)
        return _found(instant, fraction, bsd.end())
    return None


def _found(instant: datetime | None, fraction: str | None, end: int) -> tuple[str, int] | None:
    if instant is None:
        return None
    return f"{instant.replace(tzinfo=None).isoformat()}{f'.{fraction}' if fraction else ''}Z", end


def _years(now: datetime) -> list[int]:
    latest = (now + MOST_AHEAD + _MOST_OFFSET).year
    return [latest - back for back in range(_YEARS_BACK + 2)]


def _instant(
    years: list[int], month: int, day: int, clock: list[str], offset: str | None, zone: tzinfo | None, now: datetime
) -> datetime | None:
    """Returns the instant in UTC, in the first of these years that fits; None if the date exists in none."""
    hour, minute, second = map(int, clock)
    for year in years:
        try:
            zone = _fixed(offset) if offset is not None and (offset in _UTC or offset[0] in "+-") else zone
            instant = _in_utc(datetime(year, month, day, hour, minute, second), zone, now)
        except (ValueError, OverflowError, OSError):
            continue
        if len(years) == 1 or instant <= now + MOST_AHEAD:
            return instant
    return None


def _in_utc(local: datetime, zone: tzinfo | None, now: datetime) -> datetime:
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return second if first < second <= now + _CLOCKS_DIFFER else first


def _fixed(offset: str) -> tzinfo:
    """Returns the zone of an offset in digits, otherwise UTC; raises ValueError for an invalid offset."""
    found = _OFFSET.fullmatch(offset)
    if found is None:
        return UTC
    sign, hours, minutes = found.groups()
    if int(minutes) > 59:
        raise ValueError("not an offset")
    ahead = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-ahead if sign == "-" else ahead)
