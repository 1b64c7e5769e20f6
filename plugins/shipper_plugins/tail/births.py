"""When a file was made: what tells it from an older one that had its inode. Python asks for it by `statx` from 3.15."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

_EMPTY_PATH = 0x1000
_BIRTH = 0x800
_SECONDS_AND_NANOSECONDS = struct.Struct("qI")
_AT = 80


def _statx() -> Any:
    try:
        return ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None


_call = _statx()


def born(file: int) -> int:
    """When an open file was made, in nanoseconds; 0 where the file system or the C library cannot tell. May block."""
    room = ctypes.create_string_buffer(256)
    if _call is None or _call(file, b"", _EMPTY_PATH, _BIRTH, room):
        return 0
    (known,) = struct.unpack_from("I", room)
    seconds, nanoseconds = _SECONDS_AND_NANOSECONDS.unpack_from(room, _AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if known & _BIRTH else 0
