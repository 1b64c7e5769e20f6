"""Reads `@timestamp` values of applications as Elasticsearch does (`strict_date_optional_time`).

    2026-05-17T12:34:56.789+02:00     ISO 8601 in the form of RFC 3339: unchanged, to the nanosecond
    2026-05-17 12:34:56,789 +0200     a space for the T or before the zone, a comma for the point: written as above
    2026-05-17T12:34:56               without a zone: UTC, as in Elasticsearch and ECS
    1779014096.789, 1779014096789     seconds since 1970 below 10^11 (the year 5138), milliseconds below 10^14

Other values are refused: other texts, numbers in texts, invalid dates and times (30 February, a second 60), and zones
beyond 18 hours, which Elasticsearch refuses too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

_Instants = list[Annotated[datetime, msgspec.Meta(tz=True)]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SECONDS, _MOST_MILLISECONDS = 10**11, 10**14
_YEARS = range(1000, 9000)
_ZONE = r"[+-](?:(?:0\d|1[0-7]):?[0-5]\d|18:?00)"
_WRITTEN = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d{{1,9}}))? ?([Zz]|{_ZONE})?", re.ASCII)
_EXACT = re.compile(rf"[^ t]{{19}}(?:\.\d{{1,9}})?(?:Z|{_ZONE})", re.ASCII)


def instant(value: Any) -> str:
    """Returns the time in the form of RFC 3339; raises ValueError for an invalid one, without quoting it."""
    if type(value) in (int, float):
        return _of_epoch(value)
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("not a time")
    date, clock, fraction, zone = found.groups()
    text = f"{date}T{clock}{f'.{fraction}' if fraction else ''}{(zone or 'Z').upper()}"
    msgspec.convert([text], _Instants)
    return text


def arrival(before: Any) -> datetime:
    """Returns the time that an event has, from which a missing year is told; now if it has none, or one at an edge of
    the calendar, where a day before or after it does not exist."""
    try:
        found = datetime.fromisoformat(str(before))
    except ValueError:
        return datetime.now(UTC)
    if found.year not in _YEARS:
        return datetime.now(UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def are_exact(values: Sequence[Any]) -> bool:
    """Returns whether `instant` would return each value unchanged (0.1 µs each; `instant` takes 1.5)."""
    try:
        msgspec.convert(values, _Instants)
    except msgspec.ValidationError:
        return False
    return _are_short_and_utc("".join(values), values) or all(map(_EXACT.fullmatch, values))


def _are_short_and_utc(text: str, values: Sequence[str]) -> bool:
    """Returns whether valid times end in `Z`, and have at most nine digits of a fraction."""
    return text.count("T") == text.count("Z") == len(values) and max(map(len, values), default=0) <= 30


def _of_epoch(number: float) -> str:
    if not 0 <= number < _MOST_MILLISECONDS:
        raise ValueError("not a time")
    milliseconds = round(number * 1000) if number < _MOST_SECONDS else round(number)
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
