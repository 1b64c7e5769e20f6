"""PUBLIC: the standard channels, the limit of open files, and the reserve of descriptors for the core.

The soft limit is 1024 on most systems, for programs that still use `select`; the operator sets the hard limit. The soft
limit is raised to the hard one. Child processes other than a sidecar get the old one back.

Accepted connections and followed files, whose number is unlimited, leave the last numbers to the core: the spool,
outputs, the children of a supervisor. `open` and `accept` return the lowest free number (POSIX, "File Descriptor
Allocation"). So a number of the reserve shows that all below are taken, and is closed again; this needs no counter, and
has no race between threads.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

RESERVED = 32
"""Descriptors for the core; a quarter of all, where there are few."""

_found: tuple[int, int] | None = None
"""The limits before they were raised."""


def raise_limit() -> None:
    """Raises the soft limit to the hard one, if the system allows it."""
    global _found
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        _found = limits


def give_back(pid: int) -> None:
    """Restores the original limits for a child process; only on Linux."""
    if _found is not None and hasattr(resource, "prlimit"):
        with suppress(OSError, ValueError):  # it may have ended
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _found)


def limit() -> int:
    """Returns the number of descriptors that this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def is_reserved(descriptor: int, *, is_needed: bool = False) -> bool:
    """Whether a new descriptor is one of the reserve; the caller closes it if it is not of the core.

    `is_needed`: the first half of the reserve may be taken, by who has no other descriptor to go on with.
    """
    most = limit()
    reserve = min(RESERVED, most // 4)
    return descriptor >= most - (reserve // 2 if is_needed else reserve)


def is_short(error: OSError) -> bool:
    """Whether an open failed for lack of a descriptor, so that a retry may succeed."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def none_is_left(*, for_outside: bool = False) -> bool:
    """Whether nothing can be opened now, or only from the reserve; SQLite does not report why it could not open a
    file."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return is_short(error)
    os.close(descriptor)
    return for_outside and is_reserved(descriptor)


def shortage(number: int = errno.EMFILE) -> str:
    """Returns the problem in words, with the limit and the remedy."""
    if number == errno.ENFILE:
        return f"{os.strerror(number)}: raise fs.file-max of this host"
    return f"{os.strerror(errno.EMFILE)}: the limit is {limit()}, raise it (LimitNOFILE= of the unit, ulimit -Hn)"


def in_words(error: OSError) -> str:
    """Returns the system's text of an error; for a lack of descriptors with the remedy."""
    return shortage(error.errno or errno.EMFILE) if is_short(error) else error.strerror or str(error)


def open_closed() -> None:
    """Opens closed standard channels on /dev/null, since the next opened file would take their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
