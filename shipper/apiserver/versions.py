"""Which resourceVersion is newer (KEP-5504): decimal numbers of any length, without a sign or leading zeros. Pure.

Versions of one kind of objects are in one order, whatever object they are of. A version that is no such number is
opaque: it is equal to itself, and nothing else is known of it. "0" is opaque, too: servers give it another meaning.
"""

from __future__ import annotations


def is_number(version: str) -> bool:
    """Whether a version has an order."""
    return version.isascii() and version.isdigit() and not version.startswith("0")


def compare(a: str, b: str) -> int | None:
    """Returns -1, 0 or 1 where `a` is older than `b`, the same or newer, and None where that cannot be known."""
    if not a or not b:
        return None
    if a == b:
        return 0
    if not is_number(a) or not is_number(b):
        return None
    return -1 if (len(a), a) < (len(b), b) else 1


def is_older(a: str, b: str) -> bool:
    """Whether `a` is certainly older than `b`."""
    return compare(a, b) == -1


def is_covered(a: str, b: str) -> bool:
    """Whether a state at `b` certainly has the change at `a`."""
    return compare(a, b) in (-1, 0)


def newest(a: str, b: str) -> str:
    """Returns the newer one; where that cannot be known, `b`, which was learnt later, unless it is empty."""
    return a if not b or compare(a, b) == 1 else b
