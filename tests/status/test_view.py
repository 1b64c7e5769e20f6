"""What people look at, made of status documents."""

from __future__ import annotations

import msgspec

from shipper.protocol.messages import EdgeFigures, Observed, PrincipalFigures, Supervision
from shipper.status import view
from shipper.status.rates import Rates, sample
from shipper.status.view import Edge, Principal, Reason, joined
from shipper.values import DeadLetterReason
from tests.status.documents import EDGE, PRINCIPAL, SERVED, asked, later

RATES = Rates(sample(later(), 10.0), sample(SERVED, 5.0))


def test_both_documents_of_a_shipper_give_the_same_picture():
    """A supervisor says more of itself to `shipper status` than to its shipper."""
    served = view.of(SERVED)
    told = view.of(joined(asked(), SERVED), directory="/var/lib/shipper")

    for part in ("inputs", "outputs", "queue", "revisions", "waits", "credentials", "letters", "troubles", "state"):
        assert getattr(told, part) == getattr(served, part), part


def test_the_documents_of_these_tests_are_such_as_shippers_make():
    edges, principals = [EDGE], [PRINCIPAL]
    document = {**SERVED, "type": "observed", "edges": edges, "principals": principals}
    served = msgspec.convert(document, Observed)

    assert served.dead_letter_reasons[0].events == 12
    assert served.edges[0].name == "berlin"
    assert Supervision.understood(SERVED["supervisor"]) is not None
    for own, theirs in ((Edge, EdgeFigures), (Principal, PrincipalFigures), (Reason, DeadLetterReason)):
        assert own.__slots__ == theirs.__struct_fields__


def test_an_input_has_its_rate_and_how_far_behind_it_is():
    apps, access = view.of(later(), RATES).inputs

    assert access.events is not None
    assert access.events.per_second == 100.0
    assert access.behind_bytes == 120_000
    assert access.seconds_behind == 3.0
    assert (apps.events, apps.connections, apps.turned_away, apps.tone) == (None, 4, 12, "warn")


def test_an_output_has_its_answers_by_status_and_its_next_attempt():
    main, copy = view.of(later(), RATES).outputs

    assert main.delivered is not None
    assert (main.delivered.total, main.delivered.per_second) == (9040, 8.0)
    assert [(count.name, count.total, count.per_second) for count in main.responses] == [
        ("200", 90, 2.0),
        ("401", 8, 0.0),
        ("503", 5, 1.0),
    ]
    assert [count.name for count in main.failures] == ["timeout"]
    assert (main.held, main.next_attempt_seconds, main.request_seconds) == (True, 7.5, 0.1)
    assert [count.name for count in main.outcomes] == ["delivered", "duplicate", "dead_letter"]
    assert copy.responses == ()


def test_the_batch_that_holds_up_an_output_comes_with_the_commands_that_end_it():
    units = [{**unit, "code": "plugin_fault"} for unit in SERVED["units"]]
    main, _ = view.of({**SERVED, "units": units}).outputs

    assert main.batch == 41
    assert [remedy.command for remedy in main.remedies] == [
        "shipper order dead-letter --output main --batch 41 --state /var/lib/shipper",
        "shipper order drop --output main --batch 41 --state /var/lib/shipper",
    ]


def test_a_refused_credential_without_a_drain_comes_with_what_to_do_about_it():
    main, copy = view.of({**SERVED, "draining": []}).outputs

    assert [remedy.command for remedy in main.refusal] == [
        "shipper test credential /etc/shipper/policy.d --output main"
    ]
    assert copy.refusal == view.of(SERVED).outputs[0].refusal == ()


def test_without_the_directory_of_a_supervisor_there_is_no_command():
    """Another program that supervises a shipper has orders of its own."""
    found = view.of({**SERVED, "supervisor": None})

    assert not found.letters.remedies
    assert not any(wait.remedies for wait in found.waits)
    assert not any(output.remedies or output.refusal for output in found.outputs)


def test_the_dead_letters_have_their_reasons_and_their_orders():
    letters = view.of(SERVED).letters

    assert [(reason.events, reason.output) for reason in letters.reasons] == [(12, "main"), (2, "main")]
    assert [remedy.command for remedy in letters.remedies] == [
        "shipper order dead-letters --state /var/lib/shipper",
        "shipper order dead-letters --export rejected.ndjson --state /var/lib/shipper",
        "shipper order dead-letters requeue --state /var/lib/shipper",
    ]


def test_credentials_say_which_may_go_and_what_the_others_are_needed_for():
    found = {one.id: one for one in view.of(SERVED).credentials}

    assert [(id, one.use, one.may_go) for id, one in found.items()] == [
        ("es-3f9c0a7be2d1", "needed", False),
        ("es-81d04c5f6a77", "in use", False),
        ("es-00aa00aa00aa", "released", True),
        ("es-00000aaaaaaa", "revoked", False),
    ]
    assert found["es-3f9c0a7be2d1"].needed_by == ("revision 6 on main",)


def test_a_credential_that_other_hosts_use_too_may_not_go_for_what_one_says():
    known = [{**one, "shared": True} for one in SERVED["supervisor"]["credentials"]]
    found = view.of({**SERVED, "supervisor": {**SERVED["supervisor"], "credentials": known}}).credentials

    assert [(one.use, one.may_go) for one in found[2:]] == [("left", False), ("revoked", False)]


def test_credentials_that_no_supervisor_names_are_shown_by_their_ids():
    document = {**SERVED, "supervisor": None, "credentials_wanted": ["es-3f9c0a7be2d1"]}
    found = {one.id: one for one in view.of(document).credentials}

    assert [(id, one.use) for id, one in found.items()] == [
        ("es-3f9c0a7be2d1", "wanted"),
        ("es-81d04c5f6a77", "in use"),
    ]


def test_what_a_newer_shipper_says_beside_is_left_out():
    queue, (reason, *_) = SERVED["queue"], SERVED["dead_letter_reasons"]
    found = view.of({**SERVED, "queue": {**queue, "new": 1}, "dead_letter_reasons": [{**reason, "new": 1}]})

    assert found.queue == view.of(SERVED).queue
    assert len(found.letters.reasons) == 1
