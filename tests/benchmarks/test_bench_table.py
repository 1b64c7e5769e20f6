"""A reader compares by this table."""

import json

import pytest

from tests.benchmarks.measure import Run
from tests.benchmarks.table import Entry, as_json, table


def run(cpu, seconds=10.0, **more):
    figures = {"items": 1000, "distinct": 1000, "unknown": 0, "status": 0, "peak_mib": 50.0, "wire_bytes": 300_000}
    return Run(lines=1000, seconds=seconds, cpu=cpu, **(figures | more))


@pytest.fixture
def entries():
    ours = Entry("shipper", "shipper 1", "synced", "none", [run(5.0), run(4.0), run(2.0)], [run(0.5)], syncs=85)
    theirs = Entry("rsyslog", "rsyslogd 8", "disk", "none", [run(10.0), run(8.0), run(5.0, distinct=999)], [run(0.01)])
    return [ours, theirs]


def test_a_row_has_medians_their_spread_and_our_figure_as_a_multiple(entries):
    heading, ours, theirs = table(entries).splitlines()

    assert heading.split()[:4] == ["events", "/", "CPU", "second"]
    assert " ".join(ours.split()) == "shipper, synced queue 250 (200–500) 100 (100–100) 50 0.50 300 85"
    assert "125 (100–200)  2.00 ×" in theirs
    assert "100 (100–100)  1.00 ×" in theirs


def test_a_row_says_which_run_went_wrong_and_how(entries):
    assert table(entries).splitlines()[2].endswith("run 3: lost 1, 1 twice")


def test_without_the_shipper_there_is_nothing_to_compare_with(entries):
    assert "×" not in table(entries[1:])


def test_columns_stand_below_each_other(entries):
    heading, ours, theirs = table(entries).splitlines()

    assert heading.index("peak MiB") + len("peak MiB") == ours.index(" 50 ") + 3 == theirs.index(" 50 ") + 3


def test_the_json_has_every_run(entries):
    ours, theirs = json.loads(json.dumps(as_json(entries)))

    assert [each["per_cpu_second"] for each in ours["runs"]] == [200.0, 250.0, 500.0]
    assert theirs["runs"][2]["faults"] == ["lost 1", "1 twice"]
    assert (ours["peer"], ours["queue"], ours["compression"], ours["syncs"]) == ("shipper", "synced", "none", 85)
