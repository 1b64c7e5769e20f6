"""A program beside the shipper that fails ends its test at once, and says why."""

from __future__ import annotations

import signal
import time

import pytest

from tests.programs import LINES, Running


def test_one_that_ends_while_a_test_waits_for_it_is_told_with_its_last_lines() -> None:
    begun = time.monotonic()
    program = Running(["sh", "-c", "seq 1 100000; echo no such module >&2; exit 3"])

    with pytest.raises(AssertionError, match="sh has ended with 3; it said:") as told:
        program.wait(lambda: False, 60)

    assert str(told.value).endswith("no such module\n")
    assert len(program.said.splitlines()) == LINES
    assert time.monotonic() - begun < 30
    program.end()


def test_one_that_is_never_ready_is_told_with_its_last_lines() -> None:
    program = Running(["sh", "-c", "echo waiting for a disk; exec sleep 1000"])
    try:
        with pytest.raises(AssertionError, match=r"sh is not ready in 0.5 s; it said:\nwaiting for a disk"):
            program.wait(lambda: False, 0.5)
    finally:
        program.end()


def test_one_that_does_not_end_is_killed_with_what_it_has_started() -> None:
    program = Running(["sh", "-c", "trap '' TERM; sleep 1000 & echo begun; wait; wait"])
    program.wait(lambda: program.said, 30)

    assert not program.end(seconds=0.1)
    assert program.poll() == -signal.SIGKILL
    program._reader.join(30)
    assert not program._reader.is_alive()  # its child would hold the pipe
