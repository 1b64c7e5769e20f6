"""A leader while the API server and its etcd are restarted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends import kubernetes as backend
from tests.kubernetes.summing.cluster import Cluster, Played, entry, install, leading, until_leading, using

pytestmark = [pytest.mark.backend, pytest.mark.timeout(180)]


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A server that a test may kill."""
    try:
        with backend.running() as found:
            install(found)
            yield Cluster(found, found.namespace())
    except backend.Unavailable as why:
        pytest.skip(str(why))


async def test_a_leader_goes_on_after_restarts_of_the_server(own: Cluster):
    policy, secret = await own.policy(), await own.secret(api_key="0")
    member = await Played(own, "a").create()
    async with leading(own, seconds=30) as (leader, told):
        token = await until_leading(leader)
        for generation in (1, 2, 3):
            await member.report(entry(policy, generation, "drained"), using=(using(secret),))
            await own.until_condition("Drained", "True", generation)
            await own.until_bound(secret, secret["metadata"]["resourceVersion"])
            await own.call(own.kubernetes.restart if generation == 1 else own.kubernetes.stop)
            await own.call(own.kubernetes.start)
            assert await own.edit(inputs={"n": {"number": generation}}) == generation + 1
            secret = await own.secret(api_key=str(generation))
            await own.until_condition("Drained", "False", generation + 1)
        await own.until(lambda: not told.troubles)

        assert leader.token == token
