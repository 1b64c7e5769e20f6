"""A leader that has only the rights of packaging/kubernetes does all that it must, and is refused nothing.

It fences a member that holds before it says the bound, removes what is left of an ended member, and lets a deletion
wait until all have drained.
"""

from __future__ import annotations

import pytest

from shipper.kubernetes.kinds import DRAIN
from tests.backends import kubernetes_roles as roles
from tests.kubernetes.summing.cluster import Cluster, Played, entry, leading, using

pytestmark = pytest.mark.backend


async def test_a_leader_needs_no_right_that_a_daemonset_does_not_give(cluster: Cluster):
    server, namespace = cluster.kubernetes, cluster.namespace
    await cluster.call(roles.install, server)
    await cluster.call(roles.account, server, namespace, secrets=["es"])
    own = await cluster.call(roles.pod, server, namespace, "shipper-x1", node="node-1")
    token = await cluster.call(server.account_token, namespace, "shipper", pod=own)
    secret = await cluster.secret(api_key="old")
    policy = await cluster.policy(onDelete={"drain": True})
    member = await Played(cluster, "a").create()
    await member.report(entry(policy, 1, "drained"), using=(using(secret),))
    held = await Played(cluster, "held").create(seconds=1)
    await held.report(entry(policy, 1, "drained"), using=(using(secret),), fence="hold")
    gone = "0b0e6c0a-3f0f-4c8e-9f4e-1d1f6a1c2b3d"
    spec = {"keeps": "pod", "pod": {"name": "never-there", "uid": gone}}
    ended = await Played(cluster, gone).create(seconds=1, spec=spec)
    await ended.report(entry(policy, 1, "active"))
    async with leading(cluster, token=token) as (_, told):
        where = cluster.path("shipperpolicies", "web")
        await cluster.until(lambda: cluster.admin.get(where)["metadata"].get("finalizers") == [DRAIN])
        await cluster.until_condition("Drained", "True", 1)
        await cluster.until(lambda: cluster.admin.call("GET", cluster.path("shippermembers", gone)).status == 404)
        assert (await cluster.call(cluster.admin.call, "GET", ended.lease)).status == 404

        new = await cluster.secret(api_key="new")
        await member.report(entry(policy, 1, "drained"), using=(using(new),))
        version = new["metadata"]["resourceVersion"]
        await cluster.until_bound(new, version)
        assert int((await held.bounds())[f"{secret['metadata']['uid']}/api_key"]) >= int(version)
        assert (await cluster.call(cluster.released)).status.blocked_by == ()

        await cluster.call(cluster.admin.delete, where)
        await cluster.until_condition("Active", "False", 2, reason="Deleted")
        await member.report(entry(policy, 1, "active", removed=True))
        await cluster.until(lambda: "the deletion waits until" in cluster.condition("Drained")["message"])
        for one in (member, held):
            await one.report(entry(policy, 1, "drained", removed=True))
        await cluster.until(lambda: cluster.admin.call("GET", where).status == 404)
        assert [cause for cause, _ in told.all_troubles] == []
