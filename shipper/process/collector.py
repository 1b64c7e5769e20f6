"""Python's collector of cycles need not look at what lives as long as the process: 0.05 s of its start.

Imports make some hundred thousand objects and hardly any garbage, but every few thousand of them the collector looks
through those that are there.
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
