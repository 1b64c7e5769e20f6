"""A short run of the real driver, so that it cannot rot: the shipper, and rsyslog where it is installed."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.benchmarks import throughput
from tests.benchmarks.job import CACHE

pytestmark = pytest.mark.needs("cc", "libc6-dev", "zlib1g-dev")  # tests/benchmarks/sink.c
LINES = 20_000


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    path = tmp_path_factory.mktemp("throughput") / "figures.json"
    arguments = [f"--lines={LINES}", "--runs=1", "--only=shipper,rsyslog", "--no-syncs", f"--json={path}"]
    status = throughput.main(arguments)
    return status, json.loads(path.read_text())["entries"]


def test_nothing_is_lost_and_nothing_comes_twice(outcome):
    status, entries = outcome

    assert status == 0
    assert [entry["runs"][0]["faults"] for entry in entries] == [[]] * len(entries)
    assert {entry["runs"][0]["distinct"] for entry in entries} == {LINES}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_driver_and_leaves_nothing_behind(number):
    command = [sys.executable, "-m", "tests.benchmarks.throughput", "--only=shipper", "--no-syncs", "--lines=20000"]
    with subprocess.Popen([*command, "--runs=50"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stderr
        assert driver.stderr.readline().startswith("1 of 50: shipper")
        os.kill(driver.pid, number)
        rest = driver.communicate(timeout=60)[1]

    assert driver.returncode == 130
    assert rest.endswith("interrupted; nothing is left behind\n")
    assert not list(CACHE.glob(f"state-{driver.pid}-*"))
