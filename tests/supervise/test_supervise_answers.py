"""What a source of policies hears of its versions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shipper.policy import document
from shipper.protocol.messages import Ack, Nack
from shipper.supervise.answers import MOST, Answer, Versions
from shipper.supervise.conversation import Conversation, Effect
from shipper.supervise.ledger import Kept, Ledger, Wanted
from shipper.values import Revision, Revisions
from tests.supervise.said import ready


def at(number: int) -> Revision:
    return Revision(0, number)


def told(answers: Any) -> list[tuple[str, int, str]]:
    return [(one.version, one.revision.number, one.stage) for one in answers if isinstance(one, Answer)]


def wanted(version: str, level: str = "info", id: str = "es-1") -> Wanted:
    tree = document.read(f"version: 1\nlog_level: {level}\noutputs: {{main: {{credential: {id}}}}}\n", file="p.yaml")
    kept = Kept(id, {"api_key": f"id:{id}"}, [f"file:/{id}"], ["outputs.main"])
    return Wanted(tree, document.write(tree), document.write(tree), {id: kept}, version=version)


def ack(number: int, stage: Any) -> Ack:
    return Ack(epoch=0, revision=number, sha256="", stage=stage, change="live")


def heard(conversation: Conversation, *messages: Any) -> list[Effect]:
    return [effect for message in messages for effect in conversation.received(message)]


def test_the_stages_of_a_revision_are_those_of_its_version() -> None:
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("v7")))
    effects = heard(conversation, ready(), ack(1, "received"), ack(1, "active"), ack(1, "drained"))

    assert told(effects) == [("v7", 1, "received"), ("v7", 1, "active"), ("v7", 1, "drained")]


def test_a_source_without_versions_hears_nothing() -> None:
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("")))

    assert told(heard(conversation, ready(), ack(1, "drained"))) == []


def test_a_version_that_means_the_same_is_answered_at_once_and_remembered() -> None:
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("v7")))
    heard(conversation, ready(), ack(1, "active"), ack(1, "drained"))

    assert told(conversation.wants(wanted("v8"))) == [("v8", 1, "active"), ("v8", 1, "drained")]
    assert conversation.ledger.version == "v8"


def test_a_rotated_secret_is_no_version_of_its_own() -> None:
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("v7")))
    heard(conversation, ready())
    list(conversation.wants(wanted("v7", id="es-2")))

    assert told(heard(conversation, ack(2, "drained"))) == [("v7", 1, "drained")]


def test_what_a_sidecar_of_another_supervisor_has_drained_is_no_answer() -> None:
    """A new state directory begins at 1, below what the sidecar knows."""
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("v7")))

    assert told(heard(conversation, ready(Revisions(at(41), at(41), at(41))))) == []
    assert told(heard(conversation, ack(42, "drained"))) == [("v7", 42, "drained")]


def test_after_a_restart_of_both_the_answers_come_again() -> None:
    first = Conversation(Ledger(), fresh=True)
    list(first.wants(wanted("v7")))
    again = Conversation(first.ledger, fresh=False)

    effects = heard(again, ready(Revisions(at(1), at(1), None)))

    assert told(effects) == [("v7", 1, "received"), ("v7", 1, "active")]


def test_a_refusal_says_why_unless_the_number_was_taken() -> None:
    conversation = Conversation(Ledger(), fresh=True)
    list(conversation.wants(wanted("v7")))
    stale = heard(conversation, ready(), Nack(epoch=0, revision=1, sha256="", reason="stale"))
    (effect,) = [
        one
        for one in heard(conversation, Nack(epoch=0, revision=2, sha256="", reason="invalid"))
        if isinstance(one, Answer)
    ]

    assert told(stale) == []
    assert (effect.version, effect.revision, effect.stage, effect.reason) == ("v7", at(2), "refused", "invalid")


@given(
    st.lists(st.tuples(st.sampled_from(["version", "rotation", "drained"]), st.integers(0, 5)), max_size=60),
)
def test_no_version_is_drained_before_a_revision_that_carries_it_or_a_newer_one(
    steps: list[tuple[str, int]],
) -> None:
    versions, number, drained = Versions(), 0, -1
    began: dict[str, int] = {}
    answers: list[Answer] = []
    for step, choice in steps:
        if step == "version":
            number += 1
            began[f"v{number}"] = number
            answers += versions.carried(f"v{number}", at(number))
        elif step == "rotation" and began:
            number += 1
            answers += versions.carried(list(began)[-1], at(number))
        elif step == "drained" and number:
            drained = max(drained, number - choice)
            answers += versions.stage("drained", at(number - choice))
        assert all(began[one.version] <= drained for one in answers)
    if began and number:
        assert [one.version for one in versions.stage("drained", at(number))] == [list(began)[-1]]


def test_of_a_flood_of_versions_the_newest_is_answered_for_all() -> None:
    versions = Versions()
    for number in range(1, 10 * MOST):
        assert not list(versions.carried(f"v{number}", at(number)))

    assert told(versions.stage("drained", at(10 * MOST)))[0][0] == f"v{10 * MOST - 1}"
    assert len(versions._began) <= MOST


def test_a_version_that_comes_again_is_answered_by_its_new_revision() -> None:
    versions = Versions()
    for number, version in ((1, "a"), (2, "b"), (3, "a")):
        list(versions.carried(version, at(number)))

    assert told(versions.stage("active", at(2))) == [("b", 2, "active")]
    assert told(versions.stage("active", at(3))) == [("a", 3, "active")]
