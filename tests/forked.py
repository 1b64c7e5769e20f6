"""A process that a zygote has forked: how it becomes what `python -m shipper` would be. See `tests.forks`.

It answers when it is that: with its id, or with what went wrong. What is drawn at random by imports is drawn anew. It
runs its module as `python -m` does, and ends without the interpreter's last steps, which free memory piece by piece.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import resource
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import trio

from shipper.process import environment, shown
from shipper_plugins.relay.edge import sessions as relay_sessions
from tests import forks

_ABOVE = 200
"""Descriptors of the zygote's business are above those that a process is given."""
_STREAMS = [sys.stdin, sys.stdout, sys.stderr]


@dataclass(frozen=True, slots=True)
class Request:
    """What a new process shall be."""

    command: list[str]
    program: list[str]
    """The module and its arguments: the end of `command`."""
    environ: dict[str, str]
    cwd: str
    umask: int
    limits: list[tuple[int, int]]
    """Soft and hard, of each of `forks.LIMITS`."""
    ignored: list[int]
    """Numbers of signals."""
    group: int | None
    """The process group to be in; None for a session of its own."""
    numbers: list[int]
    """Those of its descriptors, in the order in which they are sent."""


def become(request: Request, answer: int, *descriptors: int, serve: Callable[[socket.socket], NoReturn]) -> NoReturn:
    """Be what was asked for, to the end; `serve` is what a zygote does, for a program that starts others."""
    try:
        answer = _set_up_process(request, answer, *descriptors)
        if _starts_others(*request.program):
            _fork_zygote(serve)
        _set_up_rest(request)
    except Exception:
        os.write(answer, traceback.format_exc().encode())
        os._exit(1)
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)
    _run(request.program[0])


def _set_up_process(request: Request, answer: int, *descriptors: int) -> int:
    """Its session and its descriptors; returns where to answer."""
    if request.group is None:
        os.setsid()
    else:
        os.setpgid(0, request.group)
    answer, *raised = map(_raised, (answer, *descriptors))
    for descriptor, number in zip(raised, request.numbers, strict=True):
        os.dup2(descriptor, number)
    _close_all_but(answer, *request.numbers)
    return answer


def _raised(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    finally:
        os.close(descriptor)


def _close_all_but(*kept: int) -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            with suppress(OSError):  # that of the list itself
                os.close(descriptor)


def _starts_others(module: str, verb: str = "", *_: str) -> bool:
    return module != "shipper" or verb in ("supervise", "demo")


def _fork_zygote(serve: Callable[[socket.socket], NoReturn]) -> None:
    """Fork one of its own for this process, before that has begun to be anything."""
    mine, its = socket.socketpair()
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        _close_all_but(0, 1, 2, its.fileno())
        os.chdir("/")
        serve(its)
    its.close()
    forks.install(forks.Zygote(socket.socket(fileno=_raised(mine.detach())), os.environ.copy()))


def _set_up_rest(request: Request) -> None:
    for limit, values in zip(forks.LIMITS, map(tuple, request.limits), strict=True):
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.umask(request.umask)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environ)
    shown.show(request.command, [f"{name}={value}" for name, value in request.environ.items()])
    _set_up_python(request)


def _set_up_python(request: Request) -> None:
    """What an interpreter does at its start, and what imports draw at random; `random` itself sees to its own."""
    time.tzset()
    tempfile.tempdir = None
    for draw in (trio._core._run._r, environment.REAL.draw):
        draw.seed()
    relay_sessions._instance = os.urandom(16).hex()
    sys.argv = ["-m", *request.program[1:]]
    sys.orig_argv = request.command
    if "-P" not in request.command[1:2]:
        sys.path.insert(0, os.getcwd())
    sys.stdin = sys.__stdin__ = _standard(0, "r")
    sys.stdout = sys.__stdout__ = _standard(1, "w")
    sys.stderr = sys.__stderr__ = _standard(2, "w")
    sys.modules.pop("shipper.__main__", None)
    sys.modules["__main__"] = types.ModuleType("__main__")
    if signal.SIGINT not in request.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _standard(number: int, mode: str) -> io.TextIOWrapper:
    like = _STREAMS[number]
    is_buffered = not like.write_through  # see PYTHONUNBUFFERED
    stream = open(number, f"{mode}b", -1 if is_buffered or mode == "r" else 0, closefd=False)  # noqa: SIM115 (it stays)
    return io.TextIOWrapper(
        stream,
        like.encoding,
        like.errors,
        newline=None if mode == "r" else "\n",
        line_buffering=is_buffered and (stream.isatty() or number == 2),
        write_through=like.write_through,
    )


def _run(module: str) -> NoReturn:
    status: object = None
    try:
        runpy._run_module_as_main(module)
    except SystemExit as end:
        status = end.code
        if not isinstance(status, int | None):
            raise
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)
