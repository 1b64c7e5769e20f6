"""Who a member is: one directory under one name, and what happens where there are two, or none any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_proxy import open_proxy
from tests.kubernetes.stories.cluster import Node, begun, open_cluster, port_of

pytestmark = pytest.mark.backend


async def test_a_new_directory_waits_for_the_old_one_and_keeps_what_is_known_of_it(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        (old,) = cluster.using()
        first = cluster.member()["process"].partition("/")[0]
        await trio.to_thread.run_sync(node.kill)
        await trio.to_thread.run_sync(shutil.rmtree, node.state)
        before = len(node.said("sent"))
        await trio.to_thread.run_sync(node.start)
        await cluster.until(lambda: node.said("kubernetes_trouble", code="kubernetes_name_taken"), "it waits visibly")
        early = len(node.said("sent")) - before
        await cluster.until(lambda: cluster.member().get("lost"), "the lost directory is kept")
        (lost,) = cluster.member()["lost"]
        await cluster.reaches("web", 1)
        second = cluster.member()["process"].partition("/")[0]
        well = await cluster.until(lambda: node.said("kubernetes_well", code="kubernetes_name_taken"), "it is over")

    assert early == 0
    assert well
    assert first != second
    assert lost["process"].partition("/")[0] == first
    assert [one["resourceVersion"] for one in lost["using"]] == [old["resourceVersion"]]


async def test_a_restarted_process_takes_its_name_back_at_once_and_a_deleted_member_is_made_anew(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster, lease="60s")
        process = cluster.member()["process"]
        await trio.to_thread.run_sync(node.kill)
        await trio.to_thread.run_sync(node.start)
        await cluster.until(lambda: cluster.member().get("process") not in ("", process), "the new process reports")
        node.write(10)
        await cluster.arrived(20)

        at = cluster.path("shippermembers", "node-1")
        before = cluster.admin.get(at)["metadata"]["uid"]
        cluster.admin.delete(at)
        await cluster.until(
            lambda: cluster.using() and cluster.admin.get(at)["metadata"]["uid"] != before, "it is there"
        )
        await cluster.reaches("web", 1)
        cluster.apply_policy("web", cluster.text(node.log, index="two"))
        await cluster.reaches("web", 2)
        node.write(10)
        await cluster.delivered()

    assert node.said("kubernetes_trouble", code="kubernetes_name_taken") == []
    assert len(node.said("launched")) == 2


async def test_under_hold_nothing_is_sent_after_the_lease_and_all_after_it_is_back(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_proxy(kubernetes) as proxy, open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster, port=port_of(proxy.url), on_lapse="hold")
        fence = cluster.member()["fence"]
        with proxy.refuse():
            await cluster.until(lambda: _lapsed(node), "the lease of the sidecar is over")
            before = cluster.destination.total
            node.write(10)
            await cluster.until(lambda: _held(node), "the lines wait")
            held = cluster.destination.total
        await cluster.delivered()

    assert fence == "hold"
    assert held == before == 10


def _lapsed(node: Node) -> bool:
    return node.whole_status()["observed"].get("lease_seconds") == 0


def _held(node: Node) -> bool:
    return bool(node.whole_status()["observed"]["queue"]["events"] == 10)


async def test_members_that_share_a_policy_drain_it_each_for_itself(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        nodes = [
            await trio.to_thread.run_sync(lambda name=name: cluster.node(name, allow_host_references=True))
            for name in ("node-1", "node-2")
        ]
        cluster.secret(api_key="k1")
        cluster.apply_policy("web", cluster.text("${LOG}"))
        for node in nodes:
            node.write(10)
            await cluster.reaches("web", 1, member=node.name)
        await cluster.until(lambda: cluster.condition("web", "Drained").get("status") == "True", "all have drained")
        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        await cluster.released(second)
        cluster.revoke("k1")
        for node in nodes:
            node.write(10)
        await cluster.delivered()
        members = cluster.policy("web")["status"]["members"]
        leaders = [node.name for node in nodes if node.said("kubernetes_leader")]

    assert (members["registered"], members["drained"]) == (2, 2)
    assert len(leaders) == 1
    assert cluster.destination.refused == 0


async def test_a_stopped_member_that_holds_is_fenced_and_never_uses_what_was_revoked_meanwhile(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        first = await begun(cluster, on_lapse="hold", rebind_revoked=True, elect=False)
        await trio.to_thread.run_sync(lambda: cluster.node("node-2", labels={"app": "none"}))
        await cluster.until(lambda: cluster.condition("web", "Drained").get("status") == "True", "node-2 leads")
        first.pause()
        first.write(20)
        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        await cluster.released(second)
        cluster.revoke("k1")
        used = cluster.uses("k1")
        first.go_on()
        await cluster.reaches("web", 1)
        await cluster.delivered()

    assert cluster.uses("k1") == used
    assert cluster.uses("k2") > 0
    assert cluster.destination.refused == 0


async def test_a_copy_of_a_directory_runs_nothing_before_it_has_said_what_it_may_use(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with open_proxy(kubernetes) as proxy, open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster, port=port_of(proxy.url))
        first = cluster.member()["process"].partition("/")[0]
        await trio.to_thread.run_sync(node.kill)
        await trio.run_process(["cp", "-a", str(node.state), str(tmp_path / "copy")])
        await trio.to_thread.run_sync(shutil.rmtree, node.state)
        (tmp_path / "copy").rename(node.state)
        sent = len(node.said("sent"))
        with proxy.refuse():
            await trio.to_thread.run_sync(node.start)
            await cluster.until(lambda: node.said("kubernetes_trouble", code="kubernetes_unreachable"), "it is cut off")
            early = len(node.said("sent")) - sent
        await cluster.until(lambda: cluster.member().get("lost"), "the old directory is kept")
        await cluster.reaches("web", 1)
        node.write(10)
        await cluster.delivered()

    assert early == 0
    assert cluster.member()["process"].partition("/")[0] != first
