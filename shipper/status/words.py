"""Durations, rates and counts in words, for people."""

from __future__ import annotations


def span(seconds: float) -> str:
    """Returns a duration in one unit, such as `90 min`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.5 or not seconds else f"{seconds:.1f} s"


def rate(per_second: float | None) -> str:
    """Returns events a second with two or three digits; a dash where the rate is not known."""
    if per_second is None:
        return "–"
    digits = 0 if per_second >= 9.95 or not per_second else 1 if per_second >= 0.095 else 2
    return f"{per_second:,.{digits}f}/s"


def counted(number: int, what: str, many: str = "") -> str:
    """Returns a number with its noun: `1 event`, `1,200 events`; `many` is a plural without `s` at its end."""
    return f"1 {what}" if number == 1 else f"{number:,} {many or what + 's'}"
