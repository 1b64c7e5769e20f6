"""PUBLIC: keyed state, for inputs that call `InputContext.keep` and outputs that take versions.

`shipper.sdk.state` says what keyed state is.
"""

from __future__ import annotations

from shipper.sdk.state import (
    LARGEST_PLACE,
    LONGEST_KEY,
    LONGEST_NAME,
    Change,
    Decided,
    Kept,
    Mark,
    Quota,
    RoutedState,
    Version,
    answers_key,
    compact,
    digest_of,
    digest_of_names,
    place_of,
    point_of,
)

__all__ = [
    "LARGEST_PLACE",
    "LONGEST_KEY",
    "LONGEST_NAME",
    "Change",
    "Decided",
    "Kept",
    "Mark",
    "Quota",
    "RoutedState",
    "Version",
    "answers_key",
    "compact",
    "digest_of",
    "digest_of_names",
    "place_of",
    "point_of",
]
