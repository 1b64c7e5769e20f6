"""Tables for people."""

from __future__ import annotations

import io

import pytest

from shipper.supervise.show import show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_cuts_no_id_that_must_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    show([("credentials", [("es-3f9c0a7be2d1-of-east",)])], terminal)

    assert "es-3f9c0a7be2d1-of-east" in "".join(terminal.getvalue().split())
