"""Which tests a run takes, in which order, and what they cost: a plugin that reads the tables of `tests/README.md`.

    --rest=with       every test (what pytest does anyway)
    --rest=without    all but those of the table "The rest": `make test`
    --rest=only       those alone: `make test-rest`
    --rest=NUMBER     a tenth of them, the next one for the next number: `.ci/run` counts the commits
    --durations-to=F  what each file took, and what it took of a processor, in seconds, as JSON

Workers of pytest-xdist take whole files, and what shares a server is one unit as well. The longest begin first, so that
all end together. Every other worker begins with the units that mostly wait, so that they do not wait all at once, and
the cores have work meanwhile. What needs the machine for itself comes last, when nothing else runs.
"""

from __future__ import annotations

import json
import re
import resource
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
DURATIONS = HERE / "durations.json"
HANDS = 10
ALONE = "alone"
UNKNOWN = (2.0, 1.0)
"""Seconds, and those of a processor, for a file that nobody has measured."""


def table(heading: str, page: Path = PAGE) -> list[list[str]]:
    """The rows below a heading, without their head and without backticks. LookupError where the heading is missing."""
    _, found, below = page.read_text().partition(f"\n## {heading}\n")
    if not found:
        raise LookupError(f"{page} has no heading {heading!r}")
    rows = [line for line in re.split(r"\n## ", below)[0].splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows[2:]]


def durations() -> dict[str, tuple[float, float]]:
    """Seconds by file, and those of a processor, as the last run that was kept has them."""
    return {file: (took, spent) for file, (took, spent) in json.loads(DURATIONS.read_text()).items()}


@cache
def matches(name: str, pattern: str) -> bool:
    """Whether a cell names a file or a test: folders, files or `file::test`, with `*`, commas between them."""
    return any(_matches(name, one) for one in pattern.split(", "))


def _matches(name: str, pattern: str) -> bool:
    file, _, test = name.partition("::")
    of_file, _, of_test = pattern.partition("::")
    if of_test:
        return fnmatchcase(file, of_file) and fnmatchcase(test.partition("[")[0], of_test)
    return any(fnmatchcase(part, of_file) for part in (file, *map(str, Path(file).parents)))


def dealt(seconds: Mapping[str, float]) -> list[set[str]]:
    """The names in ten hands that take about the same time."""
    hands: list[set[str]] = [set() for _ in range(HANDS)]
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        min(hands, key=lambda hand: sum(seconds[held] for held in hand)).add(name)
    return hands


class Rows:
    """The tables, asked by the name of a test."""

    def __init__(self) -> None:
        self._rest = tuple(row[0] for row in table("The rest"))
        self._alone = tuple(row[0] for row in table("What needs the machine for itself"))
        self._shared = tuple(row[0] for row in table("Who shares a server"))

    def rest(self, name: str) -> str | None:
        """The row of "The rest" that has this test, or None."""
        return _first(self._rest, name)

    def unit(self, name: str) -> str:
        """What one worker takes as a whole: ALONE, a row of "Who shares a server", or the file."""
        if _first(self._alone, name):
            return ALONE
        return _first(self._shared, name) or name.partition("::")[0]


def _first(patterns: tuple[str, ...], name: str) -> str | None:
    return next((one for one in _of_file(patterns, name.partition("::")[0]) if matches(name, one)), None)


