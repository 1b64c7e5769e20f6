"""File systems of their own, to be filled, or to lose their power. Mounting one needs root."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import needs


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path]:
    """A file system of this size (as in `24m`) at a directory that exists."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


# <linux/ext4.h>, as in the shutdown tests of xfstests
_EXT4_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_LOG = 2


class Disk:
    """An ext4 in an image file, mounted at a directory; made by `mortal_disk`."""

    def __init__(self, image: Path, at: Path) -> None:
        self._image, self.at = image, at

    def lose_power(self) -> None:
        """From now on everything fails, and what was not synced is not there after `mount`."""
        directory = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _EXT4_IOC_SHUTDOWN, struct.pack("i", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(directory)

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.at)], check=True)

    def unmount(self) -> None:
        """Nobody may have a file open there."""
        subprocess.run(["umount", str(self.at)], check=True)


@contextmanager
def mortal_disk(image: Path, at: Path, size: int) -> Iterator[Disk]:
    """A new file system of so many bytes at a directory that exists."""
    with image.open("wb") as file:
        file.truncate(size)
    make = [needs.program("mkfs.ext4"), "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)]
    disk = Disk(image, at)
    try:
        subprocess.run(make, check=True)
        disk.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no ext4 can be mounted here: {error}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False)


def fill(filler: Path) -> None:
    """Leave no room on the disk of this file."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
