"""A leader behind a proxy that loses answers, ends watches and is late: what it writes is right, and never older."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http.client import HTTPException
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

from shipper.kubernetes.summing import term
from tests.backends.kubernetes_proxy import open_proxy
from tests.kubernetes.summing.cluster import Cluster, Played, entry, leading, until_leading, using

pytestmark = pytest.mark.backend


@asynccontextmanager
async def recorded(cluster: Cluster, plural: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Each state of the objects of a kind, as the server's own watch has it."""
    states: list[dict[str, Any]] = []
    began, done = threading.Event(), threading.Event()

    def record() -> None:
        with (
            suppress(OSError, HTTPException),  # of the end of the server
            cluster.admin.watch(cluster.path(plural), seconds=60) as events,
        ):
            began.set()
            for event in events:
                states.append(event["object"])
                if done.is_set():
                    return

    thread = threading.Thread(target=record, daemon=True)
    thread.start()
    await cluster.call(began.wait, 60)
    yield states
    done.set()


def is_drained(state: dict[str, Any]) -> bool:
    found = [one["status"] for one in state.get("status", {}).get("conditions", ()) if one["type"] == "Drained"]
    return found == ["True"]


async def test_lost_answers_expired_watches_missing_echoes_and_throttling_change_nothing(cluster: Cluster):
    policy, secret = await cluster.policy(), await cluster.secret(api_key="old")
    member = await Played(cluster, "a").create()
    async with open_proxy(cluster.kubernetes) as proxy, leading(cluster, url=proxy.url) as (_, told):
        await cluster.until_condition("Drained", "False", 1)
        with proxy.lose_answers(method="PATCH", times=3), proxy.lose_answers(method="POST", times=1):
            await member.report(entry(policy, 1, "drained"), using=(using(secret),))
            await cluster.until_condition("Drained", "True", 1)
            await cluster.until_bound(secret, secret["metadata"]["resourceVersion"])
        for generation in (2, 3):
            await cluster.edit(inputs={"n": {"number": generation}})
            assert proxy.expire_watches() > 0
            await member.report(entry(policy, generation, "drained"))
            await cluster.until_condition("Drained", "True", generation)
        proxy.throttle(1, times=3, method="PATCH")
        await cluster.edit(inputs={"n": {"number": 4}})
        await cluster.until_condition("Drained", "False", 4)
        with proxy.silence(watch=True, path="shipperpolicies"):
            await member.report(entry(policy, 4, "active"))
            await cluster.until_condition("Active", "True", 4)
            await member.report(entry(policy, 4, "drained"))
            await cluster.until_condition("Drained", "True", 4)
        with trio.fail_after(60):
            while told.troubles:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.01)


async def test_a_leader_goes_on_after_restarts_of_the_server_and_of_its_etcd(cluster: Cluster):
    server = cluster.kubernetes
    policy, secret = await cluster.policy(), await cluster.secret(api_key="0")
    member = await Played(cluster, "a").create()
    async with leading(cluster, seconds=30) as (leader, told):
        token = await until_leading(leader)
        for generation, end in ((1, server.kill), (2, server.stop)):
            await member.report(entry(policy, generation, "drained"), using=(using(secret),))
            await cluster.until_condition("Drained", "True", generation)
            await cluster.until_bound(secret, secret["metadata"]["resourceVersion"])
            await cluster.call(end)
            await cluster.call(server.start)
            assert await cluster.edit(inputs={"n": {"number": generation}}) == generation + 1
            secret = await cluster.secret(api_key=str(generation))
            await cluster.until_condition("Drained", "False", generation + 1)
        await cluster.until(lambda: not told.troubles)

        assert leader.token == token


