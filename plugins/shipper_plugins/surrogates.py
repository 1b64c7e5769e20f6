"""Halves of surrogate pairs in JSON (`\\ud83d`), which RFC 8259 allows and no UTF-8 can represent. No I/O.

JavaScript cuts texts between the two halves of an emoji, and `JSON.stringify` writes the half that is left.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"\\\\"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""A backslash that stands for itself, a pair, or a half."""


def mended(text: bytes) -> bytes:
    """Returns a JSON text with U+FFFD for each half of a pair."""
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], text) if rb"\u" in text else text
