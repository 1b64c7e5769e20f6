"""The gallery of faults is in order: each applies to the program as it is, and the checks notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.mutants import check, tree
from tests.mutants.__main__ import main
from tests.mutants.mutant import BadHeader, Mutant, all_mutants
from tests.mutants.trial import Kept, Result, trial

MUTANTS = all_mutants()
DRAWN = random.Random(49).sample([mutant for mutant in MUTANTS if "simulation" not in mutant.check], 3)

HARMLESS = """\
Breaks: L6 nothing at all
Fault: a comment is added
Killed by: tests/sdk/test_retry.py

--- a/shipper/sdk/retry.py
+++ b/shipper/sdk/retry.py
@@ -1,2 +1,3 @@
 \"\"\"How long to wait before the next attempt: pure generators of seconds.\"\"\"
+# This does no harm.

"""


def written(directory: Path, text: str) -> Mutant:
    path = directory / "harmless.patch"
    path.write_text(text)
    return Mutant.read(path, directory)


def test_there_are_faults_of_every_part() -> None:
    parts = {mutant.name.partition("/")[0] for mutant in MUTANTS}

    assert len(MUTANTS) >= 60
    assert parts == {"spool", "lane", "rollout", "control", "intake", "inputs", "processors", "outputs", "supervise"}


def test_every_patch_applies_to_the_program_as_it_is() -> None:
    stale = {}
    for mutant in MUTANTS:
        try:
            tree.apply(mutant.path, tree.ROOT, check=True)
        except tree.Stale as error:
            stale[mutant.name] = str(error)

    assert stale == {}


def test_every_patch_touches_the_program_and_nothing_else() -> None:
    assert all(mutant.files for mutant in MUTANTS)
    assert [file for mutant in MUTANTS for file in mutant.files if not is_program(file)] == []


def is_program(file: str) -> bool:
    return file.startswith(("shipper/", "plugins/shipper_plugins/"))


def test_every_patch_names_a_check_that_exists() -> None:
    unknown = [(mutant.name, one) for mutant in MUTANTS for one in mutant.check.split() if not exists(one)]

    assert unknown == []


def exists(selected: str) -> bool:
    """Whether what a check names is there, as far as can be seen without running it."""
    module, _, test = selected.partition("::")
    return not module.startswith("tests/") or f"def {test}" in (tree.ROOT / module).read_text()


def test_no_two_patches_are_the_same_fault() -> None:
    texts = [mutant.path.read_text().partition("\n--- a/")[2] for mutant in MUTANTS]

    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("mutant", DRAWN, ids=lambda mutant: mutant.name)
def test_a_fault_is_killed_by_its_own_check(mutant: Mutant) -> None:
    result = trial(mutant)

    assert (result.settlement, result.wider) == ("killed", False)


def test_what_does_no_harm_survives_its_check(tmp_path: Path) -> None:
    with tree.copied() as copy:
        tree.apply(written(tmp_path, HARMLESS).path, copy)

        assert "This does no harm" in (copy / "shipper/sdk/retry.py").read_text()
        assert check.run("tests/sdk/test_retry.py", copy, 60).settlement == "passed"


def test_a_check_that_cannot_be_run_kills_nothing() -> None:
    with tree.copied() as copy:
        (copy / "shipper/sdk/retry.py").write_text("this is no Python")

        assert check.run("tests/sdk/test_retry.py", copy, 60).settlement == "broken"
        assert check.run("tests/sdk/test_retry.py::test_of_no_such_name", copy, 60).settlement == "broken"


def test_a_check_that_does_not_end_has_failed_and_says_so() -> None:
    with tree.copied() as copy:
        found = check.run("python -m http.server 0 --bind 127.0.0.1", copy, 0.2)

    assert (found.settlement, found.by) == ("failed", "no end within 0.2 s")


def test_a_patch_that_does_not_apply_is_stale(tmp_path: Path) -> None:
    result = trial(written(tmp_path, HARMLESS.replace("How long", "How short")))

    assert result == Result("stale", "the patch does not apply: patch failed: shipper/sdk/retry.py:1")


@pytest.mark.parametrize("line", ["Breaks", "Fault", "Killed by"])
def test_a_header_that_lacks_something_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadHeader):
        written(tmp_path, HARMLESS.replace(f"{line}: ", "More: "))


def test_a_result_is_kept_until_the_patch_or_the_tree_changes(tmp_path: Path) -> None:
    mutant, result = written(tmp_path, HARMLESS), Result("killed", "test_of_something", 1.0)
    Kept(tmp_path / "kept.json", "this tree").put(mutant, result)

    assert Kept(tmp_path / "kept.json", "this tree").load().get(mutant) == result
    assert Kept(tmp_path / "kept.json", "another tree").load().get(mutant) is None
    changed = written(tmp_path, HARMLESS.replace("no harm", "some harm"))
    assert Kept(tmp_path / "kept.json", "this tree").load().get(changed) is None


def test_a_list_names_the_property_and_the_check_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "spool/lock_not_taken"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("spool/lock_not_taken\n    breaks     Q6 one process owns a state directory\n")
    assert "tests/spool/test_spool_directory.py::" in printed
