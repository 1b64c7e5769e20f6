"""The first sidecar is forked and not executed: it shares the imports of its supervisor, and the memory of them.

    supervise ──┬── imports what both need, and forks before it has begun anything
                ├── is the supervisor
                └── waits for its command line, and is the sidecar (`spare`)

That saves a quarter of the processor time of a start, and as much of the memory of both. The fork is safe: there is one
thread, no loop, no open file, and no secret was read. The child has a session of its own, no descriptor but its pipes
and standard error, the signals of a new process, and the environment that it is told. It ends if its supervisor does.

Every later sidecar is executed, so it is of the program that is then installed, and one that has crashed leaves nothing
behind. The command of another program (`sidecar` of the configuration) is always executed. A parent that stays to fork
every sidecar was rejected: it would run what was installed once, and would be a third process to watch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import NoReturn

import trio

from shipper.process import shown

_LENGTH_BYTES = 4
PROGRAM = (sys.executable, "-P", "-m", "shipper")
"""The command that a spare process can be; arguments follow."""


class Forked:
    """A forked process, as far as `trio.Process` is used."""

    def __init__(self, pid: int, pidfd: int, stdin: int, stdout: int) -> None:
        self.pid, self._pidfd = pid, pidfd
        self.stdin, self.stdout = trio.lowlevel.FdStream(stdin), trio.lowlevel.FdStream(stdout)
        self.returncode: int | None = None
        """The status after `wait`."""

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)  # its number is its own until it is reaped

    async def wait(self) -> int:
        """Waits for its end, for one caller at a time; returns its status."""
        if self.returncode is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222 (it has ended)
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._pidfd)
        return self.returncode


class Spare:
    """A process that waits to be told what it is, made by `fork`."""

    def __init__(self, pid: int, *descriptors: int) -> None:
        """The descriptors are those of the process and of the other ends of its pipes."""
        self._pid, self._descriptors = pid, descriptors
        self._is_spare = True

    def become(self, command: Sequence[str], environment: Mapping[str, str]) -> Forked | None:
        """Has it be this command from now on; None, and its end, if it cannot be that."""
        told = json.dumps([command, dict(environment)]).encode()
        if self._is_spare and tuple(command[: len(PROGRAM)]) == PROGRAM:
            with suppress(OSError), open(self._descriptors[1], "wb", closefd=False) as stdin:
                stdin.write(len(told).to_bytes(_LENGTH_BYTES, "big") + told)
                stdin.flush()
                self._is_spare = False
                return Forked(self._pid, *self._descriptors)
        self.dismiss()
        return None

    def dismiss(self) -> None:
        """Ends it, if it is still spare."""
        if self._is_spare:
            self._is_spare = False
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            for descriptor in self._descriptors:
                os.close(descriptor)


def fork() -> Spare | None:
    """Forks a spare process; None where threads would be lost, or where its end could not be awaited.

    In the new process it does not return: that runs what it is told, and exits.
    """
    if len(os.listdir("/proc/self/task")) > 1 or not _can_await_processes():
        return None
    (its_stdin, stdin), (stdout, its_stdout) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _set_up(its_stdin, its_stdout)
        _run()
    os.close(its_stdin)
    os.close(its_stdout)
    return Spare(pid, os.pidfd_open(pid), stdin, stdout)


def _can_await_processes() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # another system, or a kernel before 5.3
        return False
    return True


def _set_up(stdin: int, stdout: int) -> None:
    """Has only what a launched process would have."""
    os.setsid()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with suppress(OSError):  # that of the list itself
                os.close(descriptor)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    faulthandler.disable()


def _run() -> NoReturn:
    command, environment = _told()
    os.environ.clear()
    os.environ.update(environment)
    with suppress(OSError):
        shown.show(command, [f"{name}={value}" for name, value in environment.items()])
    sys.argv, sys.orig_argv = ["shipper", *command[len(PROGRAM) :]], command
    sys.modules.pop("shipper.__main__", None)  # it is run anew, as `-m` would
    runpy.run_module("shipper", run_name="__main__", alter_sys=True)
    os._exit(1)  # never reached: the program exits


def _told() -> tuple[list[str], dict[str, str]]:
    """Reads no byte more than the other side of `Spare.become` writes."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        length = int.from_bytes(_exactly(stdin, _LENGTH_BYTES), "big")
        command, environment = json.loads(_exactly(stdin, length))
    return command, environment


def _exactly(stdin: FileIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stdin.read(size - len(data))
        if not more:
            os._exit(0)  # its supervisor needs it no more, or is gone
        data += more
    return data
