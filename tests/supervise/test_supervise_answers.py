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
from shipper.values import Counts, Revision, Revisions
from tests.supervise.said import ready


def at(number: int) -> Revision:
    return Revision(0, number)


def told(answers: Any) -> list[tuple[str, int, str]]:
    return [(one.version, one.revision.number, one.stage) for one in answers if isinstance(one, Answer)]


def wanted(version: str, level: str = "info", id: str = "es-1") -> Wanted:
    tree = document.read(f"version: 1\nlog_level: {level}\noutputs: {{main: {{credential: {id}}}}}\n", file="p.yaml")
    kept = Kept(id, {"api_key": f"id:{id}"}, [f"file:/{id}"], ["outputs.main"])
    return Wanted(tree, document.write(tree), document.write(tree), {id: kept}, version=version)


def ack(number: int, stage: Any, ledger: Counts | None = None) -> Ack:
    return Ack(epoch=0, revision=number, sha256="", stage=stage, change="live", ledger=ledger)


def drained(number: int, delivered: int) -> Ack:
    return ack(number, "drained", Counts(delivered, delivered))


def counted(effects: Any) -> list[int | None]:
    """Returns the delivered events of the answers `drained`."""
    answers = [one for one in effects if isinstance(one, Answer) and one.stage == "drained"]
    return [one.ledger.delivered if one.ledger is not None else None for one in answers]


def locals_of(effects: Any) -> list[str]:
    return [one.local for one in effects if isinstance(one, Answer)]


def running(*versions: Wanted) -> Conversation:
    """Returns a conversation with a sidecar that was given these."""
    conversation = Conversation(Ledger(), fresh=True)
    for one in versions:
        list(conversation.wants(one))
    heard(conversation, ready())
    return conversation


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
    heard(conversation, ready(), ack(1, "active"), drained(1, 5))

    answers = list(conversation.wants(wanted("v8")))
    assert counted(answers) == [5]
    assert told(answers) == [("v8", 1, "active"), ("v8", 1, "drained")]
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


def test_a_drained_version_has_the_ledger_of_the_first_revision_that_drained_it() -> None:
    conversation = running(wanted("v7"))

    assert counted(heard(conversation, drained(1, 5))) == [5]
    list(conversation.wants(wanted("v7", id="es-2")))
    assert counted(heard(conversation, drained(2, 9))) == [None]
    list(conversation.wants(wanted("v8", level="debug")))
    list(conversation.wants(wanted("v8", level="debug", id="es-3")))
    assert counted(heard(conversation, drained(4, 30))) == [30]


def test_the_ledger_that_a_restarted_sidecar_does_not_say_is_unknown_until_it_repeats_the_ack() -> None:
    first = running(wanted("v7"))
    again = Conversation(first.ledger, fresh=False)

    assert counted(heard(again, ready(Revisions(at(1), at(1), at(1))))) == [None]
    assert counted(heard(again, drained(1, 5))) == [5]


def test_the_stage_of_a_rotation_stands_apart_also_after_a_restart() -> None:
    conversation = running(wanted("v7"), wanted("v7", id="es-2"))

    assert locals_of(heard(conversation, ack(1, "drained"), ack(2, "received"))) == ["", "received 2"]
    again = Conversation(conversation.ledger, fresh=False)
    effects = heard(again, ready(Revisions(at(2), at(2), at(1))))

    assert told(effects) == [("v7", 1, "received"), ("v7", 1, "active"), ("v7", 1, "drained")]
    assert locals_of(effects) == ["received 2", "active 2", "active 2"]


def test_a_refused_rotation_refuses_no_version() -> None:
    conversation = running(wanted("v7"), wanted("v7", id="es-2"))
    heard(conversation, ack(1, "active"))
    effects = heard(conversation, Nack(epoch=0, revision=2, sha256="", reason="invalid"))

    assert told(effects) == [("v7", 1, "active")]
    assert locals_of(effects) == ["refused 2"]


def test_the_first_revision_of_a_version_is_kept_over_its_rotations_and_over_restarts() -> None:
    ledger = running(wanted("v7"), wanted("v7", id="es-2"), wanted("v7", id="es-3")).ledger
    assert (ledger.first, ledger.at) == (at(1), at(3))

    again = Conversation(ledger, fresh=False)
    list(again.wants(wanted("v7", id="es-4")))
    assert (ledger.first, ledger.at) == (at(1), at(4))
    list(again.wants(wanted("v8", id="es-4")))
    assert ledger.first == at(4)


def test_a_rotation_whose_number_is_taken_begins_its_version_anew() -> None:
    """What the sidecar has drained below its new number may be the policy of another supervisor."""
    ledger = running(wanted("v7"), wanted("v7", id="es-2")).ledger
    again = Conversation(ledger, fresh=False)

    assert told(heard(again, ready(Revisions(at(41), at(41), at(41))))) == []
    assert told(heard(again, ack(42, "drained"))) == [("v7", 42, "drained")]
    assert (ledger.first, ledger.at) == (at(42), at(42))


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


def test_a_rotation_that_is_refused_before_its_version_has_reached_anything_is_not_told() -> None:
    versions = Versions()
    for number in (1, 2):
        assert list(versions.carried("v7", at(number))) == []

    assert list(versions.refused(at(2), "invalid")) == []
    assert told(versions.stage("received", at(1))) == [("v7", 1, "received")]
