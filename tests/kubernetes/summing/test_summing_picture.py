"""What of a picture is due after an event, and that nothing is missed by looking only at what an event touches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.apiserver.objects import Event
from shipper.kubernetes.kinds import LEADER_LEASE
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.picture import Picture


def policy(name: str = "web", version: str = "10", uid: str = "", secret: str = "", **spec: Any) -> dict[str, Any]:
    text = {"outputs": [{"credential": {"secret": {"name": secret, "key": "k"}}}]} if secret else {}
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": version, "generation": 1}
    return {"metadata": metadata, "spec": {"policy": text, **spec}}


def member(name: str, *, uid: str = "", labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": "20", "labels": labels or {}}
    return {"metadata": metadata, "spec": {}, "status": status}


def reporting(name: str, policy: str, **more: Any) -> dict[str, Any]:
    entry = {"name": policy, "uid": f"u-{policy}", "generation": 1, "stage": "active"}
    return member(name, process=f"d-{name}/p", policies=[entry], **more)


def using(secret: str, version: str = "1") -> list[dict[str, str]]:
    return [{"secret": secret, "uid": "s", "key": "k", "resourceVersion": version}]


def lease(name: str, renewed: str = "r1", holder: str | None = None) -> dict[str, Any]:
    held = f"d-{name}/b/p" if holder is None else holder
    spec = {"holderIdentity": held, "leaseDurationSeconds": 40, "renewTime": renewed}
    return {"metadata": {"name": f"shipper-member-{name}", "uid": f"l-{name}", "resourceVersion": "30"}, "spec": spec}


@pytest.fixture
def picture() -> Picture:
    """Two policies for other labels, and two members, one of each, that are alive."""
    found = Picture()
    for name in ("web", "db"):
        found.saw_policy(Event("ADDED", policy(name, secret=name, members={"matchLabels": {"app": name}})))
        found.saw_member(Event("ADDED", member(f"of-{name}", labels={"app": name}, process=f"d-of-{name}/p")))
        found.saw_lease(Event("ADDED", lease(f"of-{name}")), 0.0)
    settle(found)
    return found


def settle(of: Picture) -> None:
    of.due_policies.clear()
    of.due_secrets.clear()


def test_a_report_makes_the_policies_due_that_it_is_about_or_that_select_the_member(picture):
    picture.saw_member(Event("ADDED", reporting("new", "db")))

    assert picture.due_policies == {"db"}


def test_a_member_that_is_gone_makes_its_policies_due(picture):
    picture.saw_member(Event("DELETED", member("of-web", labels={"app": "web"})))

    assert "web" in picture.due_policies


def test_a_use_of_another_content_makes_the_secret_due_and_no_other_one(picture):
    picture.saw_member(Event("MODIFIED", member("of-web", process="d-of-web/p", using=using("es"))))
    settle(picture)
    picture.saw_member(Event("MODIFIED", member("of-web", process="d-of-web/p", using=using("es", "2"))))

    assert picture.due_secrets == {"es"}


def test_a_report_of_a_stage_makes_no_secret_due(picture):
    picture.saw_member(Event("MODIFIED", reporting("of-web", "web", using=using("es"))))
    settle(picture)
    picture.saw_member(Event("MODIFIED", reporting("of-web", "web", using=using("es"), undelivered=3)))

    assert picture.due_secrets == set()


def test_a_renewal_makes_nothing_due(picture):
    picture.saw_lease(Event("MODIFIED", lease("of-web", "r2")), 1.0)
    settle(picture)
    picture.saw_lease(Event("MODIFIED", lease("of-web", "r3")), 2.0)

    assert (picture.due_policies, picture.due_secrets) == (set(), set())


def test_a_lease_of_a_member_that_has_said_nothing_makes_all_due(picture):
    picture.saw_lease(Event("ADDED", lease("unknown")), 0.0)

    assert picture.due_policies == {"web", "db"}
    assert picture.due_secrets == {"web", "db"}
    assert picture.standings.registering == {"unknown"}


def test_leases_of_others_mean_nothing(picture):
    for name in (LEADER_LEASE, "kube-scheduler"):
        picture.saw_lease(Event("ADDED", {"metadata": {"name": name}, "spec": {"holderIdentity": "x"}}), 0.0)

    assert picture.standings.registering == frozenset()


def test_a_policy_that_names_another_secret_makes_both_due(picture):
    picture.saw_policy(Event("MODIFIED", policy("web", "11", secret="other")))

    assert picture.due_secrets == {"web", "other"}
    assert picture.keys("other") == {"k"}


def test_an_event_that_is_older_than_an_answer_changes_nothing(picture):
    picture.saw_policy(Event("MODIFIED", policy("web", "15")))
    picture.saw_policy(Event("MODIFIED", policy("web", "12")))

    assert picture.policies["web"].version == "15"


def test_the_end_of_an_older_life_does_not_end_the_next_one(picture):
    picture.saw_policy(Event("ADDED", policy("web", "15", uid="next")))
    picture.saw_policy(Event("DELETED", policy("web", "14")))

    assert picture.policies["web"].uid == "next"


def test_a_secret_stays_known_by_its_shipper_secret(picture):
    picture.saw_release(Event("ADDED", {"metadata": {"name": "old", "uid": "r", "resourceVersion": "1"}}))

    assert "old" in picture.secrets


names = st.sampled_from("ab")
events = st.one_of(
    st.tuples(st.just("member"), names, st.sampled_from(["d-a/p", "d-b/p", "", "x/p"]), st.booleans()),
    st.tuples(st.just("lease"), names, st.sampled_from(["r1", "r2", "r3"]), st.sampled_from([None, "", "x/b/p"])),
    st.tuples(st.just("gone"), names, st.sampled_from(["member", "lease"]), st.none()),
    st.tuples(st.just("read"), st.lists(names, max_size=2), st.none(), st.none()),
)


@given(st.lists(events, max_size=12))
def test_who_is_alive_is_what_a_look_at_everything_would_say(steps):
    picture = Picture()
    for now, (kind, of, what, more) in enumerate(steps):
        at = now * 30.0
        if kind == "member":
            status = {"process": what} if more else {"process": what, "policies": 7}  # which cannot be read
            picture.saw_member(Event("MODIFIED", member(of, **status)))
        elif kind == "lease":
            picture.saw_lease(Event("MODIFIED", lease(of, what, more)), at)
        elif kind == "gone" and what == "member":
            picture.saw_member(Event("DELETED", member(of)))
        elif kind == "gone":
            picture.saw_lease(Event("DELETED", lease(of)), at)
        else:
            there = [picture.liveness.lease(one) for one in of]
            picture.read_leases([one for one in there if one is not None], at)

        assert picture.standings == picture.standing(picture.members.values())


def test_a_read_of_all_leases_takes_back_nothing_that_is_newer_and_ends_those_that_are_gone(picture):
    picture.saw_lease(Event("ADDED", lease("new")), 0.0)
    older = lease("of-web", "r0")
    older["metadata"]["resourceVersion"] = "29"
    found = [records.lease(one) for one in (older, lease("late"), lease("new", "r2"))]
    picture.read_leases(found, 1.0)

    assert picture.liveness.lease("of-web").renewed == "r1"
    assert picture.liveness.lease("late") is not None
    assert picture.liveness.lease("of-db") is None


def test_a_release_that_is_older_than_what_is_known_changes_nothing(picture):
    def of(version):
        return {"metadata": {"name": "es", "uid": "u", "resourceVersion": version}}

    picture.saw_release(Event("ADDED", of("20")))
    settle(picture)
    picture.saw_release(Event("DELETED", of("10")))
    assert (set(picture.releases), picture.due_secrets) == ({"es"}, set())

    picture.saw_release(Event("DELETED", of("30")))
    assert (set(picture.releases), picture.due_secrets) == (set(), {"es"})


def test_a_lease_that_is_gone_leaves_its_member_to_be_proven_absent(picture):
    picture.saw_lease(Event("DELETED", lease("of-web")), 1.0)

    assert picture.leases.keys() == {"of-db"}
    assert "web" in picture.due_policies
