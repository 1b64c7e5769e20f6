"""The program ends at once, after all that was to be done at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, sys, threading, time
from shipper.process import ending

class Freed:
    def __del__(self):
        os.write(1, b"freed ")

class Late(threading.Thread):
    def run(self):
        threading.main_thread().join()
        os.write(1, b"awaited ")

freed = Freed()
end = ending.prepare()
atexit.register(os.write, 1, b"called ")
Late().start()
sys.stdout.write("flushed ")
"""


def ended(statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM + statement], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("status", [0, 3])
def test_the_process_ends_after_its_threads_and_its_last_functions_and_frees_nothing(status: int) -> None:
    process = ended(f"end({status})")

    assert (sorted(process.stdout.split()), process.returncode) == (["awaited", "called", "flushed"], status)


def test_an_error_ends_it_as_any_other_process() -> None:
    process = ended("raise LookupError")

    assert process.returncode == 1
    assert process.stderr.endswith("LookupError\n")
    assert "called" in process.stdout
    assert "freed" in process.stdout


def test_a_full_disk_does_not_keep_it_from_ending() -> None:
    process = ended("sys.stdout = open('/dev/full', 'w'); sys.stdout.write('lost'); end(3)")

    assert (process.returncode, process.stderr) == (3, "")


def test_the_command_line_ends_so() -> None:
    program = "import sys; sys.argv = ['shipper', '--version']\nfrom shipper.__main__ import main\n"
    program += "class Freed:\n    def __del__(self): print('freed')\nfreed = Freed()\nmain()"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert process.stdout.startswith("shipper, version")
    assert "freed" not in process.stdout