@cache
def _of_file(patterns: tuple[str, ...], file: str) -> list[str]:
    """Those that name this file, or tests of it: few, while there are thousands of tests."""
    return [one for one in patterns if any(matches(file, part.partition("::")[0]) for part in one.split(", "))]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection", "which tests a run takes (tests/README.md)")
    group.addoption("--rest", default="with", help="with, without, only, or a number, which takes a tenth of the rest")
    group.addoption("--durations-to", type=Path, metavar="FILE", help="write what each file took, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    rest = config.getoption("--rest")
    if rest not in ("with", "without", "only") and not rest.isdecimal():
        raise pytest.UsageError(f"--rest is with, without, only or a number, not {rest!r}")
    if config.getoption("--durations-to") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch(config.getoption("--durations-to")))
    if config.getoption("--durations-to") and (hasattr(config, "workerinput") or not config.option.numprocesses):
        config.pluginmanager.register(_Meter())


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of all workers, each compiles a part of the test files anew, which takes twenty seconds, and finds the others."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(arg).resolve() for arg in session.config.args] != [HERE]:
        return
    files = sorted(HERE.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        with suppress(Exception, pytest.skip.Exception):  # collection says it
            import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = Rows()
    taken = _taken(config.getoption("--rest"), rows)
    left_out = [item for item in items if not taken(item.nodeid)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if taken(item.nodeid)]
    if hasattr(config, "workerinput"):
        _longest_first(items, rows, durations())


def _longest_first(items: list[pytest.Item], rows: Rows, seconds: Mapping[str, tuple[float, float]]) -> None:
    cost: Counter[str] = Counter()
    for name in {item.nodeid.partition("::")[0]: item.nodeid for item in items}.values():
        cost[rows.unit(name)] += round(10 * seconds.get(name.partition("::")[0], UNKNOWN)[0])

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        unit = rows.unit(item.nodeid)
        return unit == ALONE, -cost[unit], unit

    items.sort(key=place)


def _waits(names: Iterable[str], seconds: Mapping[str, tuple[float, float]]) -> bool:
    """Whether these tests take less than half of a processor while they run."""
    took, spent = (sum(of) for of in zip(*(seconds.get(file, UNKNOWN) for file in {*_files(names)}), strict=True))
    return spent < took / 2


def _files(names: Iterable[str]) -> Iterator[str]:
    return (name.partition("::")[0] for name in names)


def _taken(rest: str, rows: Rows) -> Callable[[str], bool]:
    if rest == "with":
        return lambda name: True
    if rest == "without":
        return lambda name: rows.rest(name) is None
    if rest == "only":
        return lambda name: rows.rest(name) is not None
    hand = dealt({row[0]: float(row[1]) for row in table("The rest")})[int(rest) % HANDS]
    return lambda name: rows.rest(name) in hand


class _Meter:
    """Where tests run: notes with each phase what this process and its children have taken of a processor.

    What ends with the last test served others, so it is not that one's.
    """

    def __init__(self) -> None:
        self._before = 0.0
        self._last = False

    def pytest_collection_finish(self) -> None:
        self._before = _processor()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, nextitem: pytest.Item | None) -> None:
        self._last = nextitem is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._before = self._before, _processor()
        ends_all = self._last and report.when == "teardown"
        report.spent = 0.0 if ends_all else self._before - before  # type: ignore[attr-defined]
        return report


def _processor() -> float:
    """Seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class _Stopwatch:
    """Adds up the phases of the tests of each file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: Any) -> None:
        of_file = self._seconds[report.nodeid.partition("::")[0]]
        of_file[0] += report.duration
        of_file[1] += getattr(report, "spent", 0.0)  # a test that has crashed tells nothing

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = (
            f"{json.dumps(file)}: [{took:.1f}, {spent:.1f}]" for file, (took, spent) in sorted(self._seconds.items())
        )
        self._path.write_text("{\n" + ",\n".join(rows) + "\n}\n")


class Sharing(LoadScopeScheduling):
    """Deals whole units to the workers of pytest-xdist, in the order in which they were collected.

    Every other worker gets those that wait first, its neighbours the others. ALONE is dealt to the last worker, after
    the others have ended. A worker begins its last test only when it knows what follows: so it gets units until it has
    two tests, also where it takes the place of one that crashed, or is told at once that nothing follows.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._rows = Rows()
        self._seconds = durations()

    def _split_scope(self, nodeid: str) -> str:
        return self._rows.unit(nodeid)

    def _reschedule(self, node: Any) -> None:
        if next(iter(self.workqueue), None) == ALONE and len(self.nodes) > 1:
            if any(other is not node and not other.shutting_down for other in self.nodes):
                node.shutdown()
            return
        super()._reschedule(node)
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        waiting = self.nodes.index(node) % 2 == 1
        fitting = (
            unit for unit, tests in self.workqueue.items() if unit != ALONE and _waits(tests, self._seconds) == waiting
        )
        self.workqueue.move_to_end(next(fitting, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """It ended, or crashed: returns the test that it crashed in, and deals what else it has left."""
        units = self.assigned_work.pop(node)
        crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
        for scope, unit in units.items():
            if left := {test: done for test, done in unit.items() if test != crashed and not done}:
                self.workqueue[scope] = left
        for other in self.nodes:
            self._reschedule(other)
        return crashed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    config.option.loadscopereorder = False
    return Sharing(config, log)
