"""Globs, and the directories that matter to them."""

from __future__ import annotations

import fnmatch
import inspect
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import BadOption
from shipper_plugins.file.input import FileInput
from shipper_plugins.tail.discovery import Globs, check_pattern
from tests.examples import examples


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


def test_a_glob_matches_as_in_a_shell(tree: Path) -> None:
    for pattern, expected in [
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
    ]:
        assert expected == found(tree, pattern)


def test_what_is_excluded_is_not_found(tree: Path) -> None:
    assert found(tree, "**/*.log", exclude=("b*", f"{tree}/*.log", f"{tree}/x/y/**")) == ["x/a.log"]
    assert found(tree, "**/*.log", exclude=(f"{tree}/**/a.log",)) == ["x/y/b.log", "z[1].log"]
    assert found(tree, "**", exclude=("[^b]*",)) == ["b.txt", "x/y/b.log"]
    assert found(tree, "**", exclude=(f"{tree}/**/*.lo[^a-f]",)) == ["b.txt"]


def test_a_pattern_that_can_match_nothing_is_refused() -> None:
    for pattern in ["/var/log/\0.log", "/var/log/*.{log,txt}", "/a/{b,{c,d}}/*", "/a/{b/x,c/y}.log"]:
        for option in ["paths", "exclude"]:
            with pytest.raises(BadOption) as refused:
                FileInput(**{"paths": ("/var/log/*.log",), option: (pattern,)})  # type: ignore[arg-type]

            assert refused.value.at == (option, 0)


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


def covers(pattern: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """What `**` means, word for word; it takes exponential time."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return covers(pattern[1:], names) or (bool(names) and covers(pattern, names[1:]))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and covers(pattern[1:], names[1:])


@settings(max_examples=examples(5))
@given(
    st.lists(st.sampled_from(["**", "*", "a", "b", "a*", "?b", "[!a]"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab", "bb", ".a"]), min_size=1, max_size=6),
)
def test_a_glob_excludes_the_paths_that_it_means(pattern: list[str], names: list[str]) -> None:
    excludes = Globs((), (f"/{'/'.join(pattern)}",)).excludes(f"/{'/'.join(names)}")

    assert excludes == covers(tuple(pattern), tuple(names))


@given(st.text(alphabet="[]!^{},-*?a&|~\\", min_size=1, max_size=12))
def test_a_pattern_that_is_taken_can_be_compared(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except BadOption:
        return
    Globs((f"/nowhere/{pattern}",), (pattern,)).excludes("/a/b")


def test_a_glob_of_many_stars_is_compared_soon() -> None:
    for pattern, path in [
        ("/" + "**/a/" * 800 + "b", "/a" * 1600),
        ("/" + "**/*/" * 800 + "b", "/a" * 1600),
        ("*a" * 2000 + "b", "/" + "a" * 4000),
        ("*?" * 2000 + "b", "/" + "a" * 4000),
        ("*[!b]*" * 600 + "b", "/" + "a" * 4000),
    ]:
        globs = Globs((), (pattern,))
        started = time.process_time()

        assert not globs.excludes(path)
        assert time.process_time() - started < 5


@pytest.mark.parametrize("pattern", ["/" + "[" * 4095, "/{" + "," * 4094, "/" + "[^" * 2047, "/" + "[]" * 2047])
def test_a_pattern_is_checked_in_linear_time(pattern: str) -> None:
    started = time.process_time()
    for _ in range(100):
        check_pattern(pattern)

    assert time.process_time() - started < 0.5


def test_stars_that_mean_nothing_more_are_no_burden(tree: Path) -> None:
    assert found(tree, "**/" * 1000 + "b.log") == ["x/y/b.log"]


def test_directories_may_be_deeper_than_the_stack(tree: Path) -> None:
    deep = Path(*["d"] * 200, "deep.log")
    (tree / deep.parent).mkdir(parents=True)
    (tree / deep).write_text("line\n")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert found(tree, "**/deep.log") == [str(deep)]
    finally:
        sys.setrecursionlimit(limit)


def test_links_back_to_their_directory_do_not_multiply(tree: Path) -> None:
    """Two links make 4096 paths for twelve parts of a glob, and twice as many for each further one."""
    for name in ("one", "two"):
        (tree / "x" / name).symlink_to(tree / "x")
    scan = Globs([f"{tree}/x/{'*/' * 12}a.log"], ()).scan()

    assert 0 < len(scan.files) <= 2000
    assert all("more than 1000 links lead to this directory" in problem for problem in scan.problems.values())
    assert scan.problems


def test_the_same_directory_is_found_by_each_of_a_few_links(tree: Path) -> None:
    (tree / "current").symlink_to(tree / "x")

    assert found(tree, "*/a.log") == ["current/a.log", "x/a.log"]
