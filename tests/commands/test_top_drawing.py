"""What `shipper top` draws of a view."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from shipper.commands.top.drawing import lines
from shipper.status import view
from shipper.status.rates import Rates, sample
from shipper.status.view import View
from tests.examples import examples
from tests.status.documents import EDGE, PRINCIPAL, SERVED, later

EDGES: dict[str, Any] = {"edges": [EDGE, {**EDGE, "name": "rom", "connected_seconds": None}], "principals": [PRINCIPAL]}
NOW = later(**EDGES)
FULL = view.of(NOW, Rates(sample(NOW, 10.0), sample(SERVED, 5.0)))


def drawn(seen: View, width: int = 120) -> list[str]:
    return [line.plain for line in lines(seen, width)]


def below(title: str, seen: View = FULL, width: int = 120) -> list[str]:
    """The lines of a section."""
    found = drawn(seen, width)
    first = next(number for number, line in enumerate(found) if line.startswith(title))
    return [line.strip() for line in found[first + 1 : [*found, ""].index("", first)]]


def test_no_line_is_wider_than_the_terminal_but_commands():
    for width in [20, 40, 80, 120, 200]:
        for line in lines(FULL, width):
            assert cell_len(line.plain) <= width or line.plain.strip().startswith("shipper order "), line.plain


@pytest.mark.parametrize("width", [20, 80])
def test_each_command_is_one_line_that_can_be_copied(width: int):
    remedies = [*FULL.waits[0].remedies, *FULL.outputs[0].remedies, *FULL.letters.remedies]
    found = [line.strip() for line in drawn(FULL, width)]

    assert len(remedies) == 4
    assert [remedy.command for remedy in remedies if remedy.command not in found] == []


def test_a_credential_that_nothing_uses_any_more_may_go():
    rows = [line.split(maxsplit=2) for line in below("credentials")]
    said = {id: " ".join(words.split()) for id, _, words in rows}

    assert said["es-3f9c0a7be2d1"] == "needed by revision 6 on main"
    assert said["es-81d04c5f6a77"] == "in use outputs.main"
    assert said["es-00aa00aa00aa"] == "may go"


@settings(max_examples=examples(0.5))
@given(text=st.text(max_size=700), width=st.integers(20, 200))
def test_text_of_others_has_no_power_over_the_terminal(text: str, width: int):
    document = {**SERVED, "message": text, "units": [{**unit, "message": text} for unit in SERVED["units"]]}
    found = lines(view.of(document), width)

    assert all(line.plain.isprintable() for line in found)
    assert all(cell_len(line.plain) <= width for line in found if not line.no_wrap)


def test_a_refused_credential_comes_with_a_command_below_its_output():
    seen = view.of({**SERVED, "draining": []})

    assert "shipper test credential /etc/shipper/policy.d --output main" in below("outputs", seen)
