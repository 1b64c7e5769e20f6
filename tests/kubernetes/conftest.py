"""What a platform engineer has applied to the API server, and a client of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import Configuration
from shipper.apiserver.credentials import FixedToken
from shipper.apiserver.server import Server
from shipper.apiserver.trust import Pem, Trust
from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes


@pytest.fixture
def installed(kubernetes: Kubernetes) -> Kubernetes:
    """The API server with all of packaging/kubernetes."""
    roles.install(kubernetes)
    return kubernetes


@pytest.fixture
async def client(installed: Kubernetes, namespace: str) -> AsyncIterator[Client]:
    """A client of the administrator."""
    trust = Trust(ca=Pem(str(installed.ca)))
    found = Configuration(Server.parse(installed.url), namespace, trust, FixedToken(installed.token), "tests")
    async with connected(found) as made:
        yield made
