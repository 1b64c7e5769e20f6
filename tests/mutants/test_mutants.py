"""The faults made by hand apply to the program as it is, and the checks notice them."""

from __future__ import annotations

import pytest

from tests.mutants import check, tree
from tests.mutants.mutant import all_mutants
from tests.mutants.source import Program, Stale
from tests.mutants.trial import trial

MUTANTS = all_mutants()


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(tree.ROOT)


def test_every_fault_applies_to_the_program_as_it_is(program: Program) -> None:
    stale = {}
    for mutant in MUTANTS:
        try:
            mutant.changed(program)
        except Stale as error:
            stale[mutant.name] = str(error)

    assert stale == {}


def test_every_fault_names_a_check_that_exists() -> None:
    unknown = [(mutant.name, one) for mutant in MUTANTS for one in mutant.check.split() if not exists(one)]

    assert unknown == []


def exists(selected: str) -> bool:
    """Whether what a check names is there, as far as can be seen without running it."""
    module, _, test = selected.partition("::")
    return not module.startswith("tests/") or f"def {test}" in (tree.ROOT / module).read_text()


def test_a_fault_made_by_hand_is_killed_by_its_own_check(program: Program) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "control/credential_shown")
    result = trial(mutant, program)

    assert (result.settlement, result.wider) == ("killed", False)


@pytest.mark.parametrize(
    ("status", "output", "settlement"),
    [
        (0, "3 passed", "passed"),
        (1, "FAILED tests/sdk/test_retry.py::test_waits - assert False", "failed"),
        (1, "FAILED tests/pipeline/test_backlog.py::TestLanes::runTest - Failed: Timeout", "failed"),
        (2, "ERROR tests/sdk/test_retry.py - SyntaxError: invalid syntax", "broken"),
        (4, "ERROR: not found: tests/sdk/test_retry.py::test_of_no_such_name", "broken"),
    ],
)
def test_a_check_that_cannot_be_run_kills_nothing(status: int, output: str, settlement: str) -> None:
    assert check.judge(status, output, simulated=False)[0] == settlement
