"""What `pytest --branches` makes of the numbers of coverage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.prove.branches import fragment
from tests.prove.measured import Measured, is_ordinary, judged
from tests.prove.rooms import counted

MODULE = "shipper/pipeline/lane.py"


def function(executed: list[int], missing: list[int], branches: list[list[int]], taken: int = 0) -> dict[str, Any]:
    sums = {"num_statements": len(executed + missing), "covered_lines": len(executed)}
    sums |= {"num_branches": taken + len(branches), "covered_branches": taken}
    return {
        "executed_lines": executed,
        "missing_lines": missing,
        "missing_branches": branches,
        "start_line": 30,
        "summary": sums,
    }


FILE = {
    "functions": {
        "": function([], [1, 2, 3], []),
        "Lane.run": function([10, 11, 14], [12, 16], [[11, 12], [14, -9]], taken=2),
        "Lane.end": function([], [31, 32], []),
    }
}
"""A module of which nothing ran at its import, some of one function, and nothing of the other."""


def test_each_branch_line_and_function_that_nothing_took_is_named() -> None:
    measured = Measured.of(MODULE, FILE)

    assert measured.missing == ("11 -> 12", "14 -> exit", "16", "30 (Lane.end)")
    assert measured.percent == 45.4, "5 of 11, rounded down"


def test_a_module_fails_below_its_floor_and_not_at_it() -> None:
    measured = [Measured.of(MODULE, FILE)]

    assert list(judged(measured, {MODULE: 45.4})) == []
    assert list(judged(measured, {MODULE: 45.5})) == [
        "shipper/pipeline/lane.py: 45.4 % is taken, and 45.5 % are asked",
        *(f"    shipper/pipeline/lane.py:{place} is not taken" for place in measured[0].missing),
    ]


@pytest.mark.parametrize(
    ("name", "markers", "counts"),
    [
        ("tests/pipeline/test_lane.py::test_it", set(), True),
        ("tests/pipeline/test_lane.py::test_it", {"timeout"}, True),
        ("tests/pipeline/test_lane.py::test_it", {"hypothesis"}, False),
        ("tests/fleet/test_fleet_explore.py::test_it", {"walks"}, False),
        ("tests/fleet/test_fleet_etcd_laws.py::test_it", {"backend"}, True),
        ("tests/spool/test_spool_full.py::test_it", {"root"}, False),
        ("tests/plugins/test_relay_edges.py::test_it", set(), True),
        ("tests/plugins/test_json_lines.py::test_it", set(), False),
        ("tests/simulation/test_simulation.py::test_it", set(), False),
        ("tests/hostile/test_hostile_state.py::test_it", set(), False),
        ("tests/campaign_fleet/test_campaign_fleet.py::test_it", set(), False),
    ],
)
def test_what_chance_takes_or_a_story_of_something_else_is_no_ones_test(
    name: str, markers: set[str], counts: bool
) -> None:
    assert is_ordinary(name, markers) is counts


def test_the_report_names_what_is_below_100_percent() -> None:
    whole = {"functions": {"run": function([10], [], [])}}
    report = {"files": {module: FILE if module == MODULE else whole for module in counted()}}
    rows = fragment("pytest --branches", report).splitlines()

    (row,) = (row for row in rows if "shipper/pipeline`" in row)
    assert row.endswith("| lane 45.4 % |")
    assert next(row for row in rows if "shipper/revisions`" in row).endswith("| none |")
