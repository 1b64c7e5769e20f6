"""A change is acted on at once, and never on a state that is older than an own write (T844)."""

from __future__ import annotations

import sys

import pytest

from shipper.apiserver.objects import Event
from shipper.kubernetes.member.own import Own
from shipper.kubernetes.member.steps import Confirm, Hold, Judge, Offer, Save, Write
from shipper.membership.steps import Rest
from tests.kubernetes.model.host import Host
from tests.kubernetes.objects import changed, policy, rotated, secret


def kinds(steps):
    return [type(step).__name__ for step in steps]


def offers(steps):
    return [step.vector for step in steps if isinstance(step, Offer)]


def entry(api, name="web", member="m"):
    return next(one for one in api.get("member", member)["status"]["policies"] if one["name"] == name)


def text(host_name):
    return policy("web", hosts=f"http://{host_name}:9200")["spec"]["policy"]


def test_t844_1_no_time_passes_between_a_change_and_its_offer(api, host):
    api.create("policy", policy("web"))
    host.settle()
    began = host.now
    for at in range(20):  # more than the pace of reports allows
        changed(api, "policy", "web", policy=text(f"h{at}"))
        host.show(host.policies)

        assert len(offers(host.act())) == 1
    assert host.now == began


def test_t844_1_a_first_use_waits_for_the_api_server_but_for_no_time(api, host):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.show(host.policies)
    host.act()
    began = host.now
    for watch in host.watches():
        host.show(watch)
    steps = host.act()

    assert kinds(steps)[:5] == ["Save", "Write", "Confirm", "Save", "Offer"]
    assert host.now == began


def test_t844_1_a_rotation_is_offered_without_a_write_before_it(api, host):
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    rotated(api, "es", k="id:two")
    host.show(host.secrets["es"])
    steps = host.act()

    assert kinds(steps)[:2] == ["Save", "Offer"]


def test_t844_3_a_third_partys_patch_before_the_echo_of_our_own_is_run_once(api, host):
    """The labels of the ShipperMember are changed between our read of it and our write."""
    api.create("policy", policy("web", members={"matchLabels": {"tier": "front"}}))
    api.create("policy", policy("other"))
    for watch in host.watches():
        while watch.is_behind(api):
            host.show(watch)
    api.patch("member", "m", {"metadata": {"labels": {"tier": "front"}}})
    steps = host.act()  # a write meets the other version, and is judged again

    assert "Look" in kinds(steps)
    assert {part.name for part in offers(steps)[-1].parts} == {"web", "other"}
    assert not offers(host.settle())


def test_t844_3_an_older_event_than_our_own_write_changes_nothing(api, host):
    patched = api.patch("member", "m", {"metadata": {"labels": {"tier": "front"}}})
    api.create("policy", policy("web", members={"matchLabels": {"tier": "front"}}))
    host.show(host.policies)
    host.member.failed(host.now)
    steps = host.act()

    assert len(offers(steps)) == 1
    host.member.saw_own(Event("MODIFIED", patched), now=host.now)  # older than our writes
    assert not offers(host.settle())


def own(version, **labels):
    return {"metadata": {"name": "m", "uid": "u1", "resourceVersion": version, "labels": labels}}


def test_t844_4_where_versions_have_no_order_a_lost_echo_is_decided_by_a_read_after_the_timeout():
    mine = Own()
    mine.read(own("a"), 0.0)
    mine.wrote(own("c"), 10.0)
    mine.saw(Event("MODIFIED", own("b", tier="front")))
    assert not mine.settle(14.9)
    assert mine.labels == {}

    assert mine.settle(15.0)
    mine.read(own("d", tier="front"), 15.1)
    assert not mine.settle(15.2)
    assert (mine.labels, mine.expectations.overdue) == ({"tier": "front"}, 1)


def test_t844_4_the_machine_reads_then_and_not_before(api, host):
    member = host.member
    seen = api.get("member", "m")
    opaque = {**seen, "metadata": {**seen["metadata"], "resourceVersion": "x"}}
    member.standing.own.wrote({**seen, "metadata": {**seen["metadata"], "resourceVersion": "y"}}, host.now)
    member.saw_own(Event("MODIFIED", opaque), now=host.now)
    rest = host.step()
    assert (type(rest).__name__, rest.until) == ("Rest", host.now + 5.0)

    host.now += 5.0
    assert type(host.step()).__name__ == "Look"


