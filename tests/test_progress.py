"""How far a campaign is, on a terminal and in a file."""

from __future__ import annotations

from io import StringIO

import pytest

from tests.progress import Progress


def test_it_is_a_line_every_minute_that_is_rewritten_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.progress.EVERY_SECONDS", 0.0)
    file, terminal = StringIO(), StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for stream in (file, terminal):
        with Progress(lambda: "7 worlds", stream) as merged:
            merged()
            merged()

    assert file.getvalue().count("7 worlds") == file.getvalue().count("\n") == 2
    assert terminal.getvalue().count("\r") == 3
    assert "\n" not in terminal.getvalue()


def test_it_keeps_silent_within_a_minute() -> None:
    file = StringIO()
    Progress(lambda: "7 worlds", file)()

    assert file.getvalue() == ""
