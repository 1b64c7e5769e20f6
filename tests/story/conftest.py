from collections.abc import Iterator

import pytest

from tests.backends.etcd import Etcd
from tests.story.fleet import started_etcd


@pytest.fixture(scope="session")
def one_node() -> Iterator[Etcd]:
    yield from started_etcd(1)


@pytest.fixture(scope="module")
def etcd(one_node: Etcd) -> Iterator[Etcd]:
    """One node for all stories here, each with a fleet of its own."""
    with one_node.awake():
        yield one_node
