"""A member alone in a namespace, registered."""

from __future__ import annotations

import pytest

from tests.kubernetes.model.api import Api
from tests.kubernetes.model.host import Host


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def host(api: Api) -> Host:
    host = Host(api, labels={"app": "web"})
    host.settle()
    return host
