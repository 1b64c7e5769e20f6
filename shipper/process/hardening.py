"""What a process that holds secrets gives up, before it holds the first one.

| given up | what it would show |
|---|---|
| being dumpable (`PR_SET_DUMPABLE`) | memory, environment and open files, to processes of the same user and in cores |
| core files (`RLIMIT_CORE`) | memory, in a file, on systems without the first |

Root still sees everything; a debugger of the same user does not, so to look into a running process, be root. The soft
limit alone is lowered: a command that is run `on_release` may raise its own again.

Refused: a umask of 077. It would belong to the `file` output and to commands too, whose files others are meant to read
(the output makes them with 0640 and lets the umask of the operator decide); all that is private here is made with a
mode of its own, 0600 or 0700, whatever the umask.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress

# <linux/prctl.h>
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Do so for this process; to be called before it reads a secret. What a system does not know is left out."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
