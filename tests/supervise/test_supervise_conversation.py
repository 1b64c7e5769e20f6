from __future__ import annotations

from typing import Any

import pytest

from shipper.policy import document
from shipper.protocol.messages import (
    Ack,
    Error,
    Nack,
    NackError,
    Observed,
    QueueFigures,
    Released,
    Result,
    Stopped,
    Unit,
)
from shipper.sdk.codes import Code
from shipper.supervise.conversation import Again, Conversation, Effect, Finish, Revoke, Save, Say, Send, Serving
from shipper.supervise.ledger import Kept, Ledger, Wanted
from shipper.values import DeadLetterFigures, Revision, Revisions
from tests.supervise.said import ready


def wanted(id: str = "es-1", extra: str = "", secret: str = "") -> Wanted:
    tree = document.read(f"version: 1\noutputs:\n  main:\n    hosts: [x]\n    credential: {id}\n{extra}", file="p.yaml")
    kept = Kept(id, {"api_key": secret or f"id:{id}"}, [f"file:/{id}"], ["outputs.main"])
    return Wanted(tree, document.write(tree), document.write(tree), {id: kept})


def observed(
    state: Any = "HEALTHY", *units: Unit, events: int = 0, active: Revision | None = None, letters: int = 0, **more: Any
) -> Observed:
    queue = QueueFigures(events=events, bytes=0, limit_bytes=1, oldest_seconds=0, disk_bytes=0)
    fixed: dict[str, Any] = {"credentials_in_use": (), "credentials_wanted": (), "draining": ()} | more
    return Observed(
        state=state,
        message="",
        revisions=Revisions(None, active, None),
        units=units,
        queue=queue,
        dead_letters=DeadLetterFigures(events=letters),
        **fixed,
    )


def ack(number: int, stage: Any) -> Ack:
    return Ack(epoch=0, revision=number, sha256="", stage=stage, change="live")


def nack(number: int, reason: Any, *errors: NackError) -> Nack:
    return Nack(epoch=0, revision=number, sha256="", reason=reason, errors=errors)


def talk(ledger: Ledger | None = None, *, fresh: bool = True, **more: Any) -> Conversation:
    return Conversation(ledger or Ledger(), fresh=fresh, **more)


def connected(**more: Any) -> Conversation:
    conversation = talk(**more)
    list(conversation.wants(wanted()))
    list(conversation.started())
    list(conversation.received(ready()))
    return conversation


