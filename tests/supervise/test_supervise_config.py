"""The supervisor's own settings: every mistake is named by its place."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from shipper.sdk.errors import OptionError, Problem
from shipper.supervise import reading
from shipper.supervise.config import Config, OnRelease, read_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def complaint(file: Path, text: str, environment: dict[str, str] | None = None) -> str:
    file.write_text(text)
    with pytest.raises(OptionError) as caught:
        read_config(file, environment or {}, runnable=True)
    return str(caught.value).replace(str(file), "c.yaml")


def test_a_mistake_is_named_by_its_place_and_the_remedy(file: Path) -> None:
    for text, expected in [
        ("htpp: x\n", 'c.yaml:1:1: htpp: unknown key "htpp" (did you mean "http"?)'),
        ("http: 6780\n", "c.yaml:1:7: http: expected string, got integer; quote it"),
        ("http: localhost\n", "c.yaml:1:7: http: the address 'localhost' has no port"),
        ("http: 127.0.0.1:70000\n", "c.yaml:1:7: http: the address '127.0.0.1:70000': a port is at most 65535"),
        (
            "otlp: collector:4318\n",
            "c.yaml:1:7: otlp: a receiver of OTLP is a URL of HTTP, such as http://127.0.0.1:4318",
        ),
        ("http: a\nhttp: b\n", "c.yaml:2:1: http: this key is written twice"),
        (
            "on_release:\n  command: nope\n",
            "c.yaml:2:12: on_release.command: expected list, got string; write it",
        ),
        ("on_release: {command: []}\n", "c.yaml:1:23: on_release.command: expected list of length >= 1"),
        ("on_release: {timeout: 3s}\n", 'c.yaml:1:13: on_release.command: the key "command" is missing'),
        ("on_release: {command: [sh], timeout: 3}\n", "c.yaml:1:38: on_release.timeout: expected a duration"),
        ("state_key: short\n", "c.yaml:1:12: state_key: write a reference to the key: {file: PATH} or {systemd: NAME}"),
        (
            "state_key: {env: X}\n",
            "c.yaml:1:12: state_key: write a reference to the key: {file: PATH} or {systemd: NAME}",
        ),
        ("state_key: [{file: nosuch}]\n", "c.yaml:1:13: state_key[0]: "),
        ("- x\n", "c.yaml:1:1: expected a mapping, got a list"),
    ]:
        assert complaint(file, text).startswith(expected)


def test_all_mistakes_are_named_at_once_and_no_key_is_quoted(file: Path) -> None:
    text = complaint(file, "htpp: x\nstate_key: c2VjcmV0\nsidecar: nope\n")

    assert [place in text for place in ("c.yaml:1:1", "c.yaml:2:12", "c.yaml:3:10")] == [True] * 3
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize("program", ["nope", "/no/such/program"])
def test_a_command_that_does_not_exist_is_refused_before_anything_starts(file: Path, program: str) -> None:
    text = complaint(file, f"on_release: {{command: [{program}]}}\n", {"PATH": "/bin"})

    assert text.startswith(f"c.yaml:1:23: on_release.command: {program} is ")


def test_what_is_right_is_read(file: Path) -> None:
    (file.parent / "key").write_bytes(base64.b64encode(b"k" * 32))
    file.write_text(
        "on_release: {command: [sh, -c, 'exit 0'], timeout: 5s}\nhttp: 127.0.0.1:0\notlp: http://collector:4318\n"
        "state_key: {file: key}\n"
    )
    config = read_config(file, {"PATH": "/bin:/usr/bin"}, runnable=True)

    assert config.on_release is not None
    assert config.on_release.command == ("sh", "-c", "exit 0")
    assert float(config.on_release.timeout) == 5
    assert (config.http, config.state_keys) == ("127.0.0.1:0", (b"k" * 32,))
    assert config.launch(file.parent)[-4:] == ["--http", "127.0.0.1:0", "--otlp", "http://collector:4318"]
    assert isinstance(config.on_release, OnRelease)


@pytest.mark.parametrize(("mode", "places"), [(0o600, []), (0o644, [("state_key", 1, 12)])])
def test_a_state_key_that_others_can_read_is_told_with_its_place(
    file: Path, mode: int, places: list[tuple[str, int, int]]
) -> None:
    (file.parent / "key").write_bytes(base64.b64encode(b"k" * 32))
    (file.parent / "key").chmod(mode)
    file.write_text("state_key: {file: key}\n")
    told: list[Problem] = []
    read_config(file, {}, warn=told.append)

    assert [(problem.path, problem.line, problem.column) for problem in told] == places
    assert all("mode 0644" in problem.message for problem in told)


def test_an_empty_file_changes_nothing(file: Path) -> None:
    file.write_text("# nothing\n")

    assert read_config(file, {}) == Config()


def test_a_pipe_that_nobody_writes_to_is_not_waited_for_without_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.05)
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)

    with pytest.raises(OptionError, match="pipe: it is a pipe that nobody has closed"):
        read_config(pipe, {})
    assert complaint(file, f"state_key: {{file: {pipe}}}").endswith("a pipe that nobody has closed within 0.05 s")
