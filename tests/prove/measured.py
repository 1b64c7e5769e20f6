"""`pytest --branches`: fails when the ordinary tests of a run do not take every branch of the rooms (`prove/rooms`).

Coverage runs in each process that runs tests (the workers of pytest-xdist, or the only one), and sees the modules of
the list alone; processes that tests start are not measured. Only what an ordinary test of a room takes counts: a branch
that chance takes (drawn input, walks, simulated worlds), or a story about something else, is no one's test. All other
tests run without it, at their own speed.

Everything is left in `build/branches`: `report.json` is coverage's own, by module.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from coverage import Coverage

from tests.prove.rooms import ROOMS, ROOT, counted, strays

KEPT = ROOT / "build" / "branches"
REPORT = KEPT / "report.json"
ORDINARY, OTHER = "ordinary", "other"
TESTS = tuple(
    f"tests/{room.folder.removeprefix('shipper/').replace('plugins/shipper_plugins/', 'plugins/')}/" for room in ROOMS
)
"""Files that begin so test the rooms: the folders of tests mirror theirs."""
APART = frozenset({"hypothesis", "walks", "root"})
"""Marks of tests that come to a branch by chance or by an exploration of all states, or that need root."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--branches", action="store_true", help="fail when tests leave a branch of the promises untaken")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("branches"):
        return
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None:
        shutil.rmtree(KEPT, ignore_errors=True)
        config.pluginmanager.register(_Judge())
    if worker is not None or not config.getoption("numprocesses", default=None):
        config.pluginmanager.register(_Measure(worker or "alone"))


@dataclass(frozen=True, slots=True)
class Measured:
    """What tests take of the functions of one module; what runs at its import is of no interest."""

    module: str
    percent: float
    """Of lines and branches, rounded down to a tenth."""
    missing: tuple[str, ...]
    """`LINE -> LINE` for a branch that nothing took, `LINE` for a line, or for a function, that nothing ran."""

    @classmethod
    def of(cls, module: str, file: dict[str, Any]) -> Measured:
        """Of the part of coverage's JSON that is about this file."""
        functions = {name: function for name, function in file["functions"].items() if name}
        sums = [function["summary"] for function in functions.values()]
        whole = sum(one["num_statements"] + one["num_branches"] for one in sums)
        taken = sum(one["covered_lines"] + one["covered_branches"] for one in sums)
        missing = tuple(place for named in functions.items() for place in _missing(*named))
        return cls(module, (1000 * taken // whole) / 10 if whole else 100.0, missing)


def _missing(name: str, function: dict[str, Any]) -> Iterator[str]:
    lines, branches = function["missing_lines"], function["missing_branches"]
    if lines and not function["executed_lines"]:
        yield f"{function['start_line']} ({name})"
        return
    told = {line for _, line in branches}
    yield from (f"{line} -> {'exit' if to < 0 else to}" for line, to in branches)
    yield from (str(line) for line in lines if line not in told)


def judged(measured: Iterable[Measured], floors: Mapping[str, float]) -> Iterator[str]:
    """What is wrong: each module below its floor, with the places that nothing took."""
    for one in measured:
        if one.percent < floors[one.module]:
            yield f"{one.module}: {one.percent} % is taken, and {floors[one.module]} % are asked"
            yield from (f"    {one.module}:{place} is not taken" for place in one.missing)


class _Measure:
    """Measures the tests of this process."""

    def __init__(self, worker: str) -> None:
        modules = [str(ROOT / module) for module in counted()]
        KEPT.mkdir(parents=True, exist_ok=True)
        self._coverage = Coverage(KEPT / "data", data_suffix=worker, include=modules, messages=False)
        self._coverage.start()
        self._context = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        ordinary = is_ordinary(item.nodeid, {mark.name for mark in item.iter_markers()})
        self._enter(ORDINARY if ordinary else OTHER)
        if ordinary:
            return (yield)
        tracer = sys.gettrace()
        sys.settrace(None)  # most of the work of such tests is in this thread, and costs nothing then
        try:
            return (yield)
        finally:
            sys.settrace(tracer)

    def _enter(self, context: str) -> None:
        if context != self._context:  # a change writes what was measured
            self._context = context
            self._coverage.switch_context(context)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def is_ordinary(name: str, markers: Collection[str]) -> bool:
    """Whether what a test takes counts: it is one of a room, takes the same way each time, and needs no root."""
    return name.startswith(TESTS) and APART.isdisjoint(markers)


class _Judge:
    """Puts together what all processes measured, and judges it."""

    def __init__(self) -> None:
        self._wrong: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        floors = {module: floor for module, floor in counted().items() if (ROOT / module).exists()}
        report = _combined(list(floors))["files"]
        measured = (Measured.of(module, report[module]) for module in floors)
        self._wrong = [*strays(), *judged(measured, floors)]
        if self._wrong and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._wrong:
            terminalreporter.section("branches that no ordinary test takes")
        for line in self._wrong:
            terminalreporter.line(line)


def _combined(modules: list[str]) -> dict[str, Any]:
    coverage = Coverage(KEPT / "data")
    coverage.combine([str(KEPT)])
    coverage.json_report([str(ROOT / module) for module in modules], str(REPORT), contexts=[ORDINARY])
    report: dict[str, Any] = json.loads(REPORT.read_text())
    return report
