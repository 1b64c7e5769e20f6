"""The API server of tests behaves as clients of one may rely on, and as they must fear."""

from __future__ import annotations

import pytest

from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Refused, path

pytestmark = pytest.mark.backend


def test_it_keeps_what_is_written(kubernetes: Kubernetes, namespace: str) -> None:
    kubernetes.admin.create(path("configmaps", namespace), {"metadata": {"name": "a"}, "data": {"k": "v"}})

    assert kubernetes.admin.get(path("configmaps", namespace, "a"))["data"] == {"k": "v"}


def test_a_user_may_do_what_is_granted_at_once(kubernetes: Kubernetes, namespace: str) -> None:
    with pytest.raises(Refused, match="403 Forbidden"):
        kubernetes.user(1000).get(path("configmaps", namespace))

    kubernetes.grant(namespace, "user-1000", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])

    assert kubernetes.user(1000).items(path("configmaps", namespace)) == []
