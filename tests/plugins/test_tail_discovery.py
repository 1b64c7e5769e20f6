"""Globs, and the directories that matter to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper_plugins.inputs.tail.discovery import Globs


def found(directory: Path, *paths: str, exclude: tuple[str, ...] = ()) -> list[str]:
    scan = Globs([f"{directory}/{path}" for path in paths], exclude).scan()
    assert not scan.problems
    return sorted(str(Path(path).relative_to(directory)) for path in scan.files)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.log", "b.txt", ".hidden.log", "x/a.log", "x/y/a.log", "x/y/b.log", ".git/a.log", "z[1].log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("line\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.log", ["a.log"]),
        ("*.log", ["a.log", "z[1].log"]),
        ("?.txt", ["b.txt"]),
        ("[ab].*", ["a.log", "b.txt"]),
        (".*.log", [".hidden.log"]),
        ("*/*.log", ["x/a.log"]),
        ("**/a.log", ["a.log", "x/a.log", "x/y/a.log"]),
        ("x/**", ["x/a.log", "x/y/a.log", "x/y/b.log"]),
        ("x/**/y/*.log", ["x/y/a.log", "x/y/b.log"]),
        ("**/**/b.log", ["x/y/b.log"]),
        ("z[[]1].log", ["z[1].log"]),
        ("missing/*.log", []),
        ("a.log/*.log", []),
    ],
)
def test_a_glob_matches_as_in_a_shell(tree: Path, pattern: str, expected: list[str]) -> None:
    assert expected == found(tree, pattern)


def test_what_is_excluded_is_not_found(tree: Path) -> None:
    assert found(tree, "**/*.log", exclude=("b*", f"{tree}/*.log", f"{tree}/x/y/**")) == ["x/a.log"]
    assert found(tree, "**/*.log", exclude=(f"{tree}/**/a.log",)) == ["x/y/b.log", "z[1].log"]


def test_links_that_go_in_circles_end(tree: Path) -> None:
    (tree / "x" / "loop").symlink_to(tree)

    assert "x/loop/b.txt" not in found(tree, "**/*.txt")
    assert found(tree, "**/*.txt") == ["b.txt"]


def test_every_directory_on_the_way_is_of_interest(tree: Path) -> None:
    interests = Globs([f"{tree}/new/*.log"], ()).scan().interests

    assert "new" in interests[str(tree)]
    assert "other" not in interests[str(tree)]
    assert tree.name in interests[str(tree.parent)]
    assert "/" in interests
