"""Under which name a member takes part, what it keeps of others, and when its sidecar may send."""

from __future__ import annotations

import json

import pytest

from shipper.apiserver.objects import Event
from shipper.kubernetes.member.memory import Memory
from shipper.kubernetes.member.steps import Adjust, Create, Facts, Hold, Look, Offer, Reread, Save, Write
from shipper.membership.steps import Grant, Rest, Withdraw
from tests.kubernetes.model.host import LEASE, Agent, Host
from tests.kubernetes.objects import policy, rotated, secret


def status(api, name="m"):
    return api.get("member", name)["status"]


def with_policy(api):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))


def kinds(steps):
    return [type(step).__name__ for step in steps]


def test_a_member_registers_before_it_watches_anything(api):
    host = Host(api)
    while not host.member.standing.follows:
        assert host.watches() == []
        host.perform(host.step())

    assert kinds(host.steps) == ["Look", "Create", "Hold", "Write"]
    assert status(api)["process"].startswith("dir-m/p1.")
    lease = api.get("lease", "shipper-member-m")["spec"]
    assert lease["holderIdentity"] == "dir-m/boot/p1"
    assert lease["renewTime"] == "1970-01-01T00:00:00.000000Z"


def test_a_lease_is_renewed_in_each_third_and_costs_one_write(api, host):
    host.now += LEASE / 3 + 1
    before = api.version
    assert kinds(host.settle()) == ["Hold"]
    assert api.version - before <= 1


def test_at_rest_nothing_is_written_but_the_lease(api, host):
    with_policy(api)
    host.settle()
    steps = []
    for _ in range(10):
        host.now += LEASE / 3
        steps += host.settle()
    assert set(kinds(steps)) == {"Hold"}
    assert len(steps) <= 11


def test_another_directory_waits_for_the_lease_and_keeps_what_the_old_one_had(api, host):
    with_policy(api)
    host.settle()
    other = Host(api, "m", memory=Memory(directory="dir-new"), process="p9")
    other.now = 5000.0
    other.act()
    assert (other.member.standing.place, other.member.standing.follows) == ("taken", False)

    other.now += LEASE + 10
    other.settle()
    assert other.member.standing.registered
    (lost,) = status(api)["lost"]
    assert lost["process"].startswith("dir-m/")
    assert [use["secret"] for use in lost["using"]] == ["es"]


def test_the_same_directory_on_the_same_boot_takes_the_name_at_once(api, host):
    again = Host(api, "m", memory=host.durable, agent=host.agent, process="p2")
    steps = again.act()

    assert again.member.standing.registered
    assert kinds(steps)[:2] == ["Look", "Hold"]
    assert status(api)["lost"] == ()


def test_a_member_whose_name_was_taken_over_says_nothing_and_runs_on(api, host):
    with_policy(api)
    host.settle()
    other = Host(api, "m", memory=Memory(directory="dir-new"), process="p9")
    other.act()
    other.now += LEASE + 10
    other.settle()
    rotated(api, "es", k="id:two")
    host.now += LEASE + 10
    steps = host.act()

    assert host.member.standing.place == "apart"
    assert not any(isinstance(step, Write | Offer) for step in steps)
    assert host.agent.vectors


def test_a_person_who_deletes_the_object_makes_it_forget_what_was_lost(api, host):
    with_policy(api)
    host.settle()
    other = Host(api, "m", memory=Memory(directory="dir-new"), process="p9")
    other.act()
    other.now += LEASE + 10
    other.settle()
    api.delete("member", "m")
    other.settle()

    assert status(api)["lost"] == ()
    assert [one["name"] for one in status(api)["policies"]] == ["web"]
    assert other.member.standing.registered


def test_a_directory_that_is_older_than_its_own_status_begins_as_another_one(api, host):
    copy = host.durable
    with_policy(api)
    host.settle()
    again = Host(api, "m", memory=copy, agent=Agent(), process="p2")
    again.settle()

    assert again.durable.directory == "spare-m"
    assert [lost["process"].partition("/")[0] for lost in status(api)["lost"]] == ["dir-m"]
    assert len(again.agent.vectors) == 1


def test_a_directory_with_a_new_id_is_answered_for_what_it_runs(api, host):
    with_policy(api)
    while not host.durable.number:
        host.show(next((watch for watch in host.watches() if watch.is_behind(api)), host.own))
        host.act()
    copy = host.durable
    host.settle()
    again = Host(api, "m", memory=copy, agent=Agent(), process="p2")
    again.settle()
    api.delete("member", "m")
    again.settle()

    assert again.durable.directory == "spare-m"
    assert [one["stage"] for one in status(api)["policies"]] == ["drained"]


