"""The state directory: one owner, complete files under final names, and room reserved for a full disk.

    lock                        locked (flock) while a process owns the directory; holds its pid until it ends in order
    state.key                   the state key, if the supervisor gives none
    keyring, keyring.copy       the data keys, wrapped
    spool-<generation>.db       the database (with -wal and -shm); the highest generation counts
    ballast                     bytes to give up when the disk is full
    quarantine-<name>           what a repair could not move, still sealed
    NAME.tmp                    a file that a killed process was writing; removed at start

A file is made durable in one way: written under a name that ends in `.tmp`, fsynced, renamed, its directory fsynced. So
a file with its final name is complete. A database is never renamed over another one, whose hot WAL would be replayed
into it; it gets the name of a new generation, and older ones are removed once the new one was opened.

Every file is made with mode 0600 (SQLite gives the mode of the database to its companions). The umask belongs to the
whole process, with its `file` outputs, and is not changed. An existing directory keeps its mode: it may be a mounted
volume.

Never open a database or its companions here by `open` while SQLite has them open: closing such a descriptor would
drop all POSIX locks that this process holds on the file. `stat`, `rename` and `unlink` are harmless.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.errors import ShipperError, StartFailed, StateBusy

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LASTING = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""Errors of the file system that a person must repair."""
_DATABASE = re.compile(r"spool-([0-9]{1,15})\.db")
_TRACE = re.compile(r"(?:spool|quarantine)-([0-9]{1,15})\.db.*")
_OWN = re.compile(r"lock|ballast|state\.key|keyring(\.copy)?|room|shipper\.sock|(spool|quarantine)-.*", re.DOTALL)
_BEING_WRITTEN = re.compile(rf"({_OWN.pattern})\.tmp(-(wal|shm|journal))?", re.DOTALL)
_COMPANIONS = ("-wal", "-shm", "-journal")
_MIB = 2**20


