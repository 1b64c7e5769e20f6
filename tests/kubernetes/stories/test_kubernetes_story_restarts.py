"""The API server itself ends, restarts without its history, and its etcd with it; members ship on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.stories.cluster import begun, open_cluster

pytestmark = pytest.mark.backend


async def test_restarts_of_the_api_server_lose_no_change_and_no_event(tmp_path: Path, kubernetes: Kubernetes) -> None:
    async with open_cluster(tmp_path, kubernetes) as cluster:
        node = await begun(cluster)
        for generation, end in ((2, kubernetes.terminate), (3, kubernetes.stop)):
            await trio.to_thread.run_sync(end)
            node.write(10)
            await cluster.arrived(node.lines)
            await trio.to_thread.run_sync(kubernetes.start)
            key = f"k{generation}"
            secret = cluster.secret(api_key=key)["metadata"]["resourceVersion"]
            cluster.apply_policy("web", cluster.text(node.log, index=key))
            await cluster.reaches("web", generation)
            await cluster.until(
                lambda secret=secret: [one["resourceVersion"] for one in cluster.using()] == [secret],
                f"{key} alone is used",
            )
            cluster.revoke(f"k{generation - 1}")
            node.write(10)
            await cluster.arrived(node.lines)
        await cluster.delivered()

    assert len(node.said("launched")) == 1
    assert cluster.destination.refused == 0
