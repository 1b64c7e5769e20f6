"""Wildcards, compared in polynomial time for any pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Part = TypeVar("_Part")
_Item = TypeVar("_Item")


def fits(
    pattern: Sequence[_Part], items: Sequence[_Item], *, star: _Part, fits_one: Callable[[_Part, _Item], bool]
) -> bool:
    """Returns whether a pattern matches all `items`; `star` matches any number of them, another part one.

    The greedy algorithm for wildcards: if a part does not fit, the last star takes one item more. No earlier star has
    to, since the last one can take the same items. So it takes at most as many comparisons as parts times items.
    """
    part = item = 0
    after_star, taken = -1, 0
    while item < len(items):
        if part < len(pattern) and pattern[part] == star:
            part += 1
            after_star, taken = part, item
        elif part < len(pattern) and fits_one(pattern[part], items[item]):
            part, item = part + 1, item + 1
        elif after_star >= 0:
            taken += 1
            part, item = after_star, taken
        else:
            return False
    return all(left == star for left in pattern[part:])
