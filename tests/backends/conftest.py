"""Real servers, each started once for all tests of this directory, and gone after them: one that idles still costs a
share of a processor, which the other tests would miss."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest

from tests import hangs


def _load(name):
    """A module beside this file: with pytest's importlib mode test directories are no packages."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="package")
def opensearch():
    """A running OpenSearch node with security: `url`, `ca`, and its administrator's requests."""
    yield from _running("opensearch")


@pytest.fixture(scope="package")
def elasticsearch_node():
    """A running Elasticsearch node with security: `url`, `ca`, and its administrator's requests."""
    yield from _running("elasticsearch_node")


@pytest.fixture(scope="package")
def kafka():
    """A running Kafka broker: its addresses, `ca`, and its administrator's requests."""
    yield from _running("kafka")


@pytest.fixture(scope="package")
def collector():
    """An OpenTelemetry Collector, which each test starts for itself, and a sink for what it hands over."""
    yield from _running("collector")


def _running(name):
    module = _load(name)
    with contextlib.ExitStack() as stack:
        try:
            with hangs.allow(240):
                server = stack.enter_context(module.running())
        except module.Unavailable as why:
            pytest.skip(str(why))
        yield server
