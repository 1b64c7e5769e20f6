"""The API server itself ends, restarts without its history, and its etcd with it; members ship on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.backends import kubernetes as server
from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.stories.cluster import open_cluster

pytestmark = pytest.mark.backend


@pytest.fixture(scope="module")
def mortal() -> Iterator[Kubernetes]:
    """An API server that tests may kill."""
    try:
        with server.running() as found:
            yield found
    except server.Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("how", ["kill", "terminate", "stop"])
async def test_a_restart_of_the_api_server_loses_no_change_and_no_event(
    tmp_path: Path, mortal: Kubernetes, how: str
) -> None:
    async with open_cluster(tmp_path, mortal) as cluster:
        node = await trio.to_thread.run_sync(cluster.node)
        cluster.secret(api_key="k1")
        cluster.apply_policy("web", cluster.text(node.log))
        node.write(10)
        await cluster.reaches("web", 1)
        await trio.to_thread.run_sync(getattr(mortal, how))
        node.write(10)
        await cluster.arrived(20)
        await trio.to_thread.run_sync(mortal.start)
        second = cluster.secret(api_key="k2")["metadata"]["resourceVersion"]
        cluster.apply_policy("web", cluster.text(node.log, index="two"))
        await cluster.reaches("web", 2)
        await cluster.until(lambda: [one["resourceVersion"] for one in cluster.using()] == [second], "k2 alone is used")
        cluster.revoke("k1")
        node.write(10)
        await cluster.delivered()

    assert len(node.said("launched")) == 1
    assert cluster.destination.refused == 0
