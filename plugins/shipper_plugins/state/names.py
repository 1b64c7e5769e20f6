"""The key of a file: its name, without the ending for its format."""

from __future__ import annotations

import os

SUFFIXES = (".json", ".yaml", ".yml")


def key_of(path: str) -> str | None:
    """Returns the key; None if the name is not that of a document. A name that is not UTF-8 has surrogates in it, as in
    `os`."""
    name = os.path.basename(path)
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix) or None if suffix else None


def is_text(key: str) -> bool:
    """Whether a key can be stored."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