def sent(effects: list[Effect]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def revocable(effects: list[Effect]) -> list[str]:
    return [effect.kept.id for effect in effects if isinstance(effect, Revoke)]


def said(effects: list[Effect]) -> list[str]:
    return [effect.what for effect in effects if isinstance(effect, Say)]


def test_a_new_credential_is_saved_before_the_policy_that_refers_to_it_is_sent() -> None:
    conversation = connected()

    effects = list(conversation.wants(wanted("es-2")))

    kinds = [type(effect) for effect in effects]
    assert kinds.index(Save) < kinds.index(Send)
    assert sent(effects)[0]["credentials"] == {"es-2": {"api_key": "id:es-2"}}
    assert sent(effects)[0]["revision"] == 2


def test_no_effect_shows_a_secret() -> None:
    effects = list(connected().wants(wanted("es-2")))
    assert "id:es-2" not in repr([effects, *wanted("es-2").credentials.values()])


def test_what_means_the_same_is_not_sent() -> None:
    assert sent(list(connected().wants(wanted()))) == []


def test_a_policy_that_came_before_the_sidecar_is_sent_when_it_is_ready() -> None:
    conversation = talk()
    assert sent(list(conversation.wants(wanted()))) == []
    assert [message["type"] for message in sent(list(conversation.started()))] == ["hello"]

    messages = sent(list(conversation.received(ready())))

    assert [(message["type"], message["revision"]) for message in messages] == [("policy", 1)]


def test_after_a_stop_was_asked_for_no_policy_is_sent() -> None:
    conversation = talk()
    list(conversation.wants(wanted()))
    list(conversation.started())
    conversation.stop()
    effects = list(conversation.received(ready()))

    assert "sent" not in said(effects)
    assert sent(effects) == []


def test_after_a_restart_of_the_sidecar_the_same_number_and_text_are_sent_again() -> None:
    conversation = connected()
    conversation.ended()
    list(conversation.started())

    at = Revision(0, 1)
    messages = sent(list(conversation.received(ready(Revisions(at, at, at), in_use=("es-1",), wants=("es-1",)))))

    assert [message["type"] for message in messages] == ["credentials", "policy"]
    assert messages[0]["credentials"] == {"es-1": {"api_key": "id:es-1"}}
    assert messages[1]["revision"] == 1


def test_after_a_restart_of_the_supervisor_the_number_goes_on() -> None:
    first = connected()
    ledger = first.ledger
    again = talk(ledger, fresh=False)
    assert Save() not in list(again.wants(wanted()))

    list(again.wants(wanted("es-2")))

    assert again.ledger.at == (0, 2)


def test_a_new_state_directory_continues_above_what_the_sidecar_knows() -> None:
    conversation = talk()
    list(conversation.wants(wanted()))

    messages = sent(list(conversation.received(ready(Revisions(Revision(2, 41), Revision(2, 40), None)))))

    assert (messages[-1]["epoch"], messages[-1]["revision"]) == (2, 42)


def test_a_new_state_directory_never_uses_the_very_number_that_the_sidecar_knows() -> None:
    conversation = talk()
    list(conversation.wants(wanted()))

    messages = sent(list(conversation.received(ready(Revisions(Revision(0, 1), Revision(0, 1), None)))))

    assert messages[-1]["revision"] == 2


def test_the_hello_carries_state_keys_only_where_they_are_configured() -> None:
    assert "state_keys" not in sent(list(talk().started()))[0]

    (hello,) = sent(list(talk(state_keys=(b"k" * 32,)).started()))

    assert hello["state_keys"][0]["key"] == "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
    assert hello["state_keys"][0]["id"]


def test_a_credential_that_is_wanted_is_supplied_once_while_the_answer_is_on_its_way() -> None:
    conversation = connected(clock=lambda: 100.0)

    first = sent(list(conversation.received(observed(credentials_wanted=("es-1",)))))
    second = sent(list(conversation.received(observed(credentials_wanted=("es-1",)))))

    assert first == [{"type": "credentials", "credentials": {"es-1": {"api_key": "id:es-1"}}}]
    assert second == []


def test_a_wanted_credential_that_nobody_has_is_told_once() -> None:
    conversation = connected()
    effects = list(conversation.received(observed(credentials_wanted=("gone",))))

    assert "unknown" in said(effects)
    assert "unknown" not in said(list(conversation.received(observed(credentials_wanted=("gone",)))))


def test_a_released_credential_is_saved_as_such_before_on_release_runs_and_forgotten_after() -> None:
    conversation = connected()
    list(conversation.wants(wanted("es-2")))
    at = Revision(0, 2)

    effects = list(conversation.received(ready(Revisions(at, at, at), in_use=("es-2",))))

    kinds = [type(effect) for effect in effects]
    assert kinds.index(Save) < kinds.index(Revoke)
    assert conversation.ledger.kept["es-1"].released
    assert revocable(list(talk(conversation.ledger).begin())) == ["es-1"]
    list(conversation.forget("es-1"))
    assert list(conversation.ledger.kept) == ["es-2"]


def test_a_credential_that_was_replaced_before_the_sidecar_was_ready_is_revoked_when_the_next_one_is_active() -> None:
    conversation = talk()
    list(conversation.wants(wanted("es-1")))
    list(conversation.started())
    list(conversation.wants(wanted("es-2")))
    assert not revocable(list(conversation.received(ready())))
    assert not revocable(list(conversation.received(ack(2, "received"))))

    effects = list(conversation.received(ack(2, "active")))

    assert revocable(effects) == ["es-1"]


def test_a_credential_whose_policy_gave_way_in_the_outbox_is_revoked() -> None:
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    (policy,) = sent(list(conversation.wants(wanted("es-2"))))
    list(conversation.wants(wanted("es-3")))

    effects = list(conversation.unsent(policy))

    assert revocable(effects) == ["es-2"]


def test_what_an_order_set_free_is_revoked() -> None:
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    list(conversation.wants(wanted("es-2")))
    list(conversation.received(ack(2, "active")))

    effects = list(conversation.received(Result(id="order-1", status="SUCCESS", result={"released": ["es-1"]})))

    assert revocable(effects) == ["es-1"]


def test_a_policy_that_brings_back_a_released_secret_under_another_id_is_told() -> None:
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    list(conversation.wants(wanted("es-2")))
    list(conversation.received(Result(id="order-1", status="SUCCESS", result={"released": ["es-1"]})))

    assert "returned" in said(list(conversation.wants(wanted("es-3", secret="id:es-1"))))


def test_how_long_a_revision_took_is_counted_from_when_it_was_sent_to_this_sidecar() -> None:
    now = 0.0
    conversation = connected(clock=lambda: now)
    took: list[Any] = []
    for now in (0.096, 101.0):
        effects = list(conversation.received(ack(1, "drained")))
        took += [
            effect.fields["milliseconds"] for effect in effects if isinstance(effect, Say) and "stage" in effect.fields
        ]
        conversation.ended()
        now = 100.0
        list(conversation.received(ready()))

    assert took == [96, 1000]


def test_a_drain_that_ended_unheard_is_told_when_the_sidecar_has_started_again() -> None:
    """Between its durable `drained` and the ack the process may die."""
    at, conversation = Revision(0, 1), connected()
    list(conversation.received(ack(1, "active")))
    conversation.ended()
    list(conversation.received(ready(Revisions(at, at, at))))
    first = said(list(conversation.received(ack(1, "drained"))))
    conversation.ended()
    list(conversation.received(ready(Revisions(at, at, at))))
    second = said(list(conversation.received(ack(1, "drained"))))

    assert (first, second) == (["ack"], ["resumed"])


def test_a_policy_is_sent_again_once_for_each_nack() -> None:
    """A second copy on its way could bring back what the nack of the first set free."""
    conversation = connected()
    list(conversation.received(nack(1, "failed")))
    assert len(sent(list(conversation.again(asked=True)))) == 1

    assert sent(list(conversation.again(asked=True))) == []


def test_a_policy_of_an_earlier_process_that_is_refused_waits_for_the_files() -> None:
    """As when a certificate is not there yet: without it the files are no valid policy, and this one neither."""
    conversation = talk(connected().ledger, fresh=False)
    list(conversation.started())
    list(conversation.received(ready()))
    effects = list(conversation.received(nack(1, "invalid")))
    assert not any(isinstance(effect, Finish) for effect in effects)

    assert [message["revision"] for message in sent(list(conversation.wants(wanted())))] == [1]


def test_what_is_about_to_be_wanted_again_is_not_released() -> None:
    """Else the policy that was read would refer to an id that nobody may speak of any more."""
    conversation = connected()
    list(conversation.wants(wanted("es-2")))
    at = Revision(0, 2)
    conversation.expect(["es-1"])
    assert not revocable(list(conversation.received(ready(Revisions(at, at, at), in_use=("es-2",)))))

    conversation.expect([])

    assert revocable(list(conversation.received(ack(2, "active")))) == ["es-1"]


def test_a_nack_names_the_place_in_the_users_file() -> None:
    error = NackError("outputs.main.hosts[0]", 99, 99, "no such host")

    (say, *_) = list(connected().received(nack(1, "invalid", error)))

    assert isinstance(say, Say)
    assert [str(problem) for problem in say.fields["errors"]] == ["p.yaml:4:13: outputs.main.hosts[0]: no such host"]


def test_a_policy_that_could_not_start_is_tried_again() -> None:
    conversation = connected()
    effects = list(conversation.received(nack(1, "failed")))
    assert [type(effect) for effect in effects] == [Say, Again]

    assert [message["revision"] for message in sent(list(conversation.again()))] == [1]


def test_touched_files_add_no_second_rhythm_to_the_attempts_of_a_policy_that_cannot_start() -> None:
    """Else a port that stays taken for a day, and a tool that touches the files, end in a storm of policies."""
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    timers = [effect for effect in conversation.received(nack(1, "failed")) if isinstance(effect, Again)]
    for _ in range(3):
        assert len(sent(list(conversation.wants(wanted())))) == 1
        timers += [effect for effect in conversation.received(nack(1, "failed")) if isinstance(effect, Again)]

    assert [len(sent(list(conversation.due(timer)))) for timer in (*timers, timers[-1])] == [0, 0, 0, 1, 0]


def test_a_policy_that_a_new_sidecar_process_was_given_is_not_sent_to_it_twice() -> None:
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    (timer,) = (effect for effect in conversation.received(nack(1, "failed")) if isinstance(effect, Again))
    conversation.ended()
    assert len(sent(list(conversation.received(ready())))) == 1

    assert sent(list(conversation.due(timer))) == []


def test_who_asks_for_a_reading_hears_that_nothing_is_new_only_where_nothing_is_sent() -> None:
    conversation = connected()
    assert said(list(conversation.wants(wanted(), asked=True))) == ["unchanged"]
    list(conversation.received(ack(1, "active")))
    list(conversation.received(nack(1, "failed")))

    assert said(list(conversation.wants(wanted(), asked=True))) == ["sent"]


def test_a_refused_first_policy_ends_the_supervisor_and_a_later_one_does_not() -> None:
    assert Finish(78) in list(connected().received(nack(1, "invalid")))

    conversation = connected()
    assert Serving() in list(conversation.received(ack(1, "active")))
    list(conversation.wants(wanted("es-2")))

    assert not [effect for effect in conversation.received(nack(2, "invalid")) if isinstance(effect, Finish)]


def test_a_nack_of_an_older_policy_is_told_and_changes_nothing() -> None:
    conversation = connected()
    list(conversation.wants(wanted("es-2")))

    effects = list(conversation.received(nack(1, "invalid")))

    assert (said(effects), len(effects), conversation.failure) == (["nack"], 1, None)


def test_a_number_that_is_taken_is_given_up_for_a_higher_one_but_not_for_ever() -> None:
    conversation = connected()
    numbers = []
    for _ in range(10):
        messages = sent(list(conversation.received(nack(conversation.ledger.number, "conflict"))))
        numbers += [message["revision"] for message in messages]

    assert numbers == [2, 3, 4]


def test_a_sidecar_that_fails_before_it_is_ready_ends_the_supervisor() -> None:
    assert Finish(78) in list(talk().received(observed("FAILED")))


def test_only_what_a_person_must_mend_in_the_state_directory_makes_a_first_start_hopeless() -> None:
    for code, lasts in [
        ("state_newer", True),
        ("state_unusable", True),
        ("disk_failed", False),
        ("disk_full", False),
        ("state_busy", False),
        ("one_that_nobody_knows_yet", False),
        ("", False),
    ]:
        conversation = talk()
        failure = Error(line_number=1, message="the state directory has format 2, in other words", code=code)
        assert said(list(conversation.received(failure))) == ["start_failed"]
        assert said(list(conversation.received(failure))) == []
        assert conversation.hopeless is lasts

        list(conversation.received(ready()))
        conversation.ended()
        list(conversation.received(failure))
        assert not conversation.hopeless


def test_an_error_after_ready_is_about_a_line_that_was_sent() -> None:
    assert said(list(connected().received(Error(line_number=3, message="no")))) == ["error"]


def test_a_message_that_crosses_a_stop_is_no_error() -> None:
    crossing = Error(line_number=3, message="the shipper is stopping", code=Code.STOPPING)

    assert said(list(connected().received(crossing))) == []


def test_a_unit_that_misses_a_secret_which_is_here_is_told_of_when_that_has_arrived() -> None:
    conversation = connected()

    def told(code: str, *wanted: str) -> list[str]:
        unit = Unit("outputs.main", "output", "elasticsearch", "DEGRADED", "in some words about es-1", code=code)
        effects = list(conversation.received(observed("DEGRADED", unit, credentials_wanted=wanted)))
        return [effect.fields["code"] for effect in effects if isinstance(effect, Say) and effect.what == "unit"]

    assert told("credential_missing", "es-1") == []
    assert told("unauthorized") == ["unauthorized"]
    assert told("credential_missing", "es-1") == []
    assert told("unauthorized") == []
    assert told("credential_missing", "es-1", "es-0") == ["credential_missing"]


def test_a_units_health_is_told_when_it_changes_and_not_when_a_count_goes_on() -> None:
    conversation = connected()

    def health(state: Any, message: str) -> list[str]:
        unit = Unit("outputs.main", "output", "elasticsearch", state, message)
        return said(list(conversation.received(observed("HEALTHY", unit))))

    assert health("HEALTHY", "") == ["unit"]
    assert health("DEGRADED", "401, 12 events held") == ["unit"]
    assert health("DEGRADED", "401, 13 events held") == []
    assert health("HEALTHY", "") == ["unit"]


def test_a_unit_whose_code_changes_is_told_though_its_words_do_not() -> None:
    conversation = connected()

    def told(code: str) -> list[str]:
        unit = Unit("outputs.main", "output", "elasticsearch", "DEGRADED", "no", code=code)
        return said(list(conversation.received(observed("DEGRADED", unit))))

    assert (told("unauthorized"), told("unauthorized"), told("forbidden")) == (["unit"], [], ["unit"])


@pytest.mark.parametrize(
    ("code", "status"), [("end_of_input", 0), ("", 0), ("file_unreadable", 1), ("a_plugins_own", 1)]
)
def test_whether_once_has_missed_something_is_told_by_the_code_of_an_input(code: str, status: int) -> None:
    conversation = talk(once=True)
    list(conversation.wants(Wanted(document.read("inputs: {a: {type: file}}"), "", "x", {})))
    list(conversation.received(ready()))
    list(conversation.received(observed()))
    unit = Unit("inputs.a", "input", "file", "STOPPED", "in other words", code=code)
    heard = conversation.received(observed("HEALTHY", unit, active=conversation.ledger.at))

    assert Finish(status) in list(heard)


def test_once_is_done_when_inputs_are_read_to_the_end_and_nothing_is_queued() -> None:
    conversation = talk(once=True)
    tree = document.read("inputs: {a: {type: file}}")
    list(conversation.wants(Wanted(tree, "", "x", {})))
    list(conversation.received(ready()))
    list(conversation.received(observed()))
    at = conversation.ledger.at

    def done(state: Any, events: int, active: Revision | None) -> bool:
        unit = Unit("inputs.a", "input", "file", state)
        return Finish(0) in list(conversation.received(observed("HEALTHY", unit, events=events, active=active)))

    assert not done("HEALTHY", 0, at)
    assert not done("STOPPED", 1, at)
    assert conversation.waits_for == "1 event to be delivered"
    assert not done("STOPPED", 0, None)
    assert done("STOPPED", 0, at)


def test_once_counts_the_dead_letters_since_before_its_policy_was_sent() -> None:
    """The first observation after it may have them all."""
    conversation = talk(once=True)
    list(conversation.wants(Wanted(document.read("inputs: {a: {type: file}}"), "version: 1", "x", {})))
    assert sent(list(conversation.received(ready()))) == []
    begun = observed(letters=3)
    assert [message["type"] for message in sent(list(conversation.received(begun)))] == ["policy"]
    unit = Unit("inputs.a", "input", "file", "STOPPED", code="end_of_input")
    ended = observed("HEALTHY", unit, active=conversation.ledger.at, letters=4)

    assert Finish(1) in list(conversation.received(ended))


FENCED = ("lease", "withdraw")


def leased(now: float = 100.0) -> Conversation:
    conversation = talk(is_leased=True, boottime=lambda: now)
    list(conversation.wants(wanted()))
    return conversation


def test_a_sidecar_that_may_send_nothing_without_a_lease_is_started_so() -> None:
    assert sent(list(leased().started()))[0]["lease"] is True
    assert "lease" not in sent(list(talk().started()))[0]


def test_a_lease_goes_to_the_sidecar_that_is_ready_and_to_the_next_one_before_its_policy() -> None:
    conversation = leased()
    assert sent(list(conversation.lease(110.0))) == []
    first = sent(list(conversation.received(ready(can=FENCED))))
    assert sent(list(conversation.lease(120.0))) == [{"type": "lease", "until": 120.0}]
    conversation.ended()
    second = sent(list(conversation.received(ready(can=FENCED))))

    assert [(message["type"], message.get("until")) for message in first] == [("lease", 110.0), ("policy", None)]
    assert second[0] == {"type": "lease", "until": 120.0}


def test_a_lease_that_has_passed_is_not_sent_again() -> None:
    conversation = leased(now=110.0)
    list(conversation.lease(110.0))

    assert [message["type"] for message in sent(list(conversation.received(ready(can=FENCED))))] == ["policy"]


def test_the_end_of_the_need_for_a_lease_holds_for_the_next_sidecar_too() -> None:
    conversation = leased()
    list(conversation.received(ready(can=FENCED)))
    assert sent(list(conversation.lease(None))) == [{"type": "lease", "until": None}]
    conversation.ended()

    assert "lease" not in sent(list(conversation.started()))[0]


def test_the_end_of_the_need_for_a_lease_reaches_a_sidecar_that_was_not_ready_yet() -> None:
    conversation = leased()
    assert sent(list(conversation.started()))[0]["lease"] is True
    assert sent(list(conversation.lease(None))) == []

    first = sent(list(conversation.received(ready(can=FENCED))))
    assert first[0] == {"type": "lease", "until": None}


@pytest.mark.parametrize("can", [(), ("lease",), ("withdraw", "state")])
def test_under_a_lease_nothing_runs_in_a_sidecar_that_knows_none(can: tuple[str, ...]) -> None:
    effects = list(leased().received(ready(can=can, wants=("es-1",))))

    assert (sent(effects), effects[-1], said(effects)) == ([], Finish(78, grace=0.0), ["ready", "unfenced"])


def test_an_old_sidecar_runs_without_a_lease() -> None:
    conversation = talk()
    list(conversation.wants(wanted()))

    assert [message["type"] for message in sent(list(conversation.received(ready())))] == ["policy"]


def test_a_withdrawn_secret_is_supplied_no_more() -> None:
    conversation = connected()

    assert sent(list(conversation.withdraw(["es-1", "other"]))) == [
        {"type": "credentials", "credentials": {"es-1": None}}
    ]
    assert sent(list(conversation.withdraw(["es-1"]))) == []
    assert sent(list(conversation.received(observed(credentials_wanted=("es-1",))))) == []
    conversation.ended()
    messages = sent(list(conversation.received(ready(wants=("es-1",)))))
    assert [message["credentials"] for message in messages] == [{}]


def test_a_withdrawn_secret_that_a_new_policy_refers_to_is_supplied_again() -> None:
    conversation = connected()
    list(conversation.withdraw(["es-1"]))
    list(conversation.wants(wanted("es-2")))

    (message,) = sent(list(conversation.wants(wanted("es-1"))))

    assert message["credentials"] == {"es-1": {"api_key": "id:es-1"}}


def test_a_shared_policy_that_the_first_sidecar_refuses_is_waited_out() -> None:
    ends = {}
    for shared in (True, False):
        conversation = talk(is_shared=shared)
        list(conversation.wants(wanted()))
        list(conversation.received(ready()))
        ends[shared] = [one for one in conversation.received(nack(1, "invalid")) if isinstance(one, Finish)]

    assert ends == {True: [], False: [Finish(78)]}


def test_what_the_sidecar_held_is_known_after_its_end() -> None:
    conversation = connected()
    list(conversation.received(observed(events=5)))
    list(conversation.received(Stopped(clean=True, undelivered=2)))
    conversation.ended()

    assert conversation.held.events == 2


def test_an_ack_that_comes_twice_is_said_once() -> None:
    conversation = connected()

    assert [said(list(conversation.received(ack(1, "received")))) for _ in range(2)] == [["ack"], []]


def test_what_was_replaced_before_it_was_written_and_is_no_older_policy_changes_nothing() -> None:
    conversation = connected()

    assert list(conversation.unsent({"type": "lease", "until": None})) == []
    assert list(conversation.unsent({"type": "policy", "epoch": 0, "revision": 1})) == []


def test_a_credential_that_is_not_known_is_not_forgotten_again() -> None:
    assert list(connected().forget("nobody")) == []


def test_a_credential_that_the_sidecar_releases_is_revoked() -> None:
    conversation = connected()
    list(conversation.received(ack(1, "active")))
    list(conversation.wants(wanted("es-2")))
    list(conversation.received(ack(2, "active")))

    assert revocable(list(conversation.received(Released(credentials=["es-1"])))) == ["es-1"]


def test_an_ordered_revocation_is_saved_once_and_only_of_what_was_released() -> None:
    conversation = connected()
    ordered = [list(conversation.order(id)) for id in ("es-1", "unknown")]
    conversation.ledger.kept["es-1"].released = True

    assert ordered == [[], []]
    assert [list(conversation.order("es-1")) for _ in range(2)] == [[Save()], []]
    assert conversation.ledger.kept["es-1"].ordered