def test_what_an_agent_adopts_after_it_was_withdrawn_is_withdrawn_again(api):
    host = Host(api, hold=True)
    with_policy(api)
    while not any(isinstance(step, Offer) for step in host.steps):
        for watch in host.watches():
            if watch.is_behind(api):
                host.show(watch)
        host.act()
    (old,) = host.agent.offered.contents  # not adopted yet
    host.member.running.usage.withdrew([old])
    host.agent.withdrawn.add(old)
    host.go_on()
    host.agent.withdrawn.clear()  # the agent took the vector as it was offered
    steps = host.act()

    assert [step.ids for step in steps if isinstance(step, Withdraw)] == [(old,)]


def test_ids_that_nobody_here_knows_are_withdrawn(api, host):
    host.agent.using.add("es-k-unknown-1")
    steps = host.act()

    assert [step.ids for step in steps if isinstance(step, Withdraw)] == [("es-k-unknown-1",)]


def test_a_bound_in_the_lease_withdraws_an_older_content_before_the_next_lease(api):
    host = Host(api, hold=True)
    with_policy(api)
    host.settle()
    assert host.lease is not None
    (old,) = host.agent.using
    host.now += 2 * LEASE
    found = rotated(api, "es", k="id:two")
    uid, version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
    lease = api.get("lease", "shipper-member-m")
    notes = {"shipper.dev/released": json.dumps({f"{uid}/k": version})}
    api.put("lease", {**lease, "metadata": {**lease["metadata"], "annotations": notes}})
    steps = host.settle()

    at = {kind: kinds(steps).index(kind) for kind in ("Look", "Withdraw", "Grant")}
    assert at["Look"] < at["Withdraw"] < at["Grant"]
    assert old in host.agent.withdrawn
    assert all(one.content == b"id:two" for one in host.agent.vectors[-1].contents.values())


def test_no_lease_is_granted_after_a_lapse_before_all_was_read_and_the_sidecar_runs_it(api):
    host = Host(api, hold=True)
    with_policy(api)
    host.settle()
    host.now += 2 * LEASE
    api.patch(
        "policy", "web", {"spec": {"policy": policy("web", secret="es", hosts="http://b:9200")["spec"]["policy"]}}
    )
    steps = host.act()

    assert "Reread" in kinds(steps)
    assert not any(isinstance(step, Grant) for step in steps)
    assert "active" in host.member.held
    assert any(isinstance(step, Grant) for step in host.settle())
    assert host.member.held == ""
    assert host.member.fencing.until == host.lease


def test_a_member_that_no_longer_holds_needs_leases_until_the_api_server_knows(api):
    host = Host(api, hold=True)
    host.settle()
    loose = Host(api, "m", memory=host.durable, agent=host.agent, process="p2")
    assert loose.member.holding
    loose.settle()

    assert not loose.member.holding
    assert (loose.lease, status(api)["fence"]) == (None, "continue")


def test_a_member_leaves_for_good_and_gives_its_name_up(api, host):
    with_policy(api)
    host.settle()
    host.agent.using.clear()
    host.member.leave()
    host.act()

    assert host.member.left
    assert (status(api)["state"], status(api)["using"]) == ("left", ())
    assert api.get("lease", "shipper-member-m")["spec"]["holderIdentity"] == ""
    assert Host(api, "m", memory=host.durable, process="p2").member.running.kept is None


def test_a_member_that_leaves_with_events_says_what_it_has(api, host):
    with_policy(api)
    host.settle()
    host.member.leave()
    while not host.member.left:
        step = host.member.next(host.now, Facts(using=frozenset(host.agent.using), undelivered=7))
        assert not isinstance(step, Rest)
        host.perform(step)

    assert (status(api)["undelivered"], len(status(api)["using"])) == (7, 1)


def test_undelivered_events_are_written_once_a_lease_and_at_the_end_at_once(api, host):
    """A Pod that ended with none must not look as if its events were lost with it."""
    with_policy(api)
    host.settle()
    some, none = (Facts(using=frozenset(host.agent.using), undelivered=count) for count in (7, 0))
    assert isinstance(host.member.next(host.now, some), Rest)
    for _ in range(4):
        host.now += LEASE / 3
        while not isinstance(step := host.member.next(host.now, some), Rest):
            host.perform(step)
    assert status(api)["undelivered"] == 7
    assert isinstance(host.member.next(host.now, none), Rest)
    host.member.end()
    while host.member.is_pending(host.now, none):
        host.perform(host.member.next(host.now, none))
        host.now += 0.1

    assert status(api)["undelivered"] == 0


def test_without_the_api_server_the_kept_vector_runs(api, host):
    with_policy(api)
    host.settle()
    again = Host(api, "m", memory=host.durable, agent=Agent(), process="p2")
    kept = again.member.running.kept

    assert (kept.name, [part.name for part in kept.parts]) == (host.agent.vectors[-1].name, ["web"])
    assert [one.content for one in kept.contents.values()] == [b"id:one"]


