"""The `file` output: events as NDJSON in a file of this host; or keyed state, as one file for each key of a directory.

    outputs: {archive: {type: file, path: /var/log/archive/events.ndjson, rotate_bytes: 100MiB, keep: 7}}
    outputs: {inventory: {type: file, directory: /var/lib/inventory}}

`documents` describes a directory, and why a crash does not damage it. For a file:

- A batch is answered when its lines are written and synced. So it is written at least once, and twice if a crash comes
between the sync and the note of it. With `id_field` each line has the id of its event: the same id is the same event.
- A reader finds whole lines: a failed write is cut off again. Part of a line that a crash left is cut off when the file
is next opened; foreign text without a line end gets one.
- Before the file would grow beyond `rotate_bytes`, `path` becomes `path.1`, that `path.2`, and so on. A file that
another program moved away is noticed before each write.
- One batch at a time is written to a path, however many outputs name it. Two processes must not share one.

A write is never abandoned: on cancel it is awaited, since no bytes may be written after the lane has given up; a disk
ends a write soon, or fails it. A thread of the lane's own makes all calls to the file system: one that hangs delays
this output only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar
from weakref import WeakValueDictionary

import msgspec
import orjson
import trio

from shipper.plugin import (
    Answer,
    Answers,
    BadOption,
    Batch,
    Code,
    Feeding,
    Later,
    Output,
    OutputContext,
    Sender,
    Size,
    in_thread,
    join,
)
from shipper.sdk.codes import of_os_error
from shipper.sdk.descriptors import in_words
from shipper_plugins.reading import read_at

if TYPE_CHECKING:
    from shipper_plugins.file.documents import Documents

IN_USE = "directory_in_use"
"""The code for a directory to which another process writes."""
_LOOK_BACK = 1 << 16
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
_locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()


class FileOutput(Output, frozen=True, kw_only=True):
    """Writes events to a file, one JSON object a line; or keyed state to a directory, one file for each key."""

    live: ClassVar[frozenset[str]] = Output.live | {"sync", "rotate_bytes", "keep"}
    paths: ClassVar[frozenset[str]] = frozenset({"path", "directory"})

    path: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The file; its directory must exist. Give either this or `directory`."""
    directory: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """For keyed state instead of log events: each key is a file `owner/collection/key.json` in this directory, which
    has one writer. The other settings are those of a `path`."""
    sync: bool = True
    """Whether a batch counts as delivered only when it is on the disk, not just in the page cache."""
    rotate_bytes: Size = Size(100 << 20)
    """The size beyond which the file does not grow, except for one larger batch."""
    keep: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 7
    """How many rotated files to keep."""
    id_field: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """The key for the id of an event, such as `_id`; no event may have it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.path is None) == (self.directory is None):
            raise ValueError("either path is given, for log events, or directory, for keyed state")
        for name, path in (("path", self.path), ("directory", self.directory)):
            if "\0" in (path or ""):
                raise BadOption("a NUL is in it, which no name of a file can have: remove it", name)
        if self.directory is not None and (self.id_field is not None or not self.sync):
            name = "sync" if self.id_field is None else "id_field"
            raise BadOption("this is of a path; a directory has whole documents, always synced: remove it", name)

    def takes_state(self) -> bool:
        """See `Output.takes_state`."""
        return self.directory is not None

    def takes_events(self) -> bool:
        """See `Output.takes_events`."""
        return self.path is not None

    def feeding(self) -> Feeding:
        """See `Output.feeding`; a directory has one writer."""
        feeding = super().feeding()
        return feeding if self.directory is None else replace(feeding, in_flight=1)

    def load(self) -> None:
        """See `Output.load`."""
        if self.directory is not None:
            import shipper_plugins.file.documents  # noqa: F401

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        """See `Output.open`."""
        sender = _FileSender(self, self.path) if self.path is not None else _DirectorySender(self.directory or "")
        try:
            yield sender
        finally:
            await sender.close()


class _FileSender(Sender):
    def __init__(self, settings: FileOutput, path: str) -> None:
        self._settings = settings
        self._path = path
        self._writer = LineFile(path, settings.sync, settings.rotate_bytes, settings.keep)
        self._thread = trio.CapacityLimiter(1)
        self._lock: trio.Lock | None = None
        """The lock of the path; kept, since those without users are forgotten."""

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; raises Later, with the path and the system's reason, if the file cannot be written."""
        if self._lock is None:
            path = await trio.to_thread.run_sync(os.path.realpath, self._path, limiter=self._thread)
            self._lock = _locks.setdefault(path, trio.Lock())
        async with self._lock:
            try:
                await in_thread(self._write, batch, expected=OSError, limiter=self._thread)
            except OSError as error:
                code = of_os_error(error, Code.UNAVAILABLE)
                is_absent = isinstance(error, FileNotFoundError)
                reason = "its directory does not exist; make it" if is_absent else in_words(error)
                raise Later(f"{self._path}: {reason}", code=code) from error
        return Answers(batch.count)

    async def close(self) -> None:
        """Closes the file, after the writes that are still under way."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._writer.close, limiter=self._thread)

    def _write(self, batch: Batch) -> None:
        if batch.count:
            field = self._settings.id_field
            self._writer.append(batch.json_lines() if field is None else identified(batch, field))


class _DirectorySender(Sender):
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._documents = _documents(directory)
        self._thread = trio.CapacityLimiter(1)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; raises Later, with the system's reason, if the directory cannot be written."""
        try:
            others = await in_thread(self._put, batch, expected=OSError, limiter=self._thread)
        except OSError as error:
            code = IN_USE if isinstance(error, BlockingIOError) else of_os_error(error, Code.UNAVAILABLE)
            raise Later(f"{self._directory}: {in_words(error)}", code=code) from error
        return Answers(batch.count, others)

    async def close(self) -> None:
        """Lets another process write there, after the write that is under way."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._documents.close, limiter=self._thread)

    def _put(self, batch: Batch) -> dict[int, Answer]:
        versions = [version for version in batch.versions or () if version is not None]
        return self._documents.put(versions, batch.json_lines().split(b"\n")[:-1])


def _documents(directory: str) -> Documents:
    from shipper_plugins.file.documents import Documents

    return Documents(directory)


def identified(batch: Batch, field: str) -> bytes:
    """Returns the events as JSON objects, each ended by a line feed, with their ids in this field."""
    before = b"{" + orjson.dumps(field) + b':"'
    rest = [b"," + row[1:] if row != b"{}" else b"}" for row in batch.json_lines().split(b"\n")[:-1]]
    return join(batch.count, before, *batch.id_columns(), b'"', rest, b"\n")


class LineFile:
    """A file of whole lines; without I/O until the first `append`. Its methods raise OSError, and block."""

    def __init__(self, path: str, sync: bool, rotate_bytes: int, keep: int) -> None:
        self._path = path
        self._sync = sync
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._file: int | None = None

    def append(self, lines: bytes) -> None:
        """Writes `lines`, which end with a line feed, and syncs them; if that fails, none of them stays."""
        file = self._current()
        size = os.fstat(file).st_size
        if size and size + len(lines) > self._rotate_bytes:
            self._rotate()
            file, size = self._current(), 0
        try:
            _write_all(file, lines)
            if self._sync:
                os.fsync(file)
        except OSError:
            # Kept open, a file whose sync has failed may report the next sync as good.
            with suppress(OSError):
                os.ftruncate(file, size)
            self.close()
            raise

    def close(self) -> None:
        """Closes the file; the next `append` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _current(self) -> int:
        if self._file is not None and not _is_at(self._file, self._path):
            self.close()
        if self._file is None:
            self._file = self._opened()
        return self._file

    def _opened(self) -> int:
        file = os.open(self._path, _FLAGS, 0o640)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(0, "not a regular file")
            _end_last_line(file)
            self._sync_directory()
        except OSError:
            os.close(file)
            raise
        return file

    def _rotate(self) -> None:
        self.close()
        for n in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{self._path}.{n}", f"{self._path}.{n + 1}")
        os.replace(self._path, f"{self._path}.1")

    def _sync_directory(self) -> None:
        if not self._sync:
            return
        directory = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _write_all(file: int, lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[os.write(file, rest) :]


def _end_last_line(file: int) -> None:
    """Cuts off part of our line that a crash left; ends a line that is not ours."""
    size = os.fstat(file).st_size
    start = _start_of_last_line(file, size)
    if start == size:
        return
    if read_at(file, start, 1) == b"{":
        os.ftruncate(file, start)
    else:
        _write_all(file, b"\n")


def _start_of_last_line(file: int, size: int) -> int:
    """Returns the offset after the last line feed."""
    end = size
    while end > 0:
        start = max(0, end - _LOOK_BACK)
        found = read_at(file, start, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
