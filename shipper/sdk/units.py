"""Sizes and durations in policies and on the command line.

A unit is required: `1GiB`, `512KiB`, `1MB`; `250ms`, `30s`, `15m`, `4h`. A bare number is refused, since its unit is
ambiguous. Zero needs a unit too.
"""

from __future__ import annotations

import re

_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{1,3})")


class Size(int):
    """A number of bytes, written with its unit."""

    @classmethod
    def parse(cls, text: object) -> Size:
        """Raises ValueError with a message for the person who wrote it."""
        return cls(_quantity(text, _SIZES, "a size with a unit, such as 512KiB or 1GiB"))

    def __str__(self) -> str:
        for unit, factor in sorted(_SIZES.items(), key=lambda item: -item[1]):
            if self and self % factor == 0:
                return f"{int(self) // factor}{unit}"
        return f"{int(self)}B"


class Duration(float):
    """A number of seconds, written with its unit."""

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Raises ValueError with a message for the person who wrote it."""
        return cls(_quantity(text, _DURATIONS, "a duration with a unit, such as 250ms, 30s or 15m"))

    def __str__(self) -> str:
        milliseconds = round(float(self) * 1000)
        for unit, factor in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
            if milliseconds and milliseconds % factor == 0:
                return f"{milliseconds // factor}{unit}"
        return f"{milliseconds}ms"


def _quantity(text: object, units: dict[str, int] | dict[str, float], wanted: str) -> float:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"expected {wanted}")
    return float(match[1]) * units[match[2]]


def events_in_words(events: int) -> str:
    """Returns a number of events in words, such as `1,200 events`."""
    return "1 event" if events == 1 else f"{events:,} events"


def size_in_words(count: int) -> str:
    """Returns a size for people: exact where it has a round unit, otherwise with three digits."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return str(Size(count)) if count % factor == 0 else f"{count / factor:.1f}{unit}"
    return f"{count}B"