def test_while_requests_fail_what_is_durable_and_proven_is_offered_all_the_same(api, host):
    api.create("policy", policy("web"))
    host.settle()
    api.patch("policy", "web", {"spec": {"policy": policy("web", hosts="http://b:9200")["spec"]["policy"]}})
    host.member.failed(host.now + 10)
    host.show(host.policies)
    steps = host.act()

    assert kinds(steps) == ["Judge", "Save", "Offer"]
    rest = host.step()
    assert isinstance(rest, Rest)
    assert rest.until == host.now + 10


def test_a_write_whose_answer_was_lost_is_looked_at_and_not_taken_back(api, host):
    with_policy(api)
    host.show(host.policies)
    host.act()
    for watch in host.watches():
        host.show(watch)
    while not isinstance(step := host.step(), Write):
        host.perform(step)
    host.request(step)
    host.member.failed(host.now)
    steps = host.settle()

    assert isinstance(steps[0], Look | Save)
    assert status(api)["policies"][0]["stage"] == "drained"


def test_reports_are_written_in_bounded_number_and_the_last_one_always(api, host):
    with_policy(api)
    host.settle()
    for at in range(50):
        rotated(api, "es", k=f"id:{at}")
        host.show(host.secrets["es"])
        host.act()
        while host.go_on():
            host.act()
    writes = [step for step in host.steps if isinstance(step, Write)]
    assert len(writes) < 20

    host.settle()
    (use,) = status(api)["using"]
    assert use["resourceVersion"] == api.get("secret", "es")["metadata"]["resourceVersion"]
    assert not any(isinstance(step, Hold) for step in host.steps[-3:])


def test_a_process_with_other_labels_gives_them_to_its_object_and_leaves_those_of_people(api, host):
    api.patch("member", "m", {"metadata": {"labels": {"team": "a"}}})
    again = Host(api, "m", memory=host.durable, agent=host.agent, process="p2", labels={"app": "db"})
    again.settle()

    assert api.get("member", "m")["metadata"]["labels"] == {"app": "db", "team": "a"}


@pytest.mark.parametrize("kind", [Create, Adjust, Hold, Write])
def test_a_write_that_somebody_else_was_faster_with_is_looked_at_and_done_again(api, host, kind):
    name = "new" if kind is Create else "m"
    other = Host(api, name, memory=None if kind is Create else host.durable, agent=Agent(), labels={"app": "db"})
    while not isinstance(step := other.step(), kind):
        other.perform(step)
    other.tell(step, None)

    assert isinstance(other.step(), Look)
    other.settle()
    assert other.member.standing.registered
    assert api.get("member", name)["metadata"]["labels"] == {"app": "db"}


def test_a_late_renewal_lets_one_other_write_go_first_and_no_more(api, host):
    host.now += LEASE / 3
    host.perform(host.step())
    host.now += LEASE / 3

    assert isinstance(host.step(), Hold), "there is no other write"


def test_a_member_that_leaves_while_another_directory_has_its_name_is_out_at_once(api, host):
    with_policy(api)
    host.settle()
    other = Host(api, "m", memory=Memory(directory="dir-new"), process="p9")
    other.act()
    other.now += LEASE + 10
    other.settle()
    host.now += LEASE + 10
    host.act()
    host.member.leave()
    steps = host.act()

    assert (kinds(steps), host.durable.left, host.member.standing.place) == (["Save"], True, "out")
    assert status(api)["process"].startswith("dir-new/")


def test_a_member_that_has_left_looks_before_it_gives_up_a_name_that_is_in_doubt(api, host):
    host.member.leave()
    while not host.durable.left:
        host.perform(host.step())
    host.member.failed(host.now + 5.0)
    assert isinstance(host.step(), Rest)
    host.now += 5.0

    assert kinds(host.act()) == ["Look", "Hold"]
    assert api.get("lease", "shipper-member-m")["spec"]["holderIdentity"] == ""


def test_until_all_was_read_again_after_a_lapse_it_says_so(api):
    host = Host(api, hold=True)
    assert host.member.held == "", "it is not registered"
    host.settle()
    host.now += 2 * LEASE
    while not isinstance(host.step(), Reread):
        host.perform(host.step())

    assert "not read again" in host.member.held


def test_a_lapse_during_the_reads_after_one_has_them_done_again(api):
    host = Host(api, hold=True)
    host.settle()
    host.now += 2 * LEASE
    while not isinstance(step := host.step(), Reread):
        host.perform(step)
    answer = host.request(step)
    host.member.fencing.lapse()
    host.tell(step, answer)

    assert "Reread" in kinds(host.settle())
    assert host.member.held == ""


def test_a_deletion_that_the_watch_has_passed_without_a_word_is_noticed(api, host):
    api.delete("member", "m")
    host.member.standing.own.saw(Event("DELETED", {"metadata": {"name": "m", "uid": "another"}}))
    host.member.standing.own._there = ""
    host.member.caught_up(str(api.version))

    assert isinstance(host.step(), Look)


def test_nothing_is_watched_or_done_beside_a_write_before_it_takes_part(api):
    host = Host(api)

    assert host.member.running.secrets == frozenset()
    assert host.beside() is None
