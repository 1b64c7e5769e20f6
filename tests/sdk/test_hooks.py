"""A public name that is nearly that of a hook is refused when its class is defined, since nobody would call it."""

from __future__ import annotations

from typing import Any

import pytest

from shipper.plugin import Input, Output, Processor, Sender, Source, Stage
from shipper.sdk.errors import PluginFault
from shipper.sdk.hooks import is_near


@pytest.mark.parametrize(
    ("name", "hook", "near"),
    [
        ("quisece", "quiesce", True),
        ("figure", "figures", True),
        ("forgetEdge", "forget_edge", True),
        ("forget_edges", "forget_edge", True),
        ("chang", "change", True),
        ("sned", "send", True),
        ("end", "send", False),
        ("range", "change", False),
        ("answer", "answered", False),
    ],
)
def test_a_name_is_near_if_one_letter_differs_or_two_have_changed_places(name: str, hook: str, near: bool) -> None:
    assert is_near(name, hook) == near


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (Source, "quisece", "quiesce"),
        (Sender, "endings", "ending"),
        (Stage, "roll_back", "rollback"),
        (Input, "awaited", None),
        (Input, "identify", "identity"),
        (Input, "gives_sate", "gives_state"),
        (Processor, "named_output", "named_outputs"),
        (Output, "warning", "warnings"),
        (Source, "_figure", None),
    ],
)
def test_a_class_with_a_typo_is_refused_in_a_sentence_that_says_what_was_meant(
    base: type, name: str, meant: str | None
) -> None:
    def define() -> type:
        return type(base)("Tail", (base,), {name: lambda self: None, "__module__": "theirs"})

    if meant is None:
        assert define().__name__ == "Tail"
        return
    with pytest.raises(PluginFault) as raised:
        define()

    said = f"theirs.Tail has `{name}`, which is never called: `{meant}` of {base.__name__} was meant, "
    assert str(raised.value) == said + "or it needs another name"


def test_a_typo_of_a_class_beside_the_base_is_found_too() -> None:
    class Mixin:
        def adoptd(self, owners: Any) -> None:
            """Meant to be called."""

    with pytest.raises(PluginFault, match=r"Tail has `adoptd`, which is never called: `adopted` of Source"):

        class Tail(Mixin, Source):
            pass


def test_an_option_of_a_policy_may_have_any_name() -> None:
    class File(Output, frozen=True):
        path: str = ""

    assert "paths" in dir(Output)
    assert File(path="x").path == "x"
