"""The standard channels, and how many files a process may have open: as many as the system lets it.

The soft limit is 1024 on most systems, for programs that still use `select`; the hard limit is what an operator set. A
process that starts others would give the old one back to them; the sidecar starts none.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress


def raise_limit() -> None:
    """Raise the soft limit to the hard one; what a system refuses is left as it is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_closed() -> None:
    """Open what is closed of the standard channels on nothing: or what is opened next would stand in their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
