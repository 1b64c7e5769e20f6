"""A trace is read as what a process did to its files, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journal import Create, Sent, Sync, Write, read, tracer
from tests.torn import TornDisk

PROGRAM = """
import os, socket, sys
os.chdir(sys.argv[1])
def path(name): return os.path.abspath(name)
with open(path("a.tmp"), "wb") as file:
    file.write(b"one"); file.flush(); file.write(b"two")
    file.flush(); os.fsync(file.fileno())
os.rename(path("a.tmp"), path("a"))
fd = os.open(path("b"), os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"bytes", 3)
os.ftruncate(fd, 5)
os.posix_fallocate(fd, 0, 9)
os.fdatasync(fd)
os.close(fd)
os.close(os.open(path("c"), os.O_WRONLY | os.O_CREAT))
os.unlink(path("c"))
os.close(os.open(path("old"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
os.pwrite(os.open(path("b-shm"), os.O_WRONLY | os.O_CREAT), b"mapped", 0)
here, there = socket.socketpair()
here.send(b"told")
there.recv(10)
directory = os.open(os.getcwd(), os.O_RDONLY)
os.fsync(directory)
os.write(1, b"said")
"""


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """The trace of `PROGRAM` in tmp_path / "files", which held a file `old`."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "old").write_bytes(b"old")
    command = [*tracer(tmp_path / "trace"), sys.executable, "-c", PROGRAM, str(tmp_path / "files")]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return tmp_path / "trace"


def test_the_disk_of_all_steps_is_that_of_the_process(traced: Path) -> None:
    disk = TornDisk({"old": b"old"})
    for step in read(traced, traced.parent / "files", ["old"]):
        disk.do(step)

    found = {path.name: path.read_bytes() for path in (traced.parent / "files").iterdir() if path.name != "b-shm"}
    assert disk.sync() == found


def test_a_write_counts_from_its_call_and_a_sync_from_its_return(tmp_path: Path) -> None:
    def hex_of(text: str) -> str:
        return '"' + "".join(rf"\x{byte:02x}" for byte in text.encode()) + '"'

    (tmp_path / "trace").write_text(
        f"1 openat(AT_FDCWD, {hex_of(f'{tmp_path}/a')}, O_RDWR|O_CREAT <unfinished ...>\n"
        f"2 sendto(7, {hex_of('1')}, 1, 0, NULL, 0 <unfinished ...>\n"
        "1 <... openat resumed>, 0600)      = 4\n"
        "2 <... sendto resumed>)            = 1\n"
        f"1 pwrite64(4, {hex_of('x')}, 1, 9 <unfinished ...>\n"
        "2 fsync(4 <unfinished ...>\n"
        "1 <... pwrite64 resumed>)          = 1\n"
        f"3 sendto(7, {hex_of('2')}, 1, 0, NULL, 0) = 1\n"
        "2 <... fsync resumed>)             = 0\n"
        "1 fsync(4)                         = -1 EIO (Input/output error)\n"
        "1 recvfrom(7, 0x55fe8e8c0a60, 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n"
        f"3 openat(AT_FDCWD, {hex_of('/elsewhere/a')}, O_RDWR) = 5\n"
    )

    expected = [Sent(7, b"1"), Create("a", 0), Write(0, 9, b"x"), Sent(7, b"2"), Sync(0)]
    assert list(read(tmp_path / "trace", tmp_path)) == expected
