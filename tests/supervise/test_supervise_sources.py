from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.policy import document
from shipper.sdk.errors import PolicyError
from shipper.supervise import reading
from shipper.supervise.sources import read_text, read_tree
from shipper.supervise.variables import imagined, replaced


def tree(tmp_path: Path, environment: dict[str, str] | None = None, **files: str) -> document.Node:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return read_tree([tmp_path], environment or {})


def problems(tmp_path: Path, **files: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        tree(tmp_path, **files)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def test_inputs_and_outputs_of_several_files_stand_side_by_side(tmp_path: Path) -> None:
    merged = tree(
        tmp_path, a="version: 1\ninputs: {x: {type: file}}\n", b="version: 1\noutputs: {y: {type: console}}\n"
    )

    assert document.plain(merged) == {
        "version": 1,
        "inputs": {"x": {"type": "file"}},
        "outputs": {"y": {"type": "console"}},
    }


def test_one_file_stays_as_it_is(tmp_path: Path) -> None:
    text = "version: 1\nprocessors: [{type: drop}]\ninputs: {x: {type: file}}\n"

    assert document.plain(tree(tmp_path, a=text)) == document.plain(document.read(text))


def test_a_files_own_processors_come_behind_those_of_its_inputs_and_of_no_other(tmp_path: Path) -> None:
    merged = tree(
        tmp_path,
        a="version: 1\nprocessors: [{type: own}]\ninputs: {x: {processors: [{type: first}]}, z: {type: file}}\n",
        b="version: 1\ninputs: {y: {type: file}}\n",
    )

    inputs = document.plain(merged)["inputs"]
    assert inputs["x"]["processors"] == [{"type": "first"}, {"type": "own"}]
    assert inputs["z"]["processors"] == [{"type": "own"}]
    assert "processors" not in inputs["y"]
    assert "processors" not in document.plain(merged)


def test_a_name_that_stands_twice_is_named_with_both_places(tmp_path: Path) -> None:
    found = problems(tmp_path, a="version: 1\noutputs:\n  main: {}\n", b="version: 1\noutputs:\n\n  main: {}\n")

    assert found == ["b.yaml:4:3: outputs.main: defined in two files (first in a.yaml:3:3); keep one"]


@pytest.mark.parametrize("key", ["queue", "drain", "dead_letters", "log_level"])
def test_what_belongs_to_the_whole_stands_in_one_file(tmp_path: Path, key: str) -> None:
    text = f"version: 1\n{key}: {{}}\n"

    assert "defined in two files" in problems(tmp_path, a=text, b=text)[0]


def test_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, a="version: 1\nversion: 1\n", b="- 1\n", c="x: ${ABSENT}\n")

    assert [line.split(":")[0] for line in found] == ["a.yaml", "b.yaml", "c.yaml"]


def test_a_missing_file_and_an_empty_directory_are_problems_that_name_them(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PolicyError, match=r"absent\.yaml:1:1: cannot be read: No such file"):
        read_tree([tmp_path / "absent.yaml"], {})
    with pytest.raises(PolicyError, match=r"there is no \*\.yaml"):
        read_tree([tmp_path / "empty"], {})


def test_a_directory_that_is_closed_is_a_problem_that_says_so(closed: Path) -> None:
    for path in (closed, closed / "policy.d", closed / "policy.yaml"):
        with pytest.raises(PolicyError) as caught:
            read_tree([path], {})
        assert [str(problem) for problem in caught.value.problems] == [f"{path}:1:1: cannot be read: Permission denied"]


def test_a_pipe_that_nobody_writes_to_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.05)
    os.mkfifo(tmp_path / "a.yaml")

    assert problems(tmp_path) == ["a.yaml:1:1: cannot be read: it is a pipe that nobody has closed within 0.05 s"]


