"""Has imported the program, and forks it on request: `python -m tests.zygote SOCKET`. See `tests.forks`.

A request is four bytes of its length, with the descriptors, and an object in JSON. The new process is a child of the
owner of this one, which answers nothing itself: `tests.forked` does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import platform
import signal
import socket
import sys
from typing import NoReturn

from tests import forked, forks

_CLONE_PARENT, _CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID = 0x8000, 0x1000000, 0x200000  # <linux/sched.h>
_MOST_DESCRIPTORS = 64

_library = ctypes.PyDLL(None, use_errno=True)  # Python's lock is held in its calls
_library.syscall.restype = ctypes.c_long


def main() -> NoReturn:
    """Imports, and forks until the owner has closed its end of the socket."""
    del sys.path[0]  # that of `-m`
    for number in forks.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    for name in ("shipper", "shipper_plugins"):
        _import_all(name)
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    serve(socket.socket(fileno=int(sys.argv[1])))


def _import_all(name: str) -> None:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith(".__main__"):  # it is run
            importlib.import_module(module.name)


def serve(end: socket.socket) -> NoReturn:
    """Forks for the owner of the other end until that is closed."""
    os.setpgid(0, 0)  # out of the way of Ctrl-C and `killpg`
    while True:
        head, descriptors, _, _ = socket.recv_fds(end, 4, _MOST_DESCRIPTORS)
        if not head:
            os._exit(0)
        request = forked.Request(**json.loads(_exactly(end, int.from_bytes(head, "big"))))
        if _fork_sibling() == 0:
            forked.become(request, *descriptors, serve=serve)
        for descriptor in descriptors:
            os.close(descriptor)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := end.recv(size - len(data))):
        data += more
    return data


def _fork_sibling() -> int:
    """As `os.fork`, but the new process is a child of our parent, for which the C library has no call."""
    tid = ctypes.c_ulong()
    _library.prctl(forks.PR_GET_TID_ADDRESS, ctypes.byref(tid), 0, 0, 0)  # the library keeps its thread's id there
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | signal.SIGCHLD
    ctypes.pythonapi.PyOS_BeforeFork()
    # that address is the fourth argument, or on other machines the fifth
    pid = _library.syscall(ctypes.c_long(forks.CLONE[platform.machine()]), ctypes.c_ulong(flags), None, None, tid, tid)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    assert isinstance(pid, int)
    return pid


if __name__ == "__main__":
    main()
