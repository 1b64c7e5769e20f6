"""A short run of the real driver, so that it cannot rot: the shipper, and rsyslog where it is installed."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count

import pytest

from tests.benchmarks import throughput
from tests.benchmarks.job import CACHE
from tests.benchmarks.measure import Run
from tests.benchmarks.peers import PEERS

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


@pytest.mark.parametrize(("number", "name"), [(1, "start 1"), (2, "run 1"), (3, "syncs")])
def test_a_run_that_loses_a_line_fails(monkeypatch, capsys, number, name):
    """Whichever run of the measurement it is."""
    runs = count(1)

    def ship(peer, log, lines, target, **how):
        whole = Run(lines, lines, lines, 0, 0, 1.0, 1.0, 50.0, 1000)
        return replace(whole, distinct=lines - 1, items=lines - 1) if next(runs) == number else whole

    def count_syncs(peer, target, *, lines, **how):
        return 1, ship(peer, None, lines, target)

    monkeypatch.setattr(throughput, "ship", ship)
    monkeypatch.setattr(throughput, "count_syncs", count_syncs)

    assert throughput.main([f"--lines={LINES}", "--runs=1", "--only=shipper", "--syncs"]) == 1
    assert f"failed: shipper, synced queue: {name}: lost 1\n" in capsys.readouterr().err


def test_an_absent_peer_costs_one_line(monkeypatch):
    monkeypatch.setattr(PEERS["rsyslog"], "find", classmethod(lambda kind: None))
    said = []

    assert throughput.found(throughput.parsed(["--only=rsyslog"]), said.append) == []
    assert said == ["rsyslog is not installed: apt-get install rsyslog rsyslog-elasticsearch, or --fetch"]


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
