"""Python imports this at the start of a process that has this folder in PYTHONPATH (`test_story_blocking`).

It notes each call to a file system that is made in the thread of an event loop, trio's or asyncio's, and that concerns
something below WATCHED_DIRECTORY: a line for each in WATCHED_NOTES, with where it was made.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

_DIRECTORY = os.environ.get("WATCHED_DIRECTORY", "")
_NOTES = os.open(os.environ["WATCHED_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if _DIRECTORY else -1
_BY_AUDIT = ("open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link")
_BY_NAME = ("stat", "lstat", "access", "readlink", "statvfs")
_BY_DESCRIPTOR = ("read", "pread", "preadv", "write", "writev", "fstat", "fsync", "fdatasync", "ftruncate", "close")
_readlink = os.readlink
_write = os.write


def _is_of_a_loop() -> bool:
    """Asyncio's loop has a thread of its own, which `shipper.sdk.aio` names so."""
    return threading.current_thread() is threading.main_thread() or threading.current_thread().name == "asyncio"


def _path(where: object) -> str:
    try:
        return _readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fsdecode(where)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def _note(call: str, where: object) -> None:
    if _is_of_a_loop() and _path(where).startswith(_DIRECTORY):
        stack = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_stack()[-3:-9:-1])
        _write(_NOTES, f"{call} {_path(where)}: {stack}\n".encode())


def _audited(event: str, details: tuple[Any, ...]) -> None:
    if event in _BY_AUDIT:
        _note(event, details[0])


def _noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noting(where: Any, *args: Any, **options: Any) -> Any:
        does_not_wait = name == "preadv" and args[-1:] == (getattr(os, "RWF_NOWAIT", -1),)
        is_in_memory = name == "fstat" and sys._getframe(1).f_code.co_name in ("at_hand", "head_at_hand")
        if not (does_not_wait or is_in_memory):
            _note(name, where)
        return call(where, *args, **options)

    return noting


if _DIRECTORY:
    for _name in (*_BY_NAME, *_BY_DESCRIPTOR):
        setattr(os, _name, _noted(_name, getattr(os, _name)))
    sys.addaudithook(_audited)
