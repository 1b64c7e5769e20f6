"""The standard channels, how many files a process may have open, and who goes without when these run out.

The soft limit is 1024 on most systems, for programs that still use `select`; the hard limit is what an operator set. It
is raised to that. The programs that a process starts, other than a sidecar, get the old one back.

What comes from outside in any number (connections that are accepted, files that are followed) leaves the last numbers
to the core: the spool, outputs, the children of a supervisor. `open` and `accept` give the lowest number that is free
(POSIX, "File Descriptor Allocation"). So whoever gets a number of the reserve knows that all below are taken, and
closes it; nobody has to count, and no two threads can take the same place.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

RESERVED = 32
"""Descriptors for the core; a quarter of them all, where there are few."""

_found: tuple[int, int] | None = None
"""The limits before they were raised."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one; what a system refuses is left as it is."""
    global _found
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        _found = limits


def give_back(pid: int) -> None:
    """Give a process, started by this one, the limits that `raise_limit` found; Linux alone can."""
    if _found is not None and hasattr(resource, "prlimit"):
        with suppress(OSError, ValueError):  # it may have ended
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _found)


def limit() -> int:
    """How many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def is_reserved(descriptor: int) -> bool:
    """Whether a descriptor that was just opened is one of the core's; what comes from outside closes it then."""
    most = limit()
    return descriptor >= most - min(RESERVED, most // 4)


def is_short(error: OSError) -> bool:
    """Whether something could not be opened for want of a descriptor, so that it can be later."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def none_is_left(*, for_outside: bool = False) -> bool:
    """Whether nothing can be opened now, or only with the reserve: SQLite does not say why it could not open a file."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return is_short(error)
    os.close(descriptor)
    return for_outside and is_reserved(descriptor)


def shortage(number: int = errno.EMFILE) -> str:
    """What is wrong, with the limit, and what to do."""
    if number == errno.ENFILE:
        return f"{os.strerror(number)}: raise fs.file-max of this host"
    return f"{os.strerror(errno.EMFILE)}: the limit is {limit()}, raise it (LimitNOFILE= of the unit, ulimit -Hn)"


def in_words(error: OSError) -> str:
    """What the system says of an error; for want of a descriptor with what to do."""
    return shortage(error.errno or errno.EMFILE) if is_short(error) else error.strerror or str(error)


def open_closed() -> None:
    """Open what is closed of the standard channels on nothing: or what is opened next would stand in their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
