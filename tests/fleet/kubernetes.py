"""An API server with the kind of a fleet's records, and stores on it, for tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shipper.apiserver.config import Configuration, find
from shipper.fleet.kubernetes.store import ApiServer, open_kubernetes
from tests.backends import kubernetes as server
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import PATIENCE, path

CRD = Path(__file__).parents[2] / "packaging" / "kubernetes" / "crds" / "shipperfleetrecords.yaml"
RECORDS = "shipper.dev/v1"
LEASES = "coordination.k8s.io/v1"
NAMESPACE = "default"


def install(kubernetes: Kubernetes) -> None:
    """Adds the kind of records; returns when it is served."""
    kubernetes.admin.apply(CRD.read_text())
    until = time.monotonic() + PATIENCE
    while kubernetes.admin.call("GET", path("shipperfleetrecords", NAMESPACE, api=RECORDS)).status != 200:
        assert time.monotonic() < until, "the kind is not served"
        time.sleep(0.05)


@contextmanager
def running(arguments: Sequence[str] = (), *, audit: bool = False) -> Iterator[Kubernetes]:
    """A server with the kind; skips the test where there is none."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server.running(arguments=arguments, audit=audit))
        except server.Unavailable as why:
            pytest.skip(str(why))
        install(found)
        yield found


def configuration(kubernetes: Kubernetes, *, token: str = "", url: str = "", namespace: str = "") -> Configuration:
    """That of a client; `url` is that of a proxy."""
    file = kubernetes.directory / f"{uuid.uuid4()}.kubeconfig"
    kubernetes.kubeconfig(file, token or kubernetes.token, namespace=namespace or NAMESPACE, url=url)
    return find({}, kubeconfig=str(file))


@dataclass
class Place:
    """A fleet of its own on a server."""

    kubernetes: Kubernetes
    url: str = ""
    fleet: str = field(default_factory=lambda: f"laws-{uuid.uuid4()}")

    def client(self) -> AbstractAsyncContextManager[ApiServer]:
        return open_kubernetes(configuration(self.kubernetes, url=self.url), self.fleet)

    def records(self) -> list[dict[str, Any]]:
        """The objects of the fleet's keys, also those that were removed."""
        return self._objects("shipperfleetrecords", RECORDS)

    def leases(self) -> list[dict[str, Any]]:
        return self._objects("leases", LEASES)

    def _objects(self, plural: str, api: str) -> list[dict[str, Any]]:
        query = {"labelSelector": f"shipper.dev/fleet={self.fleet}"}
        return self.kubernetes.admin.items(path(plural, NAMESPACE, api=api), **query)
