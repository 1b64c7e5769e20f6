"""Parts of JSON-able values, by paths of keys and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Path = Sequence[str | int]


def part(tree: Any, path: Path) -> Any:
    """Returns the part at a path; raises LookupError or TypeError where the tree has none."""
    for key in path:
        tree = tree[key]
    return tree


def changed(tree: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Returns a copy of the tree with the result of `change` for its part at a path."""
    if not path:
        return change(tree)
    copied = tree.copy()
    copied[path[0]] = changed(copied[path[0]], path[1:], change)
    return copied
