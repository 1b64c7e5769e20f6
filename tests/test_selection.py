"""The page of what a run takes names what exists, and what it leaves out is dealt whole."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.selection import HANDS, dealt, durations, matches, table

ROOT = Path(__file__).parents[1]
FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
ROWS = ("The rest", "What needs the machine for itself", "Who shares a server", "Budgets")


def defines(source: str, pattern: str) -> bool:
    """Whether it has a test or a class that begins like this; all have what is no name."""
    return any(f"{kind} {pattern.rstrip('*')}" in source for kind in ("def", "class"))


def test_every_row_of_the_page_names_tests_that_exist() -> None:
    named = [cell for heading in ROWS for row in table(heading) for cell in row[0].split(", ")]
    lost = [
        cell
        for cell in named
        if not any(
            matches(file, cell.partition("::")[0]) and defines((ROOT / file).read_text(), cell.partition("::")[2])
            for file in FILES
        )
    ]

    assert lost == []


def test_ten_commits_in_a_row_run_all_of_the_rest_once() -> None:
    seconds = {row[0]: float(row[1]) for row in table("The rest")}
    hands = dealt(seconds)

    assert len(hands) == HANDS
    assert Counter(name for hand in hands for name in hand) == dict.fromkeys(seconds, 1)
    assert max(sum(seconds[name] for name in hand) for hand in hands) <= 600  # seconds that CI gives a tenth


def test_a_folder_takes_no_more_of_a_processor_than_its_budget() -> None:
    budget = {row[0]: float(row[1]) for row in table("Budgets")}
    spent: Counter[str] = Counter()
    for file, (_, seconds) in durations().items():
        spent["/".join(file.split("/")[: 2 if file.count("/") > 1 else 1])] += seconds

    assert {folder: seconds for folder, seconds in spent.items() if seconds > budget.get(folder, 0)} == {}
    assert sum(budget.values()) <= 2 * 600  # of two cores, in ten minutes


def test_a_crash_takes_no_other_test_down(tmp_path: Path) -> None:
    """Nor does the run wait for ever for the worker that takes the place of the one that crashed."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text("import os\ndef test_one(): pass\ndef test_two(): os._exit(3)\n")
    (tmp_path / "test_b.py").write_text("def test_three(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.selection", "-n2", "--rootdir", tmp_path, tmp_path]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert "1 failed, 2 passed" in run.stdout