def test_variables_are_replaced_in_values_and_not_in_keys(tmp_path: Path) -> None:
    found = tree(tmp_path, {"HOST": "es"}, a="version: 1\n${HOST}: ['http://${HOST}:9200', $$HOST]\n")

    assert document.plain(found) == {"version": 1, "${HOST}": ["http://es:9200", "$HOST"]}


def test_a_plain_value_of_a_variable_has_its_type_and_a_quoted_one_is_a_string(tmp_path: Path) -> None:
    found = tree(tmp_path, {"N": "4"}, a="plain: ${N}\nquoted: \"${N}\"\nsingle: '${N}'\nparts: ${N}0\n")

    assert document.plain(found) == {"plain": 4, "quoted": "4", "single": "4", "parts": 40}


def test_a_value_can_never_become_structure(tmp_path: Path) -> None:
    found = tree(tmp_path, {"X": "a\nb: {c: d}"}, a="x: ${X}\n")

    assert document.plain(found) == {"x": "a\nb: {c: d}"}


def test_the_forms_of_a_variable() -> None:
    for text, expected in [
        ("${A}", "1"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("$${A}", "${A}"),
        ("$A ^x$", "$A ^x$"),
        ("${A:?needed}", "1"),
        ("${LOOP}", "${A}"),
    ]:
        assert replaced(text, {"A": "1", "EMPTY": "", "LOOP": "${A}"}) == expected


def test_a_variable_that_is_not_set_or_not_well_written_is_an_error() -> None:
    for text in ["${NONE}", "${NONE:?}", "${}", "${A", "${A:x}", "${1}", "${A-B}"]:
        with pytest.raises(ValueError, match="variable"):
            replaced(text, {"A": "1"})


def test_the_authors_own_message_is_shown() -> None:
    with pytest.raises(ValueError, match="HOST is not set: name the cluster"):
        replaced("${HOST:?name the cluster}", {})


@given(st.text())
def test_any_text_with_its_dollars_doubled_comes_back(text: str) -> None:
    assert replaced(text.replace("$", "$$"), {}) == text


def test_variables_of_another_host_are_imagined_where_they_have_no_default() -> None:
    for text, expected in [
        ("${A}-${B}", "<A>-<B>"),
        ("${A:-a}${B:-}", "a"),
        ("${A:?why}", "<A>"),
        ("$$ $A", "$ $A"),
        ("none", "none"),
    ]:
        assert imagined(text, lambda name: f"<{name}>") == expected


@pytest.mark.parametrize("text", ["${", "${A B}", "${A:+b}"])
def test_a_malformed_variable_cannot_be_imagined(text: str) -> None:
    with pytest.raises(ValueError, match="a variable is written"):
        imagined(text, str)


def test_the_text_of_one_file_keeps_its_comments_and_variables(tmp_path: Path) -> None:
    text = "# a comment\nversion: 1\nqueue: {max_bytes: '${SIZE}'}\n"
    (tmp_path / "a.yaml").write_text(text)

    assert read_text([tmp_path]) == text


@pytest.mark.parametrize("value", ["8080", "true", "a b", "'", '"', "{}"])
def test_one_text_of_several_files_means_the_same_on_every_host(tmp_path: Path, value: str) -> None:
    environment = {"X": value}
    files = {
        "a": "version: 1\ninputs: {x: {type: file, plain: ['${X}', \"${X:-1}\"]}}\nprocessors: [{type: drop}]\n",
        "b": "outputs:\n  y:\n    type: console\n    any: ${X}\n    text: a${X}\n    dollar: $$\n"
        "    long: |\n      ${X}\n",
    }
    merged = tree(tmp_path, environment, **files)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "c.yaml").write_text(read_text([tmp_path / "a.yaml", tmp_path / "b.yaml"]))

    assert document.plain(read_tree([tmp_path / "one"], environment)) == document.plain(merged)


def test_a_text_of_files_with_mistakes_is_refused_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\noutputs: {x: }\noutputs: 1\n")

    with pytest.raises(PolicyError, match=r"a\.yaml:3:1: outputs: this key is written twice"):
        read_text([tmp_path])
