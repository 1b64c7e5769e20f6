"""What `shipper top` draws of a view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from shipper.commands.top.drawing import lines
from shipper.status import view
from shipper.status.rates import Rates, sample
from shipper.status.view import Letters, View
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


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_but_commands(width: int):
    for line in lines(FULL, width):
        assert cell_len(line.plain) <= width or line.plain.strip().startswith("shipper order "), line.plain


@pytest.mark.parametrize("width", [20, 80])
def test_each_command_is_one_line_that_can_be_copied(width: int):
    remedies = [*FULL.waits[0].remedies, *FULL.outputs[0].remedies, *FULL.letters.remedies]
    found = [line.strip() for line in drawn(FULL, width)]

    assert len(remedies) == 8
    assert [remedy.command for remedy in remedies if remedy.command not in found] == []


def test_an_input_has_its_rate_and_how_far_behind_it_is():
    assert below("inputs")[0].split() == ["access", "file", "HEALTHY", "100", "21,500", "117.2KiB", "(3.0", "s)"]


def test_an_output_has_its_answers_by_status_with_their_rates():
    assert below("outputs")[:3] == [
        "main elasticsearch  DEGRADED       8.0      9,040     100 ms  held",
        "401 from 127.0.0.1:9200, events held",
        "200 90 (+2.0/s), 401 8, 503 5 (+1.0/s), timeout 2, duplicates 1, dead letters 14, retries 4",
    ]


def test_each_revision_is_a_bar_with_what_it_waits_for():
    assert below("revisions") == [
        "8  ● received ╍╍╍╍╍ ○ active ╍╍╍╍╍ ○ drained",
        "7  ● received ━━━━━ ● active ╍╍╍╍╍ ○ drained  runs; waits for 772 events",
        "6  ● received ━━━━━ ● active ╍╍╍╍╍ ○ drained",
        "5  ● received ━━━━━ ● active ━━━━━ ● drained",
    ]


def test_a_credential_that_nothing_uses_any_more_may_go():
    rows = [line.split(maxsplit=2) for line in below("credentials")]
    said = {id: " ".join(words.split()) for id, _, words in rows}

    assert said["es-3f9c0a7be2d1"] == "needed by revision 6 on main"
    assert said["es-81d04c5f6a77"] == "in use outputs.main"
    assert said["es-00aa00aa00aa"] == "may go"


def test_what_does_not_fit_beside_a_row_stands_below_it():
    assert below("relays to", width=80) == [
        "up  principal-1:6789  not connected",
        "3 events and 1 key unconfirmed, oldest 9.0 s",
        "connection refused",
    ]


def test_the_queue_shows_how_full_it_is():
    (queue,) = (line for line in drawn(FULL) if line.startswith("queue"))

    assert "██████████░░░░░░░░░░ 50% of 1GiB  900 events, 512MiB, oldest 6 min" in queue


def test_a_shipper_that_does_not_run_has_a_line():
    assert drawn(View(state="STOPPED", message="not running", code="")) == ["shipper STOPPED not running"]


def test_sections_of_which_there_is_nothing_to_say_are_left_out():
    titles = {
        line.split("  ")[0] for line in drawn(replace(FULL, letters=Letters(), edges=(), waits=())) if line[:1] > " "
    }

    assert titles.isdisjoint({"dead letters", "edges", "draining"})
    assert {"inputs", "outputs", "revisions"} <= titles


@settings(max_examples=50)
@given(text=st.text(max_size=700), width=st.integers(20, 200))
def test_text_of_others_has_no_power_over_the_terminal(text: str, width: int):
    document = {**SERVED, "message": text, "units": [{**unit, "message": text} for unit in SERVED["units"]]}
    found = lines(view.of(document), width)

    assert all(line.plain.isprintable() for line in found)
    assert all(cell_len(line.plain) <= width for line in found if not line.no_wrap)


def test_a_refused_credential_comes_with_a_command_below_its_output():
    seen = view.of({**SERVED, "draining": []})

    assert "shipper test credential policy.yaml --output main" in below("outputs", seen)
