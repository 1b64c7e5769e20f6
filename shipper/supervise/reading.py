"""Reads files that a person has named: a policy, the configuration, a secret, a key.

A pipe is read too, as in `shipper validate <(envsubst < policy.yaml)`, with a timeout.
"""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path

PATIENCE = 5.0
"""Seconds in which the writer of a pipe must close it."""


def content(path: Path, longest: int) -> bytes:
    """Returns the content of a file, at most `longest` + 1 bytes.

    Raises OSError, also for anything but a regular file or a pipe with a writer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(kind):
            return _piped(descriptor, path, longest)
        if not stat.S_ISREG(kind):
            raise OSError(0, "it is not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(longest + 1)
    finally:
        os.close(descriptor)


def _piped(descriptor: int, path: Path, longest: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ends = time.monotonic() + PATIENCE
    found = bytearray()
    while len(found) <= longest:
        if not poll.poll(max(0.0, ends - time.monotonic()) * 1000):
            raise OSError(0, f"it is a pipe that nobody has closed within {PATIENCE:g} s", str(path))
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        found += piece
    if not found:
        raise OSError(0, "it is a pipe from which nothing came", str(path))
    return bytes(found[: longest + 1])
