"""The faults made by hand apply to the program as it is, rules make others, and the checks notice both."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import check, tree
from tests.mutants.__main__ import main
from tests.mutants.generated import Generated, drawn, faults, generated, mirrored
from tests.mutants.mutant import BadFault, Mutant, all_mutants
from tests.mutants.source import Edit, Program, Stale
from tests.mutants.trial import Kept, Result, trial

pytestmark = pytest.mark.timeout(180)

MUTANTS = all_mutants()
RETRY = "shipper/sdk/retry.py"
TABLE: dict[str, Any] = {
    "breaks": "L6 a retry is no hot loop",
    "fault": "it waits shorter than it must",
    "killed_by": "tests/sdk/test_retry.py",
    "function": "backoff",
    "old": "first: float",
    "new": "first: int",
}
HARMLESS = Mutant.of("sdk/harmless", TABLE)


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(tree.ROOT)


# -- those made by hand ------------------------------------------------------------------------------------------------


def test_there_are_faults_of_every_part() -> None:
    parts = {mutant.name.partition("/")[0] for mutant in MUTANTS}

    of_shipper = {"spool", "keyed", "lane", "rollout", "control", "intake", "supervise", "etcd", "fleet"}
    of_shipper |= {"fleet_kubernetes"}
    assert parts == of_shipper | {"inputs", "processors", "outputs", "otlp"}
    assert len(MUTANTS) >= 100


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


def test_no_two_faults_are_the_same() -> None:
    assert len({mutant.edits for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("field", ["breaks", "fault", "killed_by", "function", "old", "new"])
def test_a_fault_that_lacks_something_is_refused(field: str) -> None:
    with pytest.raises(BadFault):
        Mutant.of("sdk/wrong", {key: value for key, value in TABLE.items() if key != field})


@pytest.mark.parametrize("wrong", [{"breaks": "no letter"}, {"fault": ""}, {"old": 1}, {"line": "7"}, {"also": [{}]}])
def test_a_fault_with_a_field_that_is_wrong_or_unknown_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadFault):
        Mutant.of("sdk/wrong", TABLE | wrong)


# -- the place of a fault ----------------------------------------------------------------------------------------------

BEFORE = '''\
"""A module."""

LIMIT = 4


class Lane:
    async def run(self, name):
        if name:  # a comment
            await self.send(
                name,
                LIMIT,
            )
        return name


def run(name):
    return name
'''


def after(text: str, directory: Path, *edits: Edit) -> str:
    """The text of a module after some edits."""
    (directory / "shipper").mkdir(exist_ok=True)
    (directory / "shipper/lane.py").write_text(text)
    return Program(directory).changed(edits)["shipper/lane.py"]


def test_a_fragment_is_found_by_its_words_however_it_is_laid_out(tmp_path: Path) -> None:
    edit = Edit("Lane.run", "if name: await self.send(name, LIMIT)", "if not name:\n    pass")

    changed = after(BEFORE, tmp_path, edit)

    assert "        if not name:\n            pass\n        return name\n" in changed


def test_the_lines_of_a_replacement_are_indented_as_its_place_asks_for(tmp_path: Path) -> None:
    new = "    if LIMIT:\n        return 1\nreturn 2"

    changed = after(BEFORE, tmp_path, Edit("Lane.run", "    await self.send(name, LIMIT)\nreturn name", new))

    assert "            if LIMIT:\n                return 1\n        return 2\n" in changed


def test_a_function_a_method_and_a_constant_have_names_of_their_own(tmp_path: Path) -> None:
    edits = Edit("LIMIT", "4", "5"), Edit("run", "return name", "return 1"), Edit("Lane.run", "return name", "return 2")

    assert after(BEFORE, tmp_path, *edits) == BEFORE.replace("LIMIT = 4", "LIMIT = 5").replace(
        "        return name", "        return 2"
    ).replace("    return name\n", "    return 1\n")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("Lane.walk", "name", "1"), "nowhere"),
        (Edit("run", "name", "1"), "2 times"),
        (Edit("run", "return 1", "1"), "0 times"),
        (Edit("run", "return name", "return\n  name"), "changes nothing"),
        (Edit("run", "return name", "return ="), "no Python"),
        (Edit("Lane.run", "await self.send(name", "1"), "no fragment"),
        (Edit("run", "return name", "1", module="shipper/other.py"), "nowhere"),
    ],
)
def test_a_fault_that_does_not_apply_is_stale_and_says_why(tmp_path: Path, edit: Edit, why: str) -> None:
    with pytest.raises(Stale, match=why):
        after(BEFORE, tmp_path, edit)


def test_of_two_functions_of_one_name_the_module_says_which(tmp_path: Path) -> None:
    (tmp_path / "shipper").mkdir()
    (tmp_path / "shipper/other.py").write_text(BEFORE)
    edit = Edit("run", "return name", "return 1")

    with pytest.raises(Stale, match=r"in shipper/lane\.py, shipper/other\.py"):
        after(BEFORE, tmp_path, edit)
    assert "return 1" in after(BEFORE, tmp_path, replace(edit, module="shipper/lane.py"))


# -- generated ones ----------------------------------------------------------------------------------------------------

RULED = '''\
async def run(self, many: int = 3) -> bool:
    """A docstring."""
    _log.info("dropped", many=4)
    self.many = many
    try:
        if many < 1 and not self.done:
            raise ValueError(f"{many + 1} is too many")
        await self.send(shield=True)
    finally:
        self.close()
        del self.many
    return self.ready
'''


def test_rules_change_conditions_values_and_statements_and_no_words() -> None:
    made = [(one.kind, one.old, one.new) for one in faults("shipper/lane.py", RULED, "tests")]

    both = "many < 1 and not self.done"
    assert ("negate", both, "(not (many < 1 and (not self.done)))") in made
    assert {("never", both, "False"), ("always", both, "True")} < {*made}
    assert ("compare", "many < 1", "many <= 1") in made
    assert ("boolean", both, "(many < 1 or not self.done)") in made
    assert [new for kind, _, new in made if kind == "without"] == ["(not self.done)", "(many < 1)", "(self.done)"]
    changed = [(old, new) for kind, old, new in made if kind == "constant"]
    assert changed == [("3", "4"), ("3", "2"), ("1", "2"), ("1", "0"), ("True", "False")]
    dropped = [old for kind, old, _ in made if kind == "drop"]
    raised = 'raise ValueError(f"{many + 1} is too many")'
    assert dropped == ["self.many = many", raised, "await self.send(shield=True)", "self.close()", "del self.many"]
    assert ("finally", "self.close()\n        del self.many", "pass") in made
    assert ("return", "return self.ready", "return None") in made
    assert [new for kind, _, new in made if kind == "early"] == ["return None"]


def test_what_rules_make_of_the_program_is_python_and_is_drawn_by_a_seed(program: Program) -> None:
    def draw(seed: int) -> list[Generated]:
        return generated(program, tree.ROOT, ["shipper/status"], seed=seed, count=30)

    some = draw(1)

    assert some == draw(1) != draw(2)
    for one in some:
        ast.parse(one.changed(program)[one.module])


def test_no_two_generated_faults_have_one_name() -> None:
    names = [one.name for one in faults("shipper/lane.py", "lowest = 0 <= (a and b or c and d) <= 4\n", "tests")]

    assert len(set(names)) == len(names) > 4


def test_names_say_of_which_modules_faults_are_made(program: Program) -> None:
    assert {one.module for one in generated(program, tree.ROOT, [RETRY], seed=0, count=None)} == {RETRY}
    below = generated(program, tree.ROOT, ["shipper/status/"], seed=0, count=None)
    assert {one.module for one in below} > {"shipper/status/http.py", "shipper/status/ages.py"}
    assert generated(program, tree.ROOT, ["shipper/stat"], seed=0, count=None) == []


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("shipper/pipeline/slots.py", "tests/pipeline/test_slots.py"),
        ("shipper/supervise/releases.py", "tests/supervise/test_supervise_releases.py"),
        ("plugins/shipper_plugins/outputs/file.py", "tests/plugins/test_output_file.py"),
        ("plugins/shipper_plugins/inputs/tail/calls.py", "tests/plugins/test_tail_calls.py"),
        ("shipper/pipeline/settling.py", "tests/pipeline"),
        ("shipper/fleet/member/fencing.py", "tests/fleet/test_fleet_fencing.py"),
        ("shipper/fleet/member/machine.py", "tests/fleet/test_fleet_member.py"),
        ("shipper/kubernetes/member/choosing.py", "tests/kubernetes/member"),
        ("shipper/kubernetes/summing/release.py", "tests/kubernetes/summing/test_summing_release.py"),
        ("shipper/demo/tally.py", "tests/test_demo.py"),
        ("shipper/sidecar.py", "tests/test_run.py"),
    ],
)
def test_a_module_is_tried_by_the_tests_that_mirror_it_or_by_those_of_its_room(module: str, tests: str) -> None:
    assert mirrored(module, tree.ROOT).split()[1:] == [tests]


# -- trials ------------------------------------------------------------------------------------------------------------


def test_a_fault_made_by_hand_is_killed_by_its_own_check(program: Program) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "control/credential_shown")
    result = trial(mutant, program)

    assert (result.settlement, result.wider) == ("killed", False)


def test_a_generated_fault_is_killed_and_one_that_does_no_harm_survives(program: Program) -> None:
    endless = next(one for one in generated(program, tree.ROOT, [RETRY], seed=0, count=None) if one.new == "False")

    assert trial(endless, program).settlement == "killed"
    assert trial(replace(endless, new=endless.old), program).settlement == "survived"


def test_what_was_tried_is_not_tried_again_and_is_in_the_report(program: Program, tmp_path: Path) -> None:
    kept, told = tmp_path / "kept.json", tmp_path / "report.md"
    for one in generated(program, tree.ROOT, [RETRY], seed=0, count=None):
        Kept(kept).load().put(one, Result("survived" if one.kind == "boolean" else "killed", ""))

    assert main(["--generated", RETRY, "--state", str(kept), "--report", str(told)]) == 0
    assert "`draw or random  →  (draw and random)`" in told.read_text()


def test_a_step_that_is_dropped_leaves_a_generator() -> None:
    made = [(one.kind, one.old, one.new) for one in faults("shipper/lane.py", "def steps():\n    yield Save()\n", "")]

    assert ("drop", "yield Save()", "yield from ()") in made


def test_a_larger_draw_has_all_of_a_smaller_one() -> None:
    everything = range(50)

    assert {*drawn(everything, 1, 10)} < {*drawn(everything, 1, 20)}
    assert drawn(everything, 1, None) == [*everything]


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


def test_a_check_that_does_not_end_has_failed_and_says_so() -> None:
    with tree.copied() as copy:
        found = check.run("python -m http.server 0 --bind 127.0.0.1", copy, 0.2)

    assert (found.settlement, found.by) == ("failed", "no end within 0.2 s")


def test_a_fault_that_does_not_apply_is_not_tried(program: Program) -> None:
    gone = Mutant.of("sdk/gone", TABLE | {"old": "what is not there"})

    assert trial(gone, program) == Result("stale", "backoff has the fragment 0 times: what is not there")


def test_a_result_is_kept_until_the_fault_or_the_tree_changes(tmp_path: Path) -> None:
    result = Result("killed", "test_of_something", 1.0)
    Kept(tmp_path / "kept.json", "this tree").put(HARMLESS, result)

    assert Kept(tmp_path / "kept.json", "this tree").load().get(HARMLESS) == result
    assert Kept(tmp_path / "kept.json", "another tree").load().get(HARMLESS) is None
    changed = replace(HARMLESS, fault="another one")
    assert Kept(tmp_path / "kept.json", "this tree").load().get(changed) is None


def test_a_list_names_the_property_and_the_check_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "spool/lock_not_taken"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("spool/lock_not_taken\n    breaks     Q6 one process owns a state directory\n")
    assert "tests/spool/test_spool_directory.py::" in printed


def test_a_list_of_generated_ones_shows_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--generated", RETRY, "--count", "1"]) == 0

    assert capsys.readouterr().out.startswith(f"{RETRY}:")
