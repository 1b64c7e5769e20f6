"""What the process says that it uses: beside what the kernel says elsewhere."""

import os
import time

from shipper.process.usage import usage


def test_the_figures_are_those_of_this_process():
    with open("/dev/null") as _:
        more = usage()["open_fds"]
    seen = usage()

    assert set(seen) == {
        *("cpu_seconds", "virtual_memory_bytes", "resident_memory_bytes"),
        *("start_time_seconds", "open_fds", "max_fds"),
    }
    assert more == seen["open_fds"] + 1
    assert 0 < seen["cpu_seconds"] <= sum(os.times()[:2]) + 0.1
    assert 1 << 20 < seen["resident_memory_bytes"] <= seen["virtual_memory_bytes"]
    assert seen["start_time_seconds"] < time.time() < seen["start_time_seconds"] + 86400
