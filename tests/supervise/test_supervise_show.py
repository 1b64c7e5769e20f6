"""Tables for people."""

from __future__ import annotations

import io
import re

import pytest

from shipper.supervise.show import of_letters, of_status, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["[b]bold[/b]", "/logs/[/b].log", "failed to parse field [age] of type [long]"])
def test_nothing_in_a_table_is_markup(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    show([(f"shipper: {text}", [("units", text)])], terminal)

    assert terminal.getvalue().count(text) == 2


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_table_without_rows_has_its_title(stream: io.StringIO) -> None:
    show(of_letters([]), stream)

    assert re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()) == "dead letters: none\n"


@pytest.mark.parametrize(
    ("in_use", "current", "words"), [(True, True, "in use"), (True, False, "needed by a drain"), (False, True, "held")]
)
def test_during_a_drain_the_key_that_it_needs_is_named(in_use: bool, current: bool, words: str) -> None:
    key = {"id": "es-1", "name": "k", "released": False, "units": [], "sources": ["file"], "current": current}
    observed = {"credentials_in_use": ["es-1"] if in_use else []}
    supervisor = {"version": "1", "pid": 1}
    sidecar = {"state": "running", "pid": 2, "http": None}
    status = {"state": "HEALTHY", "message": "", "troubles": [], "supervisor": supervisor, "sidecar": sidecar}
    tables = dict(of_status({**status, "wanted": [0, 1], "observed": observed, "credentials": [key]}))

    assert tables["credentials"][0][2] == words


def test_a_narrow_terminal_cuts_no_id_that_must_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    show([("credentials", [("es-3f9c0a7be2d1-of-east",)])], terminal)

    assert "es-3f9c0a7be2d1-of-east" in "".join(terminal.getvalue().split())
