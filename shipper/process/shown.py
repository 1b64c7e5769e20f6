"""What /proc shows of a process that was forked and not executed: its own command line and environment.

See prctl(2), PR_SET_MM_MAP, and proc_pid_stat(5). A kernel without this call goes on to show those of the parent.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14  # <linux/prctl.h>
_NO_AUXILIARY_VECTOR, _NO_EXECUTABLE = 0, 0xFFFFFFFF << 32
_shown: list[object] = []
"""The memory that /proc shows."""


def show(command: Sequence[str], environment: Sequence[str]) -> None:
    """Has /proc show these; an entry of `environment` is `name=value`. Raises OSError where that is impossible."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sbrk.restype = ctypes.c_ulong
    third, *further = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    field = dict(enumerate([third, *further], 3))
    areas = [int(field[number]) for number in (26, 27, 45, 46, 47)] + [library.sbrk(0), int(field[28])]
    for part in (command, environment):
        memory = ctypes.create_string_buffer(os.fsencode("\0".join(part)))
        _shown.append(memory)
        areas += [ctypes.addressof(memory), ctypes.addressof(memory) + len(memory)]
    words = (ctypes.c_uint64 * 13)(*areas, _NO_AUXILIARY_VECTOR, _NO_EXECUTABLE)
    if library.prctl(_PR_SET_MM, _PR_SET_MM_MAP, words, ctypes.sizeof(words), 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_MM_MAP")
