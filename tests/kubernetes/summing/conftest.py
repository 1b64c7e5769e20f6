from __future__ import annotations

import pytest

from tests.backends.kubernetes import Kubernetes
from tests.kubernetes.summing.cluster import Cluster


@pytest.fixture
def cluster(installed: Kubernetes, namespace: str) -> Cluster:
    return Cluster(installed, namespace)
