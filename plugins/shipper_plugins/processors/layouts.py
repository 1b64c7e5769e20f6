"""Layouts of times, as Beats users write them: Go's reference time, 2 January 2006, 15:04:05, in the form of the text.

    2006-01-02T15:04:05.000Z07:00     02/Jan/2006:15:04:05 -0700     Jan _2 15:04:05     UNIX     UNIX_MS

| part | written as |
|---|---|
| year | 2006, 06 |
| month | 01, 1, Jan, January |
| day | 02, 2, _2 (perhaps after a space); 002, __2: of the year; Mon, Monday: of the week, which is not checked |
| hour | 15; 03 or 3 with PM or pm |
| minute, second | 04, 4; 05, 5; a fraction after it: .000, .999, ,000, of any number of digits |
| zone | Z07:00, Z0700, Z07 (Z for UTC), -07:00, -0700, -07, MST (UTC, GMT and Z only) |

A text matches a layout as a whole. It may have a fraction behind its seconds also where the layout has none, as in Go;
digits beyond nanoseconds are left out. Names are English, in any case. `UNIX` is seconds since 1970, with a fraction or
without, `UNIX_MS` milliseconds; as numbers or texts, to the nanosecond.

The source of the reference time: https://pkg.go.dev/time#pkg-constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

UNIX, UNIX_MS = "UNIX", "UNIX_MS"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = "(?:mon|tue|wed|thu|fri|sat|sun)"
_MONTH = f"(?P<name>{'|'.join(_MONTHS)})"
_LONG_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SECONDS = 10**11  # the year 5138
_SECOND = 10**9
_DAY = timedelta(days=1)

_PARTS: dict[str, str] = {
    "January": f"(?P<name>{_LONG_MONTHS})",
    "Monday": f"{_DAYS}[a-z]*",
    "Z07:00": r"(?P<zone>[Zz]|[+-]\d\d:\d\d)",
    "-07:00": r"(?P<zone>[+-]\d\d:\d\d)",
    "Z0700": r"(?P<zone>[Zz]|[+-]\d\d\d\d)",
    "Z07": r"(?P<zone>[Zz]|[+-]\d\d)",
    "-0700": r"(?P<zone>[+-]\d\d\d\d)",
    "2006": r"(?P<year>\d{4})",
    "Jan": _MONTH,
    "Mon": _DAYS,
    "MST": r"(?P<zone>UTC|GMT|Z)",
    "-07": r"(?P<zone>[+-]\d\d)",
    "002": r"(?P<yearday>\d{3})",
    "__2": r"(?P<yearday>[ \d]{2}\d)",
    "01": r"(?P<month>\d\d)",
    "02": r"(?P<day>\d\d)",
    "_2": r" ?(?P<day>\d\d?)",
    "03": r"(?P<half>\d\d)",
    "04": r"(?P<minute>\d\d)",
    "05": r"(?P<second>\d\d)",
    "06": r"(?P<short>\d\d)",
    "15": r"(?P<hour>\d\d?)",
    "PM": r"(?P<noon>[AaPp][Mm])",
    "pm": r"(?P<noon>[AaPp][Mm])",
    "1": r"(?P<month>\d\d?)",
    "2": r"(?P<day>\d\d?)",
    "3": r"(?P<half>\d\d?)",
    "4": r"(?P<minute>\d\d?)",
    "5": r"(?P<second>\d\d?)",
}
_OF_FRACTION = r"[.,](?:0+|9+)(?!\d)"
_PART = re.compile(rf"(?:05|5)(?:{_OF_FRACTION})?|_(?=2006)|" + "|".join(map(re.escape, _PARTS)))
_FRACTION = r"(?:[.,](?P<fraction>\d{1,9})\d*)?"

Reading = Callable[[Any, datetime], str]
"""Returns a time in the form of RFC 3339, in UTC; a text without a year has that of the second argument, or the one
before, so that it is no more than a day ahead of it. Raises ValueError, and quotes nothing."""


@lru_cache(maxsize=256)
def reading(layout: str, zone: tzinfo) -> Reading:
    """Returns how a layout is read; times without a zone are in `zone`. Raises ValueError for a layout that makes no
    time."""
    if layout in (UNIX, UNIX_MS):
        return lambda value, now: _of_epoch(value, _SECOND if layout == UNIX else _SECOND // 1000)
    pattern = _pattern(layout)
    names = tuple(name for name in pattern.groupindex if name != "fraction")
    has_fraction, has_year = "fraction" in pattern.groupindex, not {"year", "short"}.isdisjoint(names)

    def read(value: Any, now: datetime) -> str:
        found = pattern.fullmatch(value) if isinstance(value, str) and len(value) <= 128 else None
        if found is None:
            raise ValueError("not a time")
        try:
            second = _second(names, found.group(*names), zone, None if has_year else now)
        except OverflowError:  # at an edge of the calendar
            raise ValueError("not a time") from None
        fraction = found["fraction"] if has_fraction else None
        return f"{second}Z" if fraction is None else f"{second}.{fraction}Z"

    return read


def _pattern(layout: str) -> re.Pattern[str]:
    parts, end = [], 0
    for part in _PART.finditer(layout):
        parts += [re.escape(layout[end : part.start()]), _of_part(part.group())]
        end = part.end()
    parts.append(re.escape(layout[end:]))
    try:
        pattern = re.compile("".join(parts), re.ASCII | re.IGNORECASE)
    except re.error:
        raise ValueError("a part of the time is there twice") from None
    given = set(pattern.groupindex)
    if not ("yearday" in given or ("day" in given and given & {"month", "name"})):
        raise ValueError("it has no day: write the reference time, such as 2006-01-02T15:04:05Z07:00")
    if not given & {"hour", "half"}:
        raise ValueError("it has no hour: write the reference time, such as 2006-01-02T15:04:05Z07:00")
    if ("half" in given) != ("noon" in given):
        raise ValueError("03 and PM go together; the hour of a day of 24 is 15")
    return pattern


def _of_part(part: str) -> str:
    """Returns the pattern of a part; behind seconds may be a fraction, whether the layout has it or not."""
    second = re.match("05|5", part)
    return _PARTS[second[0]] + _FRACTION if second else _PARTS.get(part, part)


@lru_cache(maxsize=4096)  # many events have one second, and different fractions of it
def _second(names: Sequence[str], values: Sequence[str], zone: tzinfo, now: datetime | None) -> str:
    """Returns a second in UTC, without a zone; `now` is None where the year is given."""
    given = dict(zip(names, values, strict=True))
    moment = _moment(given, _zone(given["zone"]) if "zone" in given else zone, now)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _moment(given: dict[str, str], zone: tzinfo, now: datetime | None) -> datetime:
    if now is None:
        return _at(given, _year(given), zone)
    local = now.astimezone(zone)
    try:
        moment = _at(given, local.year + 1, zone)  # the first of January, told on the last of December
        if moment <= now + _DAY:
            return moment
    except ValueError:  # 29 February
        pass
    moment = _at(given, local.year, zone)
    return moment if moment <= now + _DAY else _at(given, local.year - 1, zone)


def _year(given: dict[str, str]) -> int:
    if "short" in given:
        short = int(given["short"])
        return short + (1900 if short >= 69 else 2000)
    return int(given["year"])


def _at(given: dict[str, str], year: int, zone: tzinfo) -> datetime:
    try:
        day = datetime(year, _month(given), int(given.get("day", "1")), tzinfo=zone)
        if "yearday" in given:
            day += timedelta(days=int(given["yearday"]) - 1)
            if day.year != year:
                raise ValueError
        return day.replace(
            hour=_hour(given), minute=int(given.get("minute", "0")), second=int(given.get("second", "0"))
        )
    except (ValueError, OverflowError):
        raise ValueError("not a time") from None


def _month(given: dict[str, str]) -> int:
    if "name" in given:
        return _MONTHS.index(given["name"][:3].lower()) + 1
    return int(given.get("month", "1"))


def _hour(given: dict[str, str]) -> int:
    if "half" not in given:
        return int(given["hour"])
    half = int(given["half"])
    if not 1 <= half <= 12:
        raise ValueError
    return half % 12 + (12 if given["noon"].lower() == "pm" else 0)


def _zone(text: str) -> tzinfo:
    if text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or "0"))
    if offset >= _DAY:
        raise ValueError("not a time")
    return timezone(offset if text[0] == "+" else -offset)


def _of_epoch(value: Any, unit: int) -> str:
    number = _number(value)
    if not (number.is_finite() and 0 <= number < _MOST_SECONDS * (_SECOND // unit)):
        raise ValueError("not a time")
    seconds, nanoseconds = divmod(round(number * unit), _SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f"{nanoseconds:09}".rstrip("0")
    return f"{moment.replace(tzinfo=None).isoformat()}.{fraction:0<3}Z"


def _number(value: Any) -> Decimal:
    if type(value) in (int, float):
        return Decimal(repr(value))  # the fewest digits that mean this number
    if isinstance(value, str) and len(value) <= 32:
        with suppress(InvalidOperation):
            return Decimal(value)
    raise ValueError("not a time")