class Ballast:
    """A file of allocated blocks, given up in steps when the disk is full, so that necessary writes succeed."""

    SIZE = 8 * _MIB
    STEP = _MIB

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Whether the file exists; it may be empty."""
        return self._path.exists()

    def missing(self) -> int:
        """Bytes that were given up and not restored yet."""
        return max(0, self.SIZE - _size(self._path))

    def give(self) -> bool:
        """Frees one step; returns False if nothing is left."""
        size = _size(self._path)
        if size == 0:
            return False
        os.truncate(self._path, max(0, size - self.STEP))
        return True

    def restore(self) -> bool:
        """Allocates the freed bytes again, if there is room for them and one more step; returns True if it is whole."""
        if not self.missing():
            return True
        try:
            with _descriptor(self._path, os.O_RDWR | os.O_CREAT) as fd:
                self._fill(fd)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        return not self.missing()

    def _fill(self, fd: int) -> None:
        had = os.fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, self.SIZE + self.STEP)
        except OSError:
            os.ftruncate(fd, had)
            raise
        os.ftruncate(fd, self.SIZE)


class StateDirectory:
    """A state directory that this process owns; made by `own`."""

    def __init__(self, path: Path, *, was_killed: bool = False) -> None:
        self.path = path
        self.was_killed = was_killed
        """Whether the last owner ended without closing the directory."""
        self.ballast = Ballast(path / "ballast")
        self._disk_bytes = 0

    def is_own(self, path: Path) -> bool:
        """Whether a path is reserved for the spool, whether or not a file exists there."""
        patterns = (_OWN, _BEING_WRITTEN)
        return path.parent == self.path and any(pattern.fullmatch(path.name) for pattern in patterns)

    # -- files ---------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Returns the bytes of a file, or None if there is none. Raises StartFailed if it is not a plain file of our
        own."""
        path = self.path / name
        try:
            with _descriptor(path, os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as file:
                _check(path, os.fstat(fd), stat.S_ISREG, "a regular file")
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file, durably. On a full disk the ballast gives room."""
        part = self.path / f"{name}.tmp"
        while True:
            try:
                with _descriptor(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                    _write_all(fd, content)
                    os.fsync(fd)
                break
            except OSError as error:
                if not (is_no_room(error) and self.ballast.give()):
                    raise
        os.rename(part, self.path / name)
        self.sync()

    def remove(self, name: str) -> None:
        """Removes a file, durably, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / name)
            self.sync()

    def sync(self) -> None:
        """Makes names durable."""
        with _descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)

    def clear_leftovers(self) -> None:
        """Removes plain files that a killed process was writing; leaves all others."""
        for entry in self.path.glob("*.tmp*"):
            if _BEING_WRITTEN.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink():
                entry.unlink(missing_ok=True)

    def disk_bytes(self) -> int:
        """Returns the bytes of all files, the ballast included; the last known figure while the directory cannot be
        read.

        It is a figure for people: a lack of descriptors must not end the process.
        """
        with contextlib.suppress(OSError):
            self._disk_bytes = _bytes_in(self.path)
        return self._disk_bytes

    def has_room(self, size: int = 256 * 1024) -> bool:
        """Whether the disk, with its quotas, takes `size` more bytes; tries it."""
        probe = self.path / "room.tmp"
        try:
            with _descriptor(probe, os.O_WRONLY | os.O_CREAT) as fd:
                os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if not is_no_room(error):
                raise
            return False
        finally:
            probe.unlink(missing_ok=True)
        return True

    # -- generations ---------------------------------------------------------------------------------------------------

    def generations(self) -> list[int]:
        """Returns the complete generations, ascending; the last one counts. Raises StartFailed if one is no plain file
        of ours."""
        numbers = self.any_generations()
        for path in map(self.database, numbers):
            _check_owner(path, path.lstat())
        return numbers

    def any_generations(self) -> list[int]:
        """The same whoever they belong to: for one that only reads. Raises StartFailed if one is no plain file."""
        names = (_DATABASE.fullmatch(name) for name in os.listdir(self.path))
        numbers = sorted(int(found[1]) for found in names if found)
        for path in map(self.database, numbers):
            _check_kind(path, path.lstat(), stat.S_ISREG, "a regular file")
        return numbers

    def database(self, generation: int) -> Path:
        """Returns the path of the database of a generation."""
        return self.path / f"spool-{generation}.db"

    def begin_generation(self) -> tuple[int, Path]:
        """Returns a number above every generation with any file, and an empty file to fill; see
        `complete_generation`."""
        self.clear_leftovers()
        traces = (_TRACE.fullmatch(name) for name in os.listdir(self.path))
        generation = 1 + max((int(found[1]) for found in traces if found), default=0)
        path = self.path / f"spool-{generation}.db.tmp"
        with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
            pass
        return generation, path

    def complete_generation(self, generation: int) -> Path:
        """Makes a filled and closed database the newest generation, durably."""
        path = self.database(generation)
        part = path.with_name(f"{path.name}.tmp")
        with _descriptor(part, os.O_RDONLY) as fd:
            os.fsync(fd)
        os.rename(part, path)
        self.sync()
        return path

    def remove_generation(self, generation: int) -> None:
        """Removes a generation."""
        for path in _with_companions(self.database(generation)):
            path.unlink(missing_ok=True)

    def aside(self, generation: int) -> Path:
        """Returns the path to which `set_aside` moves a generation."""
        return self.path / f"quarantine-{generation}.db"

    def set_aside(self, generation: int) -> None:
        """Moves a generation to quarantine, unchanged."""
        old, new = _with_companions(self.database(generation)), _with_companions(self.aside(generation))
        for source, target in zip(old, new, strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.rename(source, target)

    def new_quarantine(self, kind: str) -> Path:
        """Returns a new path for something else in quarantine."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return self.path / f"quarantine-{moment}-{secrets.token_hex(4)}.{kind}"


@contextmanager
def own(path: Path) -> Iterator[StateDirectory]:
    """Owns a state directory while the block runs; makes it with mode 0700 if absent.

    Raises StateBusy if another process owns it (which is not disturbed), and StartFailed if it cannot be used.
    """
    with starting(path):
        path = path.resolve()
        _make(path)
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        with starting(path):
            last = _lock(fd, path)
        try:
            yield StateDirectory(path, was_killed=last != b"")
        except ShipperError:  # a refused start: the mark of the last owner stays
            _write(fd, last)
            raise
        _write(fd, b"")
    finally:
        os.close(fd)


@contextmanager
def starting(path: Path) -> Iterator[None]:
    """Turns errors of the file system during a start into StartFailed."""
    try:
        yield
    except OSError as error:
        what = "has no room left for what a start needs" if is_no_room(error) else "cannot be used"
        code = Code.STATE_UNUSABLE if error.errno in _LASTING else of_os_error(error, Code.DISK_FAILED)
        raise StartFailed(f"the state directory {path} {what}: {error.strerror}", code=code) from error


def is_no_room(error: Exception) -> bool:
    """Whether the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        with _descriptor(path.parent, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)
    _check(path, path.stat(), stat.S_ISDIR, "a directory")


def _check(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    _check_kind(path, found, is_kind, kind)
    _check_owner(path, found)


def _check_kind(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(found.st_mode):
        raise StartFailed(f"{path} is not {kind}", code=Code.STATE_UNUSABLE)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise StartFailed(f"{path} belongs to another user (uid {found.st_uid})", code=Code.STATE_UNUSABLE)


def _lock(fd: int, path: Path) -> bytes:
    """Locks the directory; returns the line of the last owner if it did not close the directory."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise StateBusy(f"the state directory {path} belongs to another process (pid {owner})") from None
    last = os.pread(fd, 20, 0)
    _write(fd, b"%d\n" % os.getpid())
    return last


def _write(fd: int, owner: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk must not stop a start
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner, 0)


@contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # opening a pipe would wait
    try:
        yield fd
    finally:
        os.close(fd)


def _write_all(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _bytes_in(directory: Path) -> int:
    total = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _with_companions(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + suffix) for suffix in _COMPANIONS)]
