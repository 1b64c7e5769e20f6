"""Python's collector of cycles need not look at what lives as long as the process, nor at what is gone in a moment.

Imports make some hundred thousand objects and hardly any garbage, but every few thousand of them the collector looks
through those that are there; and the interpreter looks through all of them at its end. Both take 0.05 s.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect nothing within this block, which imports, and leave out of every collection what there is at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tune() -> None:
    """Collect after 2,000 new objects, not 700: 256 documents that are checked together are a thousand, and each
    collection meanwhile looks through all of them (5 % of a receiver's CPU)."""
    gc.set_threshold(2000, *gc.get_threshold()[1:])


def ending() -> None:
    """Leave out of the last collections what there is: the process ends, and its memory with it.

    What has to be closed must be closed before, or be referred to by no cycle.
    """
    gc.freeze()
