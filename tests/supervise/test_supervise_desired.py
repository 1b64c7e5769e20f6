from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from shipper.plugin import Input
from shipper.policy import document
from shipper.policy.registry import Registry
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import PolicyError
from shipper.supervise.desired import Desired, Given, ending
from shipper.supervise.secrets import Reference
from shipper.supervise.sources import PolicyFiles, PolicyText

POLICY = """version: 1
outputs:
  main: {{type: elasticsearch, hosts: ["https://127.0.0.1:9200"], tls: {{ca: {ca}}}}}
"""


def test_a_certificate_that_is_not_there_yet_is_watched(tmp_path: Path) -> None:
    policy, ca = tmp_path / "policy.yaml", tmp_path / "certificates" / "ca.pem"
    policy.write_text(POLICY.format(ca=ca))
    desired = Desired(PolicyFiles((policy,)), {}, Registry.installed())

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


SHARED = """version: 1
outputs:
  main: {type: elasticsearch, hosts: ["https://127.0.0.1:9200"], credential: {env: SHARED}}
  own: {type: elasticsearch, hosts: ["https://127.0.0.1:9201"], credential: {env: OWN}}
"""


def shared(reference: Reference) -> Given | None:
    return Given("es-7", b"k1:hunter2") if reference.source.name == "SHARED" else None


def of_text(text: str, environment: Mapping[str, str]) -> Desired:
    return Desired(PolicyText(text, "version 7"), environment, Registry.installed(), given=shared)


def test_a_secret_of_the_source_keeps_the_id_that_the_source_has_given_to_it() -> None:
    known = {Credential.parse({"api_key": "k1:hunter2"}).canonical(): "es-other"}

    wanted = of_text(SHARED, {"OWN": "k2:hunter3"}).read(known)

    assert wanted.credentials["es-7"].shared
    assert wanted.credentials["es-7"].fields == {"api_key": "k1:hunter2"}
    assert [kept.shared for id, kept in wanted.credentials.items() if id != "es-7"] == [False]
    assert "es-7" in wanted.text
    assert "es-other" not in wanted.text


def test_a_secret_of_this_host_with_the_content_of_a_shared_one_shares_its_id() -> None:
    wanted = of_text(SHARED, {"OWN": "k1:hunter2"}).read({})

    assert list(wanted.credentials) == ["es-7"]
    assert wanted.credentials["es-7"].sources == ["env:OWN", "env:SHARED"]


def test_a_mistake_in_a_text_has_its_place_there() -> None:
    with pytest.raises(PolicyError) as caught:
        of_text(SHARED.replace("https://127.0.0.1:9200", "https://${NO_SUCH}:1"), {"OWN": "k:s"}).read({})

    assert str(caught.value).startswith("version 7:3:")
    assert "NO_SUCH is not set" in str(caught.value)