def test_k1_a_write_that_changes_nothing_holds_nothing_up():
    mine = Own()
    mine.read(own("7"), 0.0)
    mine.wrote(own("7"), 1.0)
    mine.saw(Event("MODIFIED", own("8", tier="front")))
    mine.settle(1.0)
    assert mine.labels == {"tier": "front"}


def test_k2_a_list_that_skips_the_own_write_holds_nothing_up():
    mine = Own()
    mine.read(own("2"), 0.0)
    mine.wrote(own("3"), 1.0)
    mine.saw(Event("MODIFIED", own("4", tier="front")))
    mine.settle(1.0)
    assert mine.labels == {"tier": "front"}


def test_k3_a_write_for_each_event_starves_nothing():
    mine = Own()
    mine.read(own("a"), 0.0)
    for at in range(10):
        mine.wrote(own(f"w{at}"), float(at))
        mine.saw(Event("MODIFIED", own(f"e{at}", at=str(at))))
    assert mine.settle(5.0)


def synced(version):
    return Event("SYNCED", {"metadata": {"resourceVersion": version}})


@pytest.mark.parametrize("versions", [("2", "3", "4"), ("a", "b", "c")])
def test_a_deletion_before_the_watch_is_seen_in_its_first_list(versions):
    made, reported, listed = versions
    mine = Own()
    mine.read(own(made), 0.0)
    mine.wrote(own(reported), 0.0)
    assert not mine.gone

    mine.saw(synced(listed))
    assert mine.gone


def test_a_deletion_that_is_shown_before_the_answer_to_the_own_write_is_seen():
    mine = Own()
    mine.saw(synced("1"))
    mine.read(own("2"), 0.0)
    mine.saw(Event("ADDED", own("2")))
    mine.saw(Event("DELETED", own("4")))
    mine.read(own("2"), 0.0)  # which began before
    mine.wrote(own("3"), 0.0)

    assert mine.gone


def test_an_object_that_is_newer_than_the_first_list_is_not_missed():
    mine = Own()
    mine.read(own("5"), 0.0)
    mine.saw(synced("4"))
    mine.caught_up("4")
    mine.saw(Event("ADDED", own("5")))
    mine.caught_up("9")

    assert not mine.gone


def test_a_member_that_was_deleted_before_its_watch_began_is_made_again(api):
    host = Host(api, labels={"app": "web"})
    while not host.member.standing.follows:
        host.perform(host.step())
    api.delete("member", "m")
    host.settle()

    assert api.get("member", "m") is not None
    assert host.member.standing.registered


def test_t844_7_a_burst_of_a_thousand_generations_ends_at_the_last(api, host):
    api.create("policy", policy("web"))
    host.settle()
    writes = len([step for step in host.steps if isinstance(step, Write)])
    for at in range(1000):
        changed(api, "policy", "web", policy=text(f"h{at}"))
        host.show(host.policies)
        if at % 100 == 99:
            host.act()
    host.settle()

    assert entry(api)["generation"] == 1001
    assert entry(api)["stage"] == "drained"
    assert "h999" in str(host.agent.vectors[-1].parts[0].policy)
    assert len([step for step in host.steps if isinstance(step, Write)]) - writes < 10


def test_t844_7_a_burst_of_which_each_generation_is_offered_is_kept_in_bounded_memory(api, host):
    api.create("policy", policy("web"))
    host.settle()
    for at in range(100):
        changed(api, "policy", "web", policy=text(f"h{at}"))
        host.show(host.policies)
        host.act()
    small = sys.getsizeof(host.durable.parts) + len(host.durable.contents) + len(host.durable.good)
    host.settle()

    assert len(host.member.running._vectors._recent) <= 16
    assert (len(host.member.running.policies.known), len(host.member.running._choosing._trees)) == (1, 1)
    assert small < 200
    assert entry(api)["generation"] == 101


