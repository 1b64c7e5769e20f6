r"""Reads pairs of keys and values, for `parse` of `kv`.

    level=info msg="user \"ann\" logged in" ms=12        level: info, msg: user "ann" logged in, ms: 12

A pair ends at `field_split` or a line feed, its key at the first `value_split`. A value in double quotes may contain
both, and the escapes of JSON; a quote that no end of a pair follows, or that is not closed, is text like any other. A
key in several pairs has a list of their values. A word without `value_split`, and an empty value, are no pair.

One pattern reads a text in linear time: after what is no pair it goes on behind the whole word, and an open quote is
looked for once, since the opening of the next would close it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import orjson

from shipper.plugin import Fields

_ESCAPED = re.compile(r'\\(["\\])')


def check_split(text: str) -> None:
    """Raises ValueError for a delimiter that cannot be told from a value."""
    if not 1 <= len(text) <= 16 or not {'"', "\\", "\n"}.isdisjoint(text):
        raise ValueError("a delimiter has 1 to 16 characters, and no quote, backslash and line feed")


def read(lines: Sequence[bytes], field_split: str, value_split: str) -> list[Fields | None]:
    """Returns the pairs of each line of UTF-8; None for a line without one."""
    find = _pattern(field_split, value_split).findall
    return [_pairs(find(line.decode())) for line in lines]


@lru_cache(maxsize=64)
def _pattern(field_split: str, value_split: str) -> re.Pattern[str]:
    no_end, no_part = _others(field_split), _others(field_split, value_split)
    ends = rf"(?={re.escape(field_split)}|\n|\Z)"
    quoted = rf'"((?:[^"\\]|\\.)*+)"{ends}'
    pair = rf"({no_part}++){re.escape(value_split)}(?:{quoted}|({no_end}*+))"
    end = "" if len(field_split) == 1 else rf"(?:{re.escape(field_split)}|\n)++|"
    return re.compile(rf"{end}{pair}|{no_end}++", re.DOTALL)


def _others(*texts: str) -> str:
    """Returns a pattern of one character at which none of these texts begins."""
    if all(len(text) == 1 for text in texts):
        return rf"[^\n{''.join(map(re.escape, texts))}]"
    return rf"(?:(?!{'|'.join(map(re.escape, texts))})[^\n])"


def _pairs(found: Sequence[tuple[str, str, str]]) -> Fields | None:
    pairs = {key: _value(quoted) if quoted else plain for key, quoted, plain in found if quoted or plain}
    if len(pairs) == len(found):
        return pairs or None
    several: dict[str, list[str]] = {}
    for key, quoted, plain in found:
        if quoted or plain:
            several.setdefault(key, []).append(_value(quoted) if quoted else plain)
    return {key: values if len(values) > 1 else values[0] for key, values in several.items()} or None


def _value(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted
    try:
        return str(orjson.loads(f'"{quoted}"'))
    except ValueError:
        return _ESCAPED.sub(r"\1", quoted)
