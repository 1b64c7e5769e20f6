from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitoring import prometheus as server
from tests.monitoring.prometheus import Prometheus


@pytest.fixture(scope="module")  # it scrapes and reckons each second
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus for all tests here, each with targets of its own."""
    with server.running(tmp_path_factory.mktemp("prometheus")) as found:
        yield found
