"""PUBLIC: YAML of others, read as strictly as a policy (`document`): for plugins whose files are written in it.

So a small text never is a large value, since there are no aliases; a key stands there once; and types are those of YAML
1.2. It has `LARGEST` bytes at most, and a nesting of `DEEPEST`.
"""

from __future__ import annotations

from typing import Any

from shipper.policy.document import DEEPEST, LARGEST, plain, read
from shipper.sdk.errors import PolicyError

__all__ = ["DEEPEST", "LARGEST", "read_yaml"]


def read_yaml(text: bytes) -> Any:
    """Nested dictionaries and lists of strings, numbers, booleans and None. Raises ValueError, which names the line and
    never quotes it, for what is no such text."""
    try:
        return plain(read(text))
    except PolicyError as error:
        first = error.problems[0]
        raise ValueError(f"line {first.line}, column {first.column}: {first.message}") from None
