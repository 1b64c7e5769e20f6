"""What the parts of a process get from the machine."""

from __future__ import annotations

import threading
import time

import trio

from shipper.process.environment import REAL, boottime, to_loop
from tests.fakes import PATIENCE


def test_the_clock_of_the_boot_is_that_of_the_kernel() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert before <= boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_what_a_thread_hands_over_is_called_in_the_loop() -> None:
    called, threads = trio.Event(), list[threading.Thread]()

    def call(text: str) -> None:
        assert text == "from a thread"
        threads.append(threading.current_thread())
        called.set()

    soon = to_loop()
    REAL.start_thread(lambda: soon(call, "from a thread"), "another")
    with trio.fail_after(PATIENCE):
        await called.wait()

    assert threads == [threading.current_thread()]


def test_what_is_handed_over_after_the_end_of_the_loop_has_no_effect() -> None:
    async def way() -> object:
        return to_loop()

    soon = trio.run(way)
    soon(lambda: 1 / 0)


def test_a_thread_has_its_name_and_keeps_no_process_from_ending() -> None:
    seen: list[threading.Thread] = []
    done = threading.Event()

    def note() -> None:
        seen.append(threading.current_thread())
        done.set()

    REAL.start_thread(note, "a thread of its own")

    assert done.wait(PATIENCE)
    assert [(thread.name, thread.daemon) for thread in seen] == [("a thread of its own", True)]
