"""What happens to a member and to the API server: nothing is lost or sent twice, and nothing is used unannounced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_proxy import Proxy, open_proxy
from tests.kubernetes.stories.cluster import PATIENCE, Cluster, Node, begun, open_cluster, port_of

pytestmark = pytest.mark.backend


@asynccontextmanager
async def behind_a_proxy(directory: Path, kubernetes: Kubernetes) -> AsyncIterator[tuple[Cluster, Proxy, Node]]:
    """A node that has begun, and asks the API server through a proxy."""
    async with open_proxy(kubernetes) as proxy, open_cluster(directory, kubernetes) as cluster:
        yield cluster, proxy, await begun(cluster, port=port_of(proxy.url))


async def test_a_kill_between_the_announcement_and_the_use_leaves_nothing_unsaid(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with behind_a_proxy(tmp_path, kubernetes) as (cluster, proxy, node):
        with proxy.silence(path="/secrets/", method="GET", watch=False):
            second = cluster.secret("other", api_key="k2")["metadata"]["resourceVersion"]
            reference = {"secret": {"name": "other", "key": "api_key"}}
            cluster.apply_policy("web", cluster.text(node.log, credential=reference))
            await cluster.until(
                lambda: second in {one["resourceVersion"] for one in cluster.using()}, "k2 is announced"
            )
            await trio.to_thread.run_sync(node.kill)
        announced = cluster.using()
        used = cluster.uses("k2")
        node.write(10)
        await trio.to_thread.run_sync(node.start)
        await cluster.reaches("web", 2)
        await cluster.until(lambda: {one["secret"] for one in cluster.using()} == {"other"}, "k1 is not used any more")
        cluster.revoke("k1")
        node.write(10)
        await cluster.delivered()

    assert {one["secret"] for one in announced} == {"es", "other"}
    assert used == 0
    assert cluster.destination.refused == 0


async def test_without_the_api_server_a_member_runs_on_also_over_a_restart(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with behind_a_proxy(tmp_path, kubernetes) as (cluster, proxy, node):
        with proxy.refuse():
            await cluster.until(lambda: node.said("kubernetes_trouble", code="kubernetes_unreachable"), "it says so")
            node.write(10)
            await cluster.arrived(20)
            await trio.to_thread.run_sync(node.kill)
            node.write(10)
            await trio.to_thread.run_sync(node.start)
            await cluster.arrived(30)
            cluster.apply_policy("web", cluster.text(node.log, index="later"))
        await cluster.reaches("web", 2)
        node.write(10)
        await cluster.delivered()

    assert len(cluster.destination.documents["later"]) == 10


async def test_t844_3_edits_before_an_echo_in_a_burst_and_behind_dead_watches_are_carried_out_once_and_to_the_last(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    async with behind_a_proxy(tmp_path, kubernetes) as (cluster, proxy, node):
        sent = len(node.said("sent"))
        with proxy.delay(1.0):
            cluster.apply_policy("web", cluster.text(node.log, index="two"))
            at = cluster.path("shippermembers", "node-1")
            cluster.admin.patch(at, {"metadata": {"annotations": {"somebody": "else"}}})
            await cluster.reaches("web", 2)
            cluster.admin.patch(at, {"metadata": {"annotations": {"somebody": "again"}}})
            cluster.apply_policy("web", cluster.text(node.log, index="three"))
            await cluster.reaches("web", 3)
        sent = len(node.said("sent")) - sent

        written = proxy.count(path="/shippermembers/.*/status", method="PATCH")

        def burst() -> None:
            for number in range(30):
                cluster.apply_policy("web", cluster.text(node.log, index=f"index-{number}"))

        began = trio.current_time()
        await trio.to_thread.run_sync(burst)
        await cluster.reaches("web", 33)
        seconds = trio.current_time() - began
        writes = proxy.count(path="/shippermembers/.*/status", method="PATCH") - written

        proxy.expire_watches()
        cluster.apply_policy("web", cluster.text(node.log, index="expired"))
        await cluster.reaches("web", 34)
        with proxy.gone_in_stream(times=3):
            proxy.cut(watch=True)
            cluster.apply_policy("web", cluster.text(node.log, index="last"))
            await cluster.reaches("web", 35)
        node.write(10)
        await cluster.delivered()

    assert sent == 2
    assert writes <= 20 + 10 * seconds
    assert len(cluster.destination.documents["last"]) == 10


async def test_a_right_to_a_secret_that_is_missing_for_a_moment_refuses_nothing(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    """An API server that starts knows no right for a second."""
    async with behind_a_proxy(tmp_path, kubernetes) as (cluster, proxy, node):
        writes = {"path": "/shippermembers/.*/status", "method": "PATCH"}
        written = proxy.count(**writes)
        with proxy.answer(403, "Forbidden", path="/secrets", watch=True, times=3):
            proxy.cut(path="/secrets")
            with trio.fail_after(PATIENCE):
                await proxy.until(lambda: proxy.count(path="/secrets", status=403) == 3)
                await proxy.until(lambda: proxy.watches(path="/secrets") == 1)
        shortly = proxy.count(**writes) - written
        with proxy.answer(403, "Forbidden", path="/secrets", watch=True):
            proxy.cut(path="/secrets")
            nack = await cluster.refuses("web", "secret_missing")
            node.write(10)
            await cluster.arrived(20)
        await cluster.until(lambda: cluster.report("web").get("nack") is None, "the refusal is over")
        node.write(10)
        await cluster.delivered()

    assert shortly == 0
    assert 'resources: ["secrets"]' in nack["message"]
    assert len(node.said("sent")) == 1
