"""The measuring drivers, a few seconds of each: all events arrive, and every figure is there. Never how fast."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.backends import etcd as backend
from tests.benchmarks import (
    barrier,
    classes,
    far_barrier,
    fleet,
    latency,
    measure,
    posts,
    quiet,
    quiet_loads,
    relay,
)
from tests.benchmarks.chains import LOADS
from tests.benchmarks.job import access_log
from tests.benchmarks.peers.peer import Unavailable
from tests.benchmarks.peers.shipper import Supervised
from tests.benchmarks.producer import Schedule
from tests.benchmarks.sink import sink

pytestmark = pytest.mark.needs("cc", "libc6-dev", "zlib1g-dev")  # tests/benchmarks/sink.c
TINY = classes.Sizes(lines=2_000, files=20, large=10, sources=20, seconds=0.5)


@pytest.fixture(scope="module")
def target():
    with sink() as running:
        yield running


NAMES = ["http", "gzip", "tls", "receiver", "otlp", "otlp-json", "otlp-to-bulk", "otlp-to-otlp", "nginx", "json"]


@pytest.mark.parametrize("name", [*NAMES, "files", "large", *LOADS])
def test_every_event_of_a_class_arrives(target, name, tmp_path):
    job = classes.jobs(TINY, tmp_path)[name]()
    run = classes.measure(job, target)

    assert job.events == target.counts()["items"] > 0
    assert min(run.seconds, run.cpu, run.peak_mib) > 0


def test_slow_files_have_a_cost_and_delays(target):
    name, *figures = classes.slow(target, TINY.sources, TINY.seconds)

    assert name == "20 slow files"
    assert all(_numbers(figures))


def test_ten_data_sets_take_about_as_many_requests_as_one(target):
    """Not ten times as many: what comes in half a second varies with the machine."""
    one, ten = ([float(row[1]) for row in classes.sets(target, count, seconds=0.5)] for count in (1, 10))

    assert ten[1] <= 5 * one[1]


def test_every_probe_of_a_load_has_a_delay(target):
    load = latency.measure(target, 0.5, rate=4_000, seconds=0.5)

    assert load.schedule.lines == target.counts()["items"] == 1_000
    assert len(load.delays) == 100
    assert min(load.delays) > 0
    assert all(_numbers(load.cells()[:-1]))


def test_a_delay_counts_from_the_instant_at_which_a_line_was_due():
    schedule = Schedule(lines=2, due={0: 10.0, 1: 10.5})

    assert schedule.delays({0: 10.25, 1: 12.5}) == [0.25, 2.0]
    with pytest.raises(KeyError):
        schedule.delays({0: 10.25})


OURS = quiet_loads.Product(Supervised(Path(sys.executable)), "synced")
QUIET = quiet_loads.loads(quiet_files=20)


@pytest.mark.parametrize("name", QUIET)
def test_every_line_of_a_quiet_load_arrives_once(target, name):
    try:
        run = QUIET[name].measure(OURS, target, seconds=1.0)
    except Unavailable as why:
        pytest.skip(str(why))

    assert run.faults == []
    assert {quiet_loads.COST, quiet_loads.MEMORY} <= run.figures.keys()
    assert min(min(figure) for figure in run.figures.values()) > 0


def test_a_line_that_does_not_arrive_is_a_fault(target, monkeypatch):
    def claim(host, seconds):
        monkeypatch.setattr(measure, "STALLED", 0.5)
        return Schedule(lines=1, due={7: 0.0})

    load = replace(QUIET["file-10"], feed=claim)

    assert load.measure(OURS, target, seconds=0.1).faults[:-1] == ["lost 1"]


def test_a_refused_request_is_a_fault(capsys, monkeypatch):
    """And no end of the measurement."""
    request = posts.Request.of("/elsewhere", "application/json", posts.one_event().body[0])
    monkeypatch.setattr(quiet_loads, "one_event", lambda: request)

    assert quiet.main(["--only", "http", "--seconds", "0.1"]) == 1
    assert "a request was answered 404" in capsys.readouterr().err


def test_quiet_loads_are_shown_as_tables_a_product_a_column(capsys):
    assert quiet.main(["--only", "file-100", "--seconds", "0.5", "--runs", "2", "--peer", "rsyslog"]) == 0

    head, _, row = capsys.readouterr().out.splitlines()[:3]
    assert head.startswith("| processor time | shipper, synced |")
    assert re.match(r"\| one file, 100 a second, ‰ of a core \| [\d,.]+ \([\d,.]+ to [\d,.]+\) \|", row)


def test_the_costs_of_a_revision_are_all_there(target):
    text = barrier.measure(target, rotations=2, backlog=500, seconds=0.1)
    names = [re.split(r"  +", line)[0] for line in text.splitlines()]

    assert {"drained after last answer", "gap of intake", "active, queue full", "8 lanes draining, MiB"} <= set(names)
    assert all(_numbers(re.split(r"  +", line)[1] for line in text.splitlines()[1:9]))


def _numbers(cells):
    return [re.fullmatch(r"-?[\d,]+(\.\d+)?%?", cell) for cell in cells]


def test_a_hop_has_a_cost_on_each_side(target):
    costs = relay.measure(access_log(2_000), 2_000, target)

    assert list(costs) == ["direct", "edge", "principal"]
    assert min(min(cost.cpu, cost.seconds, cost.peak_mib) for cost in costs.values()) > 0
    assert str(relay.hops([costs], 2_000)).splitlines()[1].endswith("1.00")


def test_idle_edges_stay_connected_over_their_heartbeats():
    found = relay.idle(5, 0.5)

    assert found.edges == 5
    assert found.share > 0


def test_each_small_part_of_many_edges_is_answered_and_arrives(target):
    found = relay.parts(target, 5, 2, 0.8)

    assert found.parts == len(found.delays) >= 1
    assert min(found.cpu, found.pss_mib, *found.delays) > 0
    assert all(_numbers(found.row(5, 2)[1:]))


def test_an_edge_says_drained_after_the_last_answer_of_the_backend(target):
    taken = far_barrier.drains(target, 3)

    assert len(taken) == 3
    assert min(taken) > 0
    assert _numbers(str(far_barrier.table(taken)).splitlines()[1].split()[-6:-3]) != [None] * 3


@pytest.fixture
def etcd():
    try:
        backend.program("etcd")
    except backend.Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.backend
def test_a_fleet_has_all_its_figures_and_is_offered_nothing_twice_over_an_outage(etcd):
    tables = _of_fleet("rest,memory,version,wait,outage")
    rows = {table.head[0]: table.rows for table in tables}

    assert [len(of) for of in rows.values()] == [1, 1, 2, 2, 1, 1]
    assert all(_numbers([cell for table in tables for row in table.rows for cell in row[1:]]))
    assert all(float(row[1]) >= 1 for row in rows["a version"])
    assert rows["without a store"][0][4] == "0"
    assert rows["lines over an outage"][0][3:] == ["0", "0", "0"]


def _of_fleet(parts):
    small = "--members 6 --nodes 1 --lease 3 --runs 1 --seconds 0.5 --apart 0.05 --outage 0.5 --busy 1 --only"
    return fleet.measure(fleet.parser().parse_args([*small.split(), parts]))
