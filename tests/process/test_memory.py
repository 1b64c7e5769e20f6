"""The allocator: one arena, and what is free goes back when it is told to."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, threading
from pathlib import Path
from shipper.process import memory

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10

def use():
    blocks = [bytes(100_000) for _ in range(500)]
    last.append(bytes(1000))  # stands above them, so that nothing is at the top of the heap

last = []
memory.tune()
before = resident()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
kept = resident()
memory.give_back()
print(before, kept, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_was_freed_goes_back_to_the_kernel_when_it_is_told_to() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, kept, after = map(int, ended.stdout.split())

    assert after - before < 8
    assert kept >= after
