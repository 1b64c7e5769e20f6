"""Hardens a process that holds secrets, before it holds the first one.

| given up | exposes |
|---|---|
| being dumpable (`PR_SET_DUMPABLE`) | memory, environment and open files, to processes of the same user and in cores |
| core files (`RLIMIT_CORE`) | memory, in a file, on systems without the first |

Root still sees everything; a debugger of the same user does not. Only the soft limit is lowered: a command that runs
`on_release` may raise its own again.

Rejected: a umask of 077. It would apply to the `file` output and to commands too, whose files others may read (the
output makes them with 0640 less the operator's umask); private files are made with mode 0600 or 0700.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress

# <linux/prctl.h>
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Hardens this process; call it before it reads a secret. Ignores a measure that the system lacks."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
