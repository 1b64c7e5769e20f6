"""Plain files in a state directory that are replaced as a whole, durably."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from shipper.sdk.errors import OptionError

RESERVE_BYTES = 64 << 10
STRICT = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def content(path: Path) -> bytes:
    """Returns the content of a regular file of this user; raises OptionError for any other, a pipe or a link."""
    with open(os.open(path, os.O_RDONLY | STRICT), "rb") as file:
        found = os.fstat(file.fileno())
        refuse_foreign(path, found)
        if not stat.S_ISREG(found.st_mode):
            raise OptionError(f"{path} is not a regular file")
        return file.read()


def refuse_foreign(path: Path, found: os.stat_result) -> None:
    """Raises OptionError for what belongs to another user than this one or root."""
    if found.st_uid not in (os.geteuid(), 0):
        raise OptionError(f"{path} belongs to another user (uid {found.st_uid})")


def replace(path: Path, raw: bytes) -> None:
    """Replaces a file; raises OSError with the file's name, which errors of a write lack."""
    temporary = path.with_suffix(path.suffix + ".new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | STRICT, 0o600)
        with open(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()  # a partial file would take the room of the next save
        raise OSError(error.errno, error.strerror, str(path)) from None


class Reserve:
    """A file that keeps room for one more `replace` on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def replace(self, path: Path, raw: bytes) -> None:
        """As the function `replace`; gives up the reserve if the disk is full."""
        try:
            replace(path, raw)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._path.exists():
                raise
            self._path.unlink()
            replace(path, raw)
        else:
            self.keep()

    def keep(self) -> None:
        """Makes the reserve, if there is none and there is room for it."""
        if not self._path.exists():
            with suppress(OSError):
                replace(self._path, secrets.token_bytes(RESERVE_BYTES))


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