def test_t844_8_a_change_while_one_is_provisioned_is_run_next(api, host):
    api.create("policy", policy("web"))
    host.settle()
    for stop in (Judge, Save, Offer):
        changed(api, "policy", "web", policy=text(f"one-{stop.__name__}"))
        host.show(host.policies)
        while not isinstance(step := host.step(), stop):
            host.perform(step)
        changed(api, "policy", "web", policy=text(f"two-{stop.__name__}"))
        host.show(host.policies)
        host.perform(step)
        host.settle()

        assert f"two-{stop.__name__}" in str(host.agent.vectors[-1].parts[0].policy)
        assert entry(api)["generation"] == api.get("policy", "web")["metadata"]["generation"]


def restarted(host, process="p2"):
    return Host(host.api, "m", memory=host.durable, agent=host.agent, process=process, labels={"app": "web"})


def test_t844_9_after_a_crash_an_acked_generation_is_not_provisioned_again_and_its_ack_is_sent(api, host):
    api.create("policy", policy("web"))
    for watch in host.watches():
        host.show(watch)
    while not isinstance(step := host.step(), Offer):
        host.perform(step)
    host.perform(step)
    while host.go_on():
        pass
    assert entry(api)["stage"] == "announced"

    again = restarted(host)
    again.answer_again()
    steps = again.settle()

    assert offers(steps) == []
    assert len(again.agent.vectors) == 1
    assert entry(api)["stage"] == "drained"


def test_t844_9_after_a_crash_before_the_offer_the_durable_vector_is_offered(api, host):
    api.create("policy", policy("web"))
    for watch in host.watches():
        host.show(watch)
    while not isinstance(host.step(), Offer):
        host.perform(host.step())
    again = restarted(host)
    again.settle()

    assert len(again.agent.vectors) == 1
    assert entry(api)["stage"] == "drained"


def test_a_new_generation_is_judged_and_offered_while_a_status_is_on_its_way(api, host):
    api.create("policy", policy("web"))
    host.settle()
    host.now += 120
    changed(api, "policy", "web", policy=policy("other")["spec"]["policy"])
    while host.policies.is_behind(api):
        host.show(host.policies)
    host.act()
    host.go_on()
    while not isinstance(step := host.step(), Write | Hold):
        assert not isinstance(step, Rest)
        host.perform(step)
    answer = host.request(step)
    changed(api, "policy", "web", policy=policy("third")["spec"]["policy"])
    host.show(host.policies)
    done = []
    while (other := host.beside()) is not None:
        host.perform(other)
        done.append(type(other))

    assert done == [Judge, Save, Offer]
    assert [part.generation for part in host.agent.offered.parts] == [3]
    host.tell(step, answer)
    host.settle()
    assert api.get("member", "m")["status"]["policies"][0]["generation"] == 3


def test_t844_10_a_deletion_waits_for_nothing(api, host):
    api.create("policy", policy("web"))
    host.settle()
    changed(api, "policy", "web", policy=text("h1"))
    host.show(host.policies)
    host.act()  # own writes whose echo was not seen
    api.delete("policy", "web")
    host.show(host.policies)
    began = host.now
    steps = host.act()

    assert (len(offers(steps)), host.now) == (1, began)
    assert offers(steps)[0].parts == ()


def test_a_policy_and_its_secret_never_mix(api, host):
    """The policy names a key that the Secret does not have yet: the old one runs on, and the status says so."""
    api.create("secret", secret("es", k="id:one"))
    api.create("policy", policy("web", secret="es"))
    host.settle()
    changed(api, "policy", "web", policy=policy("web", secret="es", key="k2")["spec"]["policy"])
    assert not offers(host.settle())
    assert entry(api)["nack"] == {
        "generation": 2,
        "reason": "secret_missing",
        "message": "the Secret es has no key k2",
        "path": "spec.policy.outputs.web.credential",
    }

    rotated(api, "es", k="id:one", k2="id:two")
    steps = host.settle()
    assert [kind for kind in kinds(steps) if kind == "Offer"] == ["Offer"]
    assert any(isinstance(step, Confirm) for step in steps)
    assert (entry(api)["generation"], entry(api)["stage"], entry(api)["nack"]) == (2, "drained", None)
    assert [use["key"] for use in api.get("member", "m")["status"]["using"]] == ["k2"]
