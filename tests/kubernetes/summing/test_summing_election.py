"""Who leads: on a real API server, behind a proxy where something must go wrong."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from shipper.kubernetes.kinds import LEADER_LEASE
from shipper.kubernetes.summing import election
from shipper.process.environment import REAL
from tests.backends.kubernetes_proxy import open_proxy
from tests.kubernetes.summing.cluster import LEASES_API, Cluster, Played, entry, leading, until_leading

pytestmark = pytest.mark.backend


def lease(cluster: Cluster) -> dict:
    return cluster.admin.get(cluster.path("leases", LEADER_LEASE, api=LEASES_API))["spec"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that ends gives its Lease back within seconds, or lets it run out: here however slow the server is."""
    monkeypatch.setattr(election, "FAREWELL_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
async def test_one_of_two_leads_and_the_other_one_follows_at_once_when_it_ends(cluster: Cluster):
    ends = trio.Event()

    async def first(task_status: trio.TaskStatus[int]) -> None:
        async with leading(cluster, "one/boot/p", seconds=300) as (leader, _):
            task_status.started(await until_leading(leader))
            await ends.wait()

    async with trio.open_nursery() as nursery:
        token = await nursery.start(first)
        async with leading(cluster, "two/boot/p", seconds=300) as (second, _):
            await trio.testing.wait_all_tasks_blocked(0.5)
            assert second.token is None
            ends.set()
            assert await until_leading(second) == token + 1


@pytest.mark.usefixtures("patient")
async def test_a_lease_is_taken_over_when_it_was_not_renewed_then_renewed_and_given_back_at_the_end(cluster: Cluster):
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 7}
    made = {"metadata": {"name": LEADER_LEASE}, "spec": held}
    await cluster.call(cluster.admin.create, cluster.path("leases", api=LEASES_API), made)
    async with leading(cluster, seconds=2) as (leader, _):
        assert await until_leading(leader) == 8
        first = await cluster.call(lease, cluster)
        await cluster.until(lambda: lease(cluster)["renewTime"] > first["renewTime"])
        assert leader.token == 8

    assert first["holderIdentity"] == "one/boot/p"
    assert (await cluster.call(lease, cluster))["holderIdentity"] == ""


async def test_tokens_stay_above_those_in_objects_when_somebody_deletes_the_lease(cluster: Cluster):
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    where = cluster.path("shipperpolicies", "web", "status")
    await cluster.call(cluster.admin.patch, where, {"status": {"leader": 41}})
    async with leading(cluster):
        await cluster.until_condition("Drained", "False", 1)
        assert (await cluster.call(cluster.status))["leader"] > 41
        await cluster.call(cluster.admin.delete, cluster.path("leases", LEADER_LEASE, api=LEASES_API))
        await member.report(entry(policy, 1, "drained"))
        await cluster.until_condition("Drained", "True", 1)


async def test_without_a_right_to_the_lease_a_member_says_so_and_asks_seldom(cluster: Cluster):
    async with open_proxy(cluster.kubernetes) as proxy:
        token = cluster.kubernetes.user_token(7)
        async with leading(cluster, url=proxy.url, token=token) as (leader, told):
            with trio.fail_after(60):
                while not told.troubles:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.01)
            await trio.testing.wait_all_tasks_blocked(0.5)

            assert leader.token is None
            assert 'resources: ["leases"], verbs: ["get"]' in told.troubles["leader_forbidden"]
            assert proxy.count() <= 5


async def test_a_leader_that_cannot_renew_ends_before_its_lease_is_over(cluster: Cluster):
    async with open_proxy(cluster.kubernetes) as proxy, leading(cluster, url=proxy.url, seconds=3) as (first, _):
        token = await until_leading(first)
        with proxy.silence():
            async with leading(cluster, "two/boot/p", seconds=3) as (second, _):
                both = 0
                with trio.fail_after(60):
                    while second.token is None:
                        await trio.sleep(0.01)
                        both += second.token is not None and first.token is not None
                assert both == 0
                assert second.token == token + 1


async def test_a_leader_whose_clock_is_too_slow_writes_nothing_older(cluster: Cluster):
    """As one that was stopped, and continued with a request on its way."""
    began = REAL.boottime()
    slow = msgspec.structs.replace(REAL, boottime=lambda: began + (REAL.boottime() - began) / 5)
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    await member.report(entry(policy, 1, "active"))
    async with (
        open_proxy(cluster.kubernetes) as proxy,
        leading(cluster, url=proxy.url, seconds=3, environment=slow) as (first, _),
    ):
        old = await until_leading(first)
        await cluster.until_condition("Drained", "False", 1)
        requests = proxy.silence(method="PATCH")
        await member.report(entry(policy, 1, "drained"))
        with trio.fail_after(60):
            await proxy.until(lambda: proxy.count(method="PATCH", path="shipperpolicies") > 2)
        written = proxy.count(method="PATCH", path="shipperpolicies", status=200)
        all_else = proxy.silence()
        async with leading(cluster, "two/boot/p", seconds=3) as (second, _):
            new = await until_leading(second)
            await cluster.until_condition("Drained", "True", 1)
            behind = await Played(cluster, "b").create()
            await behind.report(entry(policy, 0, "active"))
            await cluster.until_condition("Drained", "False", 1)
            assert first.token == old
            requests.end()
            all_else.end()
            with trio.fail_after(60):
                while first.token is not None:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.01)
            found = await cluster.call(cluster.status)

        assert new > old
        assert found["leader"] == new
        assert [one["status"] for one in found["conditions"] if one["type"] == "Drained"] == ["False"]
        assert proxy.count(method="PATCH", path="shipperpolicies", status=200) == written
