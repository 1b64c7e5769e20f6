"""The sidecars of packaging/kubernetes register as their manifests say, in a namespace of the level `restricted`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Object, path, until
from tests.packaging_kubernetes import nodes

PATIENCE = 60


@pytest.mark.parametrize(("workload", "pod", "keeps"), [("shop", "shop-0", "ordinal"), ("cart", "cart-0", "pod")])
def test_a_sidecar_is_the_member_that_its_queue_lives_as_long_as(
    kubernetes: Kubernetes, tmp_path: Path, workload: str, pod: str, keeps: str
) -> None:
    """With the rights of the application, and a token that is bound to the Pod."""
    roles.install(kubernetes)
    kubernetes.admin.apply(roles.rendered("sidecar"))
    with nodes.started(kubernetes, "shop", f"statefulsets/{workload}", tmp_path, [pod], os.environ) as running:
        uid = running[pod].pod["metadata"]["uid"]
        name = uid if keeps == "pod" else pod

        def found() -> Object:
            where = path("shippermembers", "shop", name, api=roles.SHIPPER)
            answer = kubernetes.admin.call("GET", where)
            return answer.body if answer.status == 200 else {}

        until(lambda: found().get("status", {}).get("state") == "running", f"{name} has registered", PATIENCE)
        member = found()
        alive = [running[pod].probe(kind) for kind in ("startupProbe", "livenessProbe")]

    assert member["spec"] == {"keeps": keeps, "node": "node-1", "pod": {"name": pod, "uid": uid}}
    assert member["metadata"]["labels"]["app.kubernetes.io/name"] == workload
    assert alive == [200, 200]
