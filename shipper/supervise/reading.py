"""Reads files that a person names: a policy, the configuration, a secret, a key."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def content(path: Path, longest: int) -> bytes:
    """What a file holds, of more than `longest` bytes one more than that.

    Raises OSError, also for what is no regular file: a pipe that nobody writes to would be waited for without end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(longest + 1)
    finally:
        os.close(descriptor)
