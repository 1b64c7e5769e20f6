"""What a process did to the files of one directory, call by call, with its bytes.

    steps = list(read(trace, directory))      # of a process that was started with `[*tracer(trace), program, …]`

strace writes down every call, those on sockets and pipes too: so one list says, in one order, what was written, what
was synced, and what others were told. A write stands where it was called, since its bytes may be there from then on; a
sync where it returned.

The `-shm` of SQLite is mapped memory, which it makes anew: left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests import needs


class Create(NamedTuple):
    name: str
    file: int


class Rename(NamedTuple):
    name: str
    to: str
    file: int


class Unlink(NamedTuple):
    name: str


class Write(NamedTuple):
    """The file reaches to its end then, at least; `content` may be empty."""

    file: int
    at: int
    content: bytes


class Resize(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    """Of a file; of the directory if it is None."""

    file: int | None


class Sent(NamedTuple):
    """To a socket or a pipe, from this moment on."""

    fd: int
    content: bytes


class Received(NamedTuple):
    fd: int
    content: bytes


Change = Create | Rename | Unlink | Write | Resize
Step = Change | Sync | Sent | Received

_ON_CALL = ("write", "pwrite64", "sendto", "sendmsg")
_ON_RETURN = ("openat", "close", "recvfrom", "ftruncate", "fallocate", "fsync", "fdatasync", "rename", "unlink")
_UNFINISHED = "<unfinished ...>"
_LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>|(\w+)\()(.*)\n")
_NUMBER = re.compile(r"(?:^|, )(\d+)(?=,|$)")


class _Call(NamedTuple):
    name: str
    arguments: str
    result: int = 0

    @property
    def numbers(self) -> list[int]:
        return [int(number) for part in self.arguments.split('"')[::2] for number in _NUMBER.findall(part)]

    @property
    def texts(self) -> list[bytes]:
        return [bytes.fromhex(text.replace(r"\x", "")) for text in self.arguments.split('"')[1::2]]

    @property
    def content(self) -> bytes:
        return b"".join(self.texts)


def tracer(trace: Path) -> list[str]:
    """What stands before a command, so that `read` understands its trace; skips the test without strace."""
    needs.require("strace")
    options = ["-f", "-qq", "-xx", "-s", str(1 << 24), "--seccomp-bpf", "-e", "signal=none"]
    return ["strace", *options, "-e", f"trace={','.join(_ON_CALL + _ON_RETURN)}", "-o", str(trace)]


def read(trace: Path, directory: Path, files: Iterable[str] = ()) -> Iterator[Step]:
    """The steps of one process on the files of a directory, which held `files`, numbered in their order, from 0."""
    table = _Descriptors(directory, files)
    with trace.open() as lines:
        for call in _calls(lines):
            yield from table.steps(call)


def _calls(lines: Iterable[str]) -> Iterator[_Call]:
    """Each call once: what writes when it begins, since its bytes may be there from then on, all else when it is over.

    What failed is left out.
    """
    begun: dict[str, _Call] = {}
    for line in lines:
        thread, name, rest = _LINE.fullmatch(line).groups()
        if rest.endswith(_UNFINISHED):
            begun[thread] = _Call(name, rest.removesuffix(_UNFINISHED).rstrip())
            if name in _ON_CALL:
                yield begun[thread]
        else:
            name, first = (name, "") if name else begun[thread][:2]
            arguments, _, result = (first + rest).rpartition("= ")
            if not result.startswith(("-1", "?")) and not (first and name in _ON_CALL):
                yield _Call(name, arguments.rstrip().removesuffix(")"), int(result.split()[0]))


class _Descriptors:
    """What the descriptors of a process stand for."""

    def __init__(self, directory: Path, files: Iterable[str]) -> None:
        self._directory = directory
        self._names = {name: number for number, name in enumerate(files)}
        self._made = len(self._names)
        self._open: dict[int, int | None] = {}
        self._written: dict[int, int] = {}

    def steps(self, call: _Call) -> Iterator[Step]:
        match call.name:
            case "openat":
                yield from self._opened(call.result, Path(call.content.decode()), "O_TRUNC" in call.arguments)
            case "rename" | "unlink":
                yield from self._named(*(Path(text.decode()) for text in call.texts))
            case "recvfrom":
                yield Received(call.numbers[0], call.content)
            case _ if call.numbers[0] in self._open:
                yield from self._changed(call, call.numbers[0])
            case "sendto" | "sendmsg" | "write":
                yield Sent(call.numbers[0], call.content)

    def _opened(self, fd: int, path: Path, empties: bool) -> Iterator[Step]:
        self._open.pop(fd, None)
        if path == self._directory:
            self._open[fd] = None
        elif path.parent == self._directory and not path.name.endswith("-shm"):
            if path.name not in self._names:
                self._names[path.name] = self._made
                self._made += 1
                yield Create(path.name, self._names[path.name])
            elif empties:
                yield Resize(self._names[path.name], 0)
            self._open[fd], self._written[fd] = self._names[path.name], 0

    def _named(self, path: Path, to: Path | None = None) -> Iterator[Step]:
        if path.name in self._names and path.parent == self._directory:
            file = self._names.pop(path.name)
            if to is None:
                yield Unlink(path.name)
            else:
                self._names[to.name] = file
                yield Rename(path.name, to.name, file)

    def _changed(self, call: _Call, fd: int) -> Iterator[Step]:
        file = self._open[fd]
        match call.name, file:
            case "close", _:
                del self._open[fd]
            case "fsync" | "fdatasync", _:
                yield Sync(file)
            case "write", int():
                yield Write(file, self._written[fd], call.content)
                self._written[fd] += len(call.content)
            case "pwrite64", int():
                yield Write(file, call.numbers[-1], call.content)
            case "ftruncate", int():
                yield Resize(file, call.numbers[-1])
            case "fallocate", int():
                yield Write(file, call.numbers[-2] + call.numbers[-1], b"")
