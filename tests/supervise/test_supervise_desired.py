from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from shipper.plugin import Input
from shipper.policy import document
from shipper.policy.registry import Registry
from shipper.sdk.errors import PolicyError
from shipper.supervise.desired import Desired, ending

POLICY = """version: 1
outputs:
  main: {{type: elasticsearch, hosts: ["https://127.0.0.1:9200"], tls: {{ca: {ca}}}}}
"""


def test_a_certificate_that_is_not_there_yet_is_watched(tmp_path: Path) -> None:
    policy, ca = tmp_path / "policy.yaml", tmp_path / "certificates" / "ca.pem"
    policy.write_text(POLICY.format(ca=ca))
    desired = Desired([policy], {}, Registry.installed())

    with pytest.raises(PolicyError, match="cannot read this file"):
        desired.read({})

    assert desired.watched == {policy, ca}


class Radio(Input, frozen=True, kw_only=True):
    """An input of a stranger, with a word of its own for its end."""

    ending: ClassVar[Mapping[str, bool | int | str]] = {"until": "silence"}

    until: str = "never"


def test_an_input_ends_by_the_settings_that_it_names_itself() -> None:
    registry = Registry({"inputs": {"radio": Radio, "plain": Input}})
    tree = document.read(
        "inputs: {a: {type: radio, until: noon}, b: {type: plain}, c: {type: unknown}, d: [], e: {type: [radio]}}"
    )

    assert document.plain(ending(tree, registry)) == {
        "inputs": {
            "a": {"type": "radio", "until": "silence"},
            "b": {"type": "plain"},
            "c": {"type": "unknown"},
            "d": [],
            "e": {"type": ["radio"]},
        }
    }


@pytest.mark.parametrize("text", ["version: 1", "inputs: []", "inputs: {}", "[]"])
def test_without_inputs_there_is_nothing_to_end(text: str) -> None:
    tree = document.read(text)

    assert ending(tree, Registry({})) == tree
