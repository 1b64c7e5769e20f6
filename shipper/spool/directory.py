"""The state directory: one owner, names that say what is complete, and room kept back for a full disk.

    lock                        locked (flock) while a process owns the directory; holds its pid until it ends in order
    state.key                   the state key, if the supervisor gives none
    keyring, keyring.copy       the data keys, wrapped
    spool-<generation>.db       the database (with -wal and -shm); the highest generation is the one
    ballast                     bytes to give up when the disk is full
    quarantine-<name>           what a repair could not move, sealed as it was
    NAME.tmp                    one of these being written when a process died; removed at start

A file is made durable in one way: written under a name that ends in `.tmp`, fsynced, renamed, its directory fsynced.
So whatever has its own name is complete. A database is never renamed over another one, whose hot WAL would be replayed
into it; it gets the name of a new generation, and the older ones go once the new one was opened.

Every file is made with mode 0600 (SQLite gives that of the database to its companions). The umask belongs to the whole
process, with its `file` outputs, and is left alone. A directory that exists keeps its mode: it may be a mounted volume.

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
"""What a person must mend."""
_DATABASE = re.compile(r"spool-([0-9]{1,15})\.db")
_TRACE = re.compile(r"(?:spool|quarantine)-([0-9]{1,15})\.db.*")
_OWN = re.compile(r"lock|ballast|state\.key|keyring(\.copy)?|room|(spool|quarantine)-.*", re.DOTALL)
_BEING_WRITTEN = re.compile(rf"({_OWN.pattern})\.tmp(-(wal|shm|journal))?", re.DOTALL)
_COMPANIONS = ("-wal", "-shm", "-journal")
_MIB = 2**20


class Ballast:
    """A file of real blocks, given up in steps when the disk is full, so that what must be written still can be."""

    SIZE = 8 * _MIB
    STEP = _MIB

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Whether there is one, be it empty."""
        return self._path.exists()

    def missing(self) -> int:
        """Bytes that were given up and not restored yet."""
        return max(0, self.SIZE - _size(self._path))

    def give(self) -> bool:
        """Give one step back to the disk; False if nothing is left."""
        size = _size(self._path)
        if size == 0:
            return False
        os.truncate(self._path, max(0, size - self.STEP))
        return True

    def restore(self) -> bool:
        """Take back what was given up, if there is room for that and a margin of one more step; True if it is whole."""
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
        """Whether the last owner did not end in order."""
        self.ballast = Ballast(path / "ballast")
        self._disk_bytes = 0

    def is_own(self, path: Path) -> bool:
        """Whether a path is for the spool alone, be there a file or not."""
        patterns = (_OWN, _BEING_WRITTEN)
        return path.parent == self.path and any(pattern.fullmatch(path.name) for pattern in patterns)

    # -- files ---------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None if there is none. Raises StartFailed if it is not a plain file of our own."""
        path = self.path / name
        try:
            with _descriptor(path, os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as file:
                _check(path, os.fstat(fd), stat.S_ISREG, "a regular file")
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file; durable when this returns. A full disk is relieved by the ballast."""
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
        """Remove a file, durably; nothing happens if there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / name)
            self.sync()

    def sync(self) -> None:
        """Make names durable."""
        with _descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)

    def clear_leftovers(self) -> None:
        """Remove what a process that died was still writing; another name, or no plain file, is somebody else's."""
        for entry in self.path.glob("*.tmp*"):
            if _BEING_WRITTEN.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink():
                entry.unlink(missing_ok=True)

    def disk_bytes(self) -> int:
        """Bytes of all files in the directory, the ballast included; as they were last seen while it cannot be read.

        It is a figure for people: that no descriptor is free to list a directory must not end the process.
        """
        with contextlib.suppress(OSError):
            self._disk_bytes = _bytes_in(self.path)
        return self._disk_bytes

    def has_room(self, size: int = 256 * 1024) -> bool:
        """Whether the disk, with its quotas, takes `size` more bytes; found out by trying."""
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
        """The complete generations, rising; the last one counts. Raises StartFailed if one is no plain file of ours."""
        names = (_DATABASE.fullmatch(name) for name in os.listdir(self.path))
        numbers = sorted(int(found[1]) for found in names if found)
        for path in map(self.database, numbers):
            _check(path, path.lstat(), stat.S_ISREG, "a regular file")
        return numbers

    def database(self, generation: int) -> Path:
        """Where the database of a generation is."""
        return self.path / f"spool-{generation}.db"

    def begin_generation(self) -> tuple[int, Path]:
        """A generation above all of which there is any trace, and an empty file to fill; see `complete_generation`."""
        self.clear_leftovers()
        traces = (_TRACE.fullmatch(name) for name in os.listdir(self.path))
        generation = 1 + max((int(found[1]) for found in traces if found), default=0)
        path = self.path / f"spool-{generation}.db.tmp"
        with _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL):
            pass
        return generation, path

    def complete_generation(self, generation: int) -> Path:
        """Make a filled and closed database the newest generation, durably."""
        path = self.database(generation)
        part = path.with_name(f"{path.name}.tmp")
        with _descriptor(part, os.O_RDONLY) as fd:
            os.fsync(fd)
        os.rename(part, path)
        self.sync()
        return path

    def remove_generation(self, generation: int) -> None:
        """Remove a generation."""
        for path in _with_companions(self.database(generation)):
            path.unlink(missing_ok=True)

    def aside(self, generation: int) -> Path:
        """Where `set_aside` puts a generation."""
        return self.path / f"quarantine-{generation}.db"

    def set_aside(self, generation: int) -> None:
        """Move a generation, as it is, out of the way and keep it for whoever wants to look into it."""
        old, new = _with_companions(self.database(generation)), _with_companions(self.aside(generation))
        for source, target in zip(old, new, strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.rename(source, target)

    def new_quarantine(self, kind: str) -> Path:
        """A name for something else that is set aside."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return self.path / f"quarantine-{moment}-{secrets.token_hex(4)}.{kind}"


@contextmanager
def own(path: Path) -> Iterator[StateDirectory]:
    """Own a state directory, made with mode 0700 if absent, for as long as the block runs.

    Raises StateBusy if another process owns it (which then notices nothing), and StartFailed if it cannot be used.
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
        except ShipperError:  # it ends by itself, and says why; what it has not begun is as it was
            _write(fd, last)
            raise
        _write(fd, b"")
    finally:
        os.close(fd)


@contextmanager
def starting(path: Path) -> Iterator[None]:
    """The border for errors of the file system while a process starts."""
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
    if not is_kind(found.st_mode):
        raise StartFailed(f"{path} is not {kind}", code=Code.STATE_UNUSABLE)
    if found.st_uid not in (os.geteuid(), 0):
        raise StartFailed(f"{path} belongs to another user (uid {found.st_uid})", code=Code.STATE_UNUSABLE)


def _lock(fd: int, path: Path) -> bytes:
    """Returns the line of the last owner, if it did not end in order."""
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
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # a pipe in a file's place would be waited for
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