async def test_a_leader_that_cannot_see_all_lets_another_one_lead(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(term, "SYNC_SECONDS", 1.0)
    policy = await cluster.policy()
    await (await Played(cluster, "a").create()).report(entry(policy, 1, "drained"))
    async with open_proxy(cluster.kubernetes) as proxy:
        proxy.answer(403, "Forbidden", "no", path="/shippermembers$", method="GET")
        async with leading(cluster, url=proxy.url) as (first, told):
            await until_leading(first)
            async with leading(cluster, "two/boot/p") as (second, _):
                await cluster.until_condition("Drained", "True", 1)

                assert second.token is not None
                assert "status_unseen" in dict(told.all_troubles)
                assert first.token is None


@pytest.mark.parametrize(("status", "reason", "cause"), [(403, "Forbidden", "forbidden"), (422, "Invalid", "refused")])
async def test_what_is_refused_is_said_and_does_not_loop(cluster: Cluster, status: int, reason: str, cause: str):
    await cluster.policy()
    await Played(cluster, "a").create()
    async with open_proxy(cluster.kubernetes) as proxy:
        refusal = proxy.answer(status, reason, "spec.x: not so", method="PATCH", path="shipperpolicies")
        async with leading(cluster, url=proxy.url) as (leader, told):
            await until_leading(leader)
            with trio.fail_after(60):
                while f"status_{cause}" not in told.troubles:  # noqa: ASYNC110 - it tells nobody
                    await trio.sleep(0.01)
            await trio.testing.wait_all_tasks_blocked(0.5)

            assert proxy.count(method="PATCH", path="shipperpolicies") <= 4
            assert "shipperpolicies" in told.troubles[f"status_{cause}"]
            refusal.end()


async def test_a_refusal_of_a_server_that_starts_is_over_soon(cluster: Cluster):
    policy = await cluster.policy()
    await (await Played(cluster, "a").create()).report(entry(policy, 1, "drained"))
    async with open_proxy(cluster.kubernetes) as proxy:
        proxy.answer(403, "Forbidden", "no", path=r"shipperpolicies/|leases/shipper-leader", times=3)
        async with leading(cluster, url=proxy.url):
            await cluster.until_condition("Drained", "True", 1)


async def test_without_a_right_to_a_secret_members_say_what_is_released(cluster: Cluster):
    first = await cluster.secret(api_key="old")
    member = await Played(cluster, "a").create()
    await member.report(using=(using(first),))
    async with open_proxy(cluster.kubernetes) as proxy:
        proxy.answer(403, "Forbidden", "no", path="/secrets$")
        async with leading(cluster, url=proxy.url) as (_, told):
            await cluster.until_bound(first, first["metadata"]["resourceVersion"])
            second = await cluster.secret(api_key="new")
            await member.report(using=(using(second),))
            await cluster.until_bound(second, second["metadata"]["resourceVersion"])

            assert 'resources: ["secrets"]' in told.troubles["status_forbidden"]


async def test_late_watches_never_make_a_status_go_back(cluster: Cluster):
    """A third party edits while the echoes of our writes are on their way."""
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    async with (
        recorded(cluster, "shipperpolicies") as states,
        recorded(cluster, "shippermembers") as reports,
        open_proxy(cluster.kubernetes) as proxy,
        leading(cluster, url=proxy.url),
    ):
        await cluster.until_condition("Drained", "False", 1)
        proxy.delay(0.3)
        for generation in range(2, 10):
            await cluster.edit(inputs={"n": {"number": generation}})
            await member.report(entry(policy, generation, "active" if generation % 3 else "drained"))
        await member.report(entry(policy, generation, "drained"))
        await cluster.until_condition("Drained", "True", generation)

    observed = [one["status"]["observedGeneration"] for one in states if "observedGeneration" in one.get("status", {})]
    assert observed == sorted(observed)
    for state in states:
        if is_drained(state):
            at = int(state["metadata"]["resourceVersion"])
            before = [one for one in reports if int(one["metadata"]["resourceVersion"]) < at]
            seen = [
                one["status"]["policies"][0]["generation"]
                for one in before
                if one.get("status", {}).get("policies") and one["status"]["policies"][0]["stage"] == "drained"
            ]
            assert max(seen) >= state["status"]["observedGeneration"]


async def test_a_takeover_in_a_burst_ends_at_the_last_state(cluster: Cluster):
    policy = await cluster.policy()
    member = await Played(cluster, "a").create()
    async with (
        open_proxy(cluster.kubernetes) as proxy,
        recorded(cluster, "shipperpolicies") as states,
        leading(cluster, url=proxy.url, seconds=4) as (first, _),
    ):
        await cluster.until_condition("Drained", "False", 1)
        async with leading(cluster, "two/boot/p", seconds=4) as (second, _):
            with proxy.silence():
                for generation in range(2, 7):
                    await cluster.edit(inputs={"n": {"number": generation}})
                    await member.report(entry(policy, generation, "drained"))
                await until_leading(second)
                await cluster.until_condition("Drained", "True", generation)
            assert first.token is None

    tokens = [one["status"]["leader"] for one in states if "leader" in one.get("status", {})]
    assert tokens == sorted(tokens)


# -- many rotations ----------------------------------------------------------------------------------------------------


class Rotating:
    """A member that uses contents, announces before it uses, and keeps what it has used until the server said so."""

    def __init__(self, played: Played, secret: str) -> None:
        self.played, self.name = played, secret
        self.used: list[tuple[str, int, int]] = []
        """Content, and the versions of members' reports between which it was in use: from, to."""

    async def rotate(self) -> None:
        """Announces the current content, reads it again, and drops the one of before."""
        cluster = self.played.cluster
        where = cluster.path("secrets", self.name, api="v1")
        current = await cluster.call(cluster.admin.get, where)
        await self.played.report(using=(*self.held, using(current)))
        again = await cluster.call(cluster.admin.get, where)
        if again["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]:
            self.held = (using(current),)
            await self.played.report(using=self.held)
        else:
            self.held = (*self.held, using(current))

    held: tuple[dict[str, Any], ...] = ()


def written(bounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in bounds if one.get("status")]


async def test_bounds_are_true_under_rotations_by_two_and_members_that_follow_late(cluster: Cluster):
    """No bound that was ever written is above a version that a member listed at that time."""
    await cluster.secret(api_key="0")
    members = [Rotating(await Played(cluster, each).create(), "es") for each in "abc"]
    async with (
        recorded(cluster, "shippersecrets") as bounds,
        recorded(cluster, "shippermembers") as reports,
        open_proxy(cluster.kubernetes) as proxy,
        leading(cluster, url=proxy.url),
    ):
        proxy.delay(0.05)

        enough = trio.Event()

        async def follow(one: Rotating) -> None:
            while not enough.is_set():
                await one.rotate()

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for one in members:
                    nursery.start_soon(follow, one)
                for number in count(1):
                    last = await cluster.secret(api_key=str(number))
                    if number >= 8 and len(written(bounds)) > 3:
                        break
                enough.set()
        for one in members:
            await one.rotate()
        await cluster.until_bound(last, last["metadata"]["resourceVersion"])

    in_use: dict[str, list[int]] = {}
    for event in sorted([*reports, *bounds], key=lambda one: int(one["metadata"]["resourceVersion"])):
        status = event.get("status", {})
        if event["kind"] == "ShipperMember":
            in_use[event["metadata"]["name"]] = [int(one["resourceVersion"]) for one in status.get("using", ())]
        for one in status.get("credentials", ()):
            assert int(one.get("releasedBefore") or 0) <= min(at for versions in in_use.values() for at in versions)
