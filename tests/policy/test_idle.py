"""Parts of a policy without an effect: each is a warning at its place."""

from __future__ import annotations

from shipper.policy.document import read
from shipper.policy.idle import idle
from shipper.policy.policy import build
from shipper.sdk.codes import Code
from tests.fakes import REGISTRY

IN, OUT, MARK = "{type: scripted}", "{type: scripted}", "[{type: scripted}]"


def warned(text: str) -> list[tuple[str, int, int]]:
    """Returns path, line and column of each warning."""
    tree = read(f"version: 1\n{text}")
    found = idle(build(tree, REGISTRY), tree)
    assert {problem.code for problem in found} <= {Code.NO_EFFECT}
    return [(problem.path, problem.line, problem.column) for problem in found]


def test_what_has_an_effect_is_not_told() -> None:
    for text in [
        "",
        f"inputs: {{a: {IN}}}\noutputs: {{o: {OUT}}}\nprocessors: {MARK}\n",
        f"inputs: {{a: {{type: scripted, outputs: [o]}}, b: {IN}}}\noutputs: {{o: {OUT}, p: {OUT}}}\n",
        "drain: {deadline: 4h, on_deadline: drop}\n",
        "drain: {on_deadline: hold}\n",
    ]:
        assert warned(text) == []


def test_an_output_to_which_no_input_sends_is_told_at_its_name() -> None:
    text = f"inputs:\n  a: {{type: scripted, outputs: [o]}}\noutputs:\n  o: {OUT}\n  spare: {OUT}\n"

    assert warned(text) == [("outputs.spare", 6, 3)]


def test_an_input_without_an_output_is_told_at_its_list() -> None:
    text = f"inputs:\n  a: {IN}\n  b: {{type: scripted, outputs: []}}\noutputs: {{o: {OUT}}}\n"

    assert warned(text) == [("inputs.b.outputs", 4, 23)]


def test_inputs_without_any_output_are_told_once() -> None:
    assert warned(f"inputs: {{a: {IN}, b: {IN}}}\n") == [("inputs", 2, 1)]


def test_outputs_of_a_host_that_is_emptied_are_not_told() -> None:
    assert warned(f"outputs: {{o: {OUT}, p: {OUT}}}\n") == []


def test_processors_that_no_event_reaches_are_told() -> None:
    keyed = f"inputs: {{s: {{type: state}}}}\noutputs: {{o: {{type: shelf, processors: {MARK}}}}}\n"

    assert warned(f"processors: {MARK}\n") == [("processors", 2, 1)]
    assert warned(f"{keyed}processors: {MARK}\n") == [("processors", 4, 1), ("outputs.o.processors", 3, 28)]


def test_what_is_done_at_a_deadline_that_is_never_is_told() -> None:
    assert warned("drain: {on_deadline: drop}\n") == [("drain.on_deadline", 2, 9)]
