from __future__ import annotations

import pytest

from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.summing.cluster import Cluster, install


@pytest.fixture(scope="session")
def shipper_kinds(kubernetes: Kubernetes) -> Kubernetes:
    install(kubernetes)
    return kubernetes


@pytest.fixture
def cluster(shipper_kinds: Kubernetes, namespace: str) -> Cluster:
    return Cluster(shipper_kinds, namespace)
