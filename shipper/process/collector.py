"""Python's collector of cycles need not look at what lives as long as the process: 0.05 s of its start.

Imports make some hundred thousand objects and hardly any garbage, but every few thousand of them the collector looks
through those that are there. What is there at the end of an import at the start is left out of all later collections.
Once events move that would be wrong: a queue, a task or a connection of that moment would never be freed, if it is in
a cycle.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Collector:
    """That of this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._imports = 0
        self._is_starting = True

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Collect nothing within this block, which imports. At the start, leave out of every collection what there is
        at its end."""
        with self._lock:
            self._imports += 1
            gc.disable()
        try:
            yield
        finally:
            with self._lock:
                self._imports -= 1
                if self._is_starting:
                    gc.freeze()
                if self._imports == 0:
                    gc.enable()

    def started(self) -> None:
        """From now on things come and go: what is imported later is looked at like them."""
        self._is_starting = False


_OF_PROCESS = Collector()
importing, started = _OF_PROCESS.importing, _OF_PROCESS.started
