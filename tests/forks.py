"""Starts `python -m shipper` by a fork, in milliseconds: the imports of a fresh interpreter take up to a second of CPU.

`subprocess.Popen`, and with it `subprocess.run` and all that trio starts, asks a zygote (`tests/zygote.py`) for each
such command of its own interpreter. The process it gets is a child of the caller, with the arguments, environment,
directory, descriptors, limits, signals and session that an executed one would have, in /proc too. All other commands
are executed as ever, and so is this one wherever a fork could show another behaviour:

- in a test marked `executed`, and everywhere under `SHIPPER_TESTS_EXEC=1`;
- with a `preexec_fn`, another user, a shell, or inherited descriptors;
- with variables that an interpreter or the C library reads at its start, other than ours;
- where the kernel cannot do it (see `is_possible`).

A zygote starts with the first command that needs it and ends with its owner: the other end of its socket is closed.

    pytest ──┬── zygote ············ imports everything, then waits
             ├── shipper run         forked by it with CLONE_PARENT: a sibling of the zygote, and so a child of pytest
             └── shipper supervise ──┬── zygote ····· forked before the supervisor has begun
                                     └── shipper run
"""

from __future__ import annotations

import array
import ctypes
import inspect
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MODULES = ("shipper", "shipper_demo.leash")
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_", "SSLKEYLOG", "COVERAGE_")
LIMITS = [value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the call clone(2)."""
PR_GET_TID_ADDRESS = 40
"""Of prctl(2), which has it where it has `PR_SET_MM_MAP`."""
SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PLAIN = {"preexec_fn": None, "close_fds": True, "shell": False, "restore_signals": True, "process_group": -1}
_PLAIN |= {"gid": None, "gids": None, "uid": None}
"""What `Popen` passes on where nothing special is asked for."""

_execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_execute_child)


class Zygote:
    """The process that forks for this one, at the other end of a socket."""

    def __init__(
        self, end: socket.socket, environ: Mapping[str, str], process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._process = process
        self._read_at_start = _read_at_start(environ)
        self._user = os.geteuid()

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Whether an interpreter with this environment would start as the zygote has."""
        return _read_at_start(environ) == self._read_at_start and os.geteuid() == self._user

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """A new process; the descriptors become those that `request` tells. Returns its id."""
        answer, its = os.pipe()
        with open(answer, "rb") as answered:
            with suppress(BrokenPipeError), open(its, "wb"):
                self._send(json.dumps(request).encode(), [its, *descriptors])
            said = answered.read().decode()
        if not said.isdecimal():
            raise RuntimeError(f"no process was forked: {said or self._ended()}")
        return int(said)

    def _send(self, body: bytes, descriptors: Sequence[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            self._end.sendmsg([len(body).to_bytes(4, "big")], rights)
            self._end.sendall(body)

    def _ended(self) -> str:
        status = None if self._process is None else self._process.poll()
        return f"the new process or its zygote has ended (status of the zygote: {status}); see standard error"

    def close(self) -> None:
        """It has ended afterwards."""
        with suppress(OSError):  # it has ended already
            self._end.shutdown(socket.SHUT_RDWR)  # whoever has inherited it
        self._end.close()
        if self._process is not None:
            self._process.wait()


_zygote: Zygote | None = None
_environ: dict[str, str] = {}
"""Ours before any test."""
_off = "SHIPPER_TESTS_EXEC" in os.environ
_starting = threading.Lock()


def is_possible() -> bool:
    """Whether this kernel has what a zygote needs."""
    if sys.platform != "linux" or platform.machine() not in CLONE:
        return False
    address = ctypes.c_ulong()
    return ctypes.CDLL(None).prctl(PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) == 0


def install(zygote: Zygote | None = None) -> None:
    """From now on, commands of this process are forked, by this zygote if there is one already."""
    global _zygote, _environ
    _zygote, _environ = zygote, dict(os.environ)
    if is_possible():
        subprocess.Popen._execute_child = _start  # type: ignore[attr-defined]


@contextmanager
def off() -> Iterator[None]:
    """Everything is executed in this block."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def close() -> None:
    """The zygote has ended, if there was one."""
    global _zygote
    if _zygote is not None:
        _zygote.close()
        _zygote = None


def _the_zygote() -> Zygote:
    global _zygote
    with _starting:
        if _zygote is None:
            mine, its = socket.socketpair()
            with its:
                command = [sys.executable, "-m", "tests.zygote", str(its.fileno())]
                nothing = subprocess.DEVNULL
                process = subprocess.Popen(command, cwd=ROOT, pass_fds=[its.fileno()], stdin=nothing, env=_environ)
            _zygote = Zygote(mine, _environ, process)
        return _zygote


def _start(popen: Any, *arguments: Any, **more: Any) -> None:
    """In place of `Popen._execute_child`."""
    wanted = _signature.bind(popen, *arguments, **more).arguments
    program = None if _off else _program(wanted)
    environ = os.environ if wanted["env"] is None else wanted["env"]
    environ = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
    if program is None or not (zygote := _the_zygote()).fits(environ):
        _execute_child(popen, *arguments, **more)
        return
    descriptors = _descriptors(wanted)
    request = {
        "command": [os.fsdecode(word) for word in wanted["args"]],
        "program": program,
        "environ": environ,
        "cwd": os.fsdecode(wanted["cwd"] or os.getcwd()),
        "umask": _umask() if wanted["umask"] < 0 else wanted["umask"],
        "limits": [resource.getrlimit(limit) for limit in LIMITS],
        "ignored": [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        "group": None if wanted["start_new_session"] else os.getpgrp(),
        "numbers": list(descriptors),
    }
    popen.pid = zygote.fork(request, list(descriptors.values()))
    popen._child_created = True
    popen._close_pipe_fds(*(wanted[name] for name in _PIPES))


def _program(wanted: Mapping[str, Any]) -> list[str] | None:
    """The module of a command and its arguments, where it can be forked."""
    args = wanted["args"]
    if isinstance(args, str | bytes | os.PathLike) or any(wanted[name] != value for name, value in _PLAIN.items()):
        return None
    words = [os.fsdecode(word) for word in args]
    flags = words[1:2] if words[1:2] == ["-P"] else []
    if words[: 2 + len(flags)] != [sys.executable, *flags, "-m"] or wanted["executable"] not in (None, args[0]):
        return None
    program = words[2 + len(flags) :]
    is_there = os.path.isdir(wanted["cwd"] or ".") and all(map(_is_open, _descriptors(wanted).values()))
    return program if program and program[0] in MODULES and is_there else None


def _descriptors(wanted: Mapping[str, Any]) -> dict[int, int]:
    """Those of the new process, each with the one of ours that it is."""
    given = [wanted[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    standard = {own: own if ours == -1 else ours for own, ours in enumerate(given)}
    return standard | {number: number for number in map(int, wanted["pass_fds"])}


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _umask() -> int:
    """Ours, without changing it for a moment."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("Umask:")[2].split()[0], 8)


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how an interpreter starts; empty ones do as if they were absent."""
    return {name: value for name, value in environ.items() if value and name.startswith(_READ_AT_START)}
