from collections.abc import Iterator

import pytest

from tests.backends.etcd import Etcd
from tests.story.fleet import started_etcd


@pytest.fixture(scope="package")
def etcd() -> Iterator[Etcd]:
    """One node for all stories here, each with a fleet of its own."""
    yield from started_etcd(1)
