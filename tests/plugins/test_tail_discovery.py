"""Globs, and the directories that matter to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.plugin import BadOption
from shipper_plugins.inputs.file import FileInput
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
        ("[^a].*", ["b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("[a^]*.log", ["a.log"]),
        ("[^]].txt", ["b.txt"]),
        ("missing/*.log", []),
        ("a.log/*.log", []),
    ],
)
def test_a_glob_matches_as_in_a_shell(tree: Path, pattern: str, expected: list[str]) -> None:
    assert expected == found(tree, pattern)


def test_what_is_excluded_is_not_found(tree: Path) -> None:
    assert found(tree, "**/*.log", exclude=("b*", f"{tree}/*.log", f"{tree}/x/y/**")) == ["x/a.log"]
    assert found(tree, "**/*.log", exclude=(f"{tree}/**/a.log",)) == ["x/y/b.log", "z[1].log"]


def test_a_class_may_be_negated_in_what_is_excluded(tree: Path) -> None:
    assert found(tree, "**", exclude=("[^b]*",)) == ["b.txt", "x/y/b.log"]
    assert found(tree, "**", exclude=(f"{tree}/**/*.lo[^a-f]",)) == ["b.txt"]


@pytest.mark.parametrize("option", ["paths", "exclude"])
@pytest.mark.parametrize("pattern", ["/var/log/\0.log", "/var/log/*.{log,txt}", "/a/{b,{c,d}}/*"])
def test_a_pattern_that_can_match_nothing_is_refused(option: str, pattern: str) -> None:
    with pytest.raises(BadOption) as refused:
        FileInput(**{"paths": ("/var/log/*.log",), option: (pattern,)})  # type: ignore[arg-type]

    assert refused.value.at == (option, 0)


def test_alternatives_in_braces_may_hold_a_separator_and_are_refused() -> None:
    with pytest.raises(BadOption, match="braces"):
        FileInput(paths=("/var/log/{a/x,b/y}.log",))


@pytest.mark.parametrize(("option", "pattern"), [("exclude", "."), ("exclude", "/"), ("paths", "/"), ("paths", "//./")])
def test_a_pattern_without_a_name_is_refused(option: str, pattern: str) -> None:
    with pytest.raises(BadOption, match="no name is in it") as refused:
        FileInput(**{"paths": ("/var/log/*.log",), option: (pattern,)})  # type: ignore[arg-type]

    assert refused.value.at == (option, 0)


def test_braces_are_taken_where_they_are_part_of_names(tree: Path) -> None:
    (tree / "{b,c}.log").write_text("line\n")
    pattern = f"{tree}/[{{]b,c}}.log"

    assert FileInput(paths=(pattern, f"{tree}/{{b}}.log")).paths
    assert found(tree, "[{]b,c}.log") == ["{b,c}.log"]


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
