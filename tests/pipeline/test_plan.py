"""Two plans compared: none, live, barrier."""

from __future__ import annotations

import pytest

from shipper.pipeline.plan import Plan, _host_and_port, digest, make
from shipper.sdk.errors import PolicyError
from shipper.values import Revision
from tests.fakes import REGISTRY

BASE = """version: 1
inputs:
  in: {type: scripted, processors: [{type: scripted, mark: own}]}
processors: [{type: scripted, mark: common}]
outputs:
  main: {type: scripted, credential: k1}
  other: {type: scripted, to: other}
"""


def plan(text: str = BASE) -> Plan:
    return make(Revision(0, 1), text, REGISTRY)


def change(text: str) -> str:
    old = plan()
    return plan(text).change(old.meaning, [key for output in old.outputs.values() for key in output.keys])


def test_the_class_of_a_change() -> None:
    for text, expected in [
        (BASE + "# a comment\n", "none"),
        (BASE.replace("credential: k1", "credential: k1, to: main"), "none"),
        (BASE + "log_level: debug\n", "live"),
        (BASE.replace("credential: k1", "credential: k1, workers: 5"), "live"),
        (BASE.replace("credential: k1", "credential: k1, flush: 1s"), "live"),
        (BASE.replace("credential: k1", "credential: k1, live_setting: 5"), "live"),
        (BASE.replace("mark: common", "mark: another"), "live"),
        (BASE + "  third: {type: scripted}\n", "live"),
        (BASE.replace("to: other}", "to: other, processors: [{type: scripted}]}"), "live"),
        (BASE.replace("k1", "k2"), "barrier"),
        (BASE.replace("to: other", "to: elsewhere"), "barrier"),
        (BASE.replace("  other: {type: scripted, to: other}\n", ""), "barrier"),
        (BASE.replace("  main:", "  renamed:"), "barrier"),
    ]:
        assert change(text) == expected


def test_the_first_policy_is_live() -> None:
    assert plan().change(None, []) == "live"


def test_an_input_has_its_own_processors_first_and_all_outputs_by_default() -> None:
    made = plan().inputs["in"]

    assert [processor.mark for processor in made.processors] == ["own", "common"]  # type: ignore[attr-defined]
    assert made.outputs == ("main", "other")


def test_an_input_keeps_its_way_if_nothing_behind_it_changes() -> None:
    for text, is_kept in [
        (BASE + "log_level: debug\n", True),
        (BASE + "  third: {type: scripted}\n", False),
        (BASE.replace("credential: k1", "credential: k1, workers: 5"), True),
        (BASE.replace("mark: common", "mark: another"), False),
        (BASE.replace("k1", "k2"), False),
        (BASE.replace("to: other}", "to: other, processors: [{type: scripted}]}"), False),
    ]:
        assert plan(text).keeps_way("in", plan()) is is_kept


def test_every_credential_is_known_with_the_place_that_names_it() -> None:
    text = BASE.replace("{type: scripted, processors", "{type: scripted, credentials: [k1, w1], processors")

    assert dict(plan(text).credentials) == {
        "k1": ("outputs.main.credential", 6, 38),
        "w1": ("inputs.in.credentials[1]", 3, 42),
    }


def test_a_credential_is_found_by_its_type_at_any_depth_with_its_place() -> None:
    text = BASE + "  nested: {type: nested, sasl: {secret: w1}, tls: [{kind: own, client: w2}]}\n"

    assert plan(text).credentials["w1"] == ("outputs.nested.sasl.secret", 8, 41)
    assert plan(text).credentials["w2"] == ("outputs.nested.tls[0].client", 8, 72)


def test_what_is_stored_is_the_text_and_its_digest() -> None:
    stored = plan().stored("live")

    assert (stored.policy, stored.sha256, stored.credentials) == (BASE, digest(BASE), ["k1"])


def test_a_bad_policy_names_its_problems() -> None:
    with pytest.raises(PolicyError) as raised:
        plan(BASE + "  bad: {type: nothing}\n")

    assert raised.value.problems[0].path == "outputs.bad.type"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://es-1", "https://ES-1:443/"),
        ("http://es-1:80", "http://es-1./path"),
        ("https://es-1:9200", "http://es-1:9200"),
        ("kafka-1:9092", "kafka-1:9092"),
    ],
)
def test_a_host_is_one_contact_however_it_is_written(one: str, other: str) -> None:
    assert len({_host_and_port(one), _host_and_port(other), _host_and_port("https://es-2:443")}) == 2
