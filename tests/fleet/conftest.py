"""A fleet in memory, and real stores, each started once for all tests here that may share it, and gone after them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shipper.fleet.kubernetes import keeper
from tests.backends import etcd as server
from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.fleet.hosts import Fleet


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the state directory of a member will be."""
    return tmp_path / "state"


@pytest.fixture(scope="session")
def one_node() -> Iterator[server.Etcd]:
    yield from _running(1)


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[server.Etcd]:
    yield from _running(3)


@pytest.fixture(scope="module")
def etcd(one_node: server.Etcd) -> Iterator[server.Etcd]:
    """One node, which all tests share, each with a prefix of its own."""
    with one_node.awake():
        yield one_node


@pytest.fixture(scope="module")
def three(three_nodes: server.Etcd) -> Iterator[server.Etcd]:
    """Three nodes; a test that kills some of them starts them again."""
    with three_nodes.awake():
        yield three_nodes


@pytest.fixture
def api_server(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    """The API server with the kind of a fleet's records. Who is to keep is decided soon: there is no herd here."""
    monkeypatch.setattr(keeper, "HERD_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "PAUSE_SECONDS", 0.2)
    roles.install(kubernetes)
    return kubernetes


def _running(count: int) -> Iterator[server.Etcd]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server.cluster(count))
        except server.Unavailable as why:
            pytest.skip(str(why))
        yield found
