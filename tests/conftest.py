"""Rules for all tests: an environment without surprises, and no silent skips where nobody would notice them."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import forks, needs

if TYPE_CHECKING:
    from tests.backends.kubernetes import Kubernetes

pytest_plugins = ("tests.hangs", "tests.prove.measured", "tests.selection")

# How fast a machine is says nothing of a property.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", settings.get_profile("full"), max_examples=30)
settings.load_profile("short")

# They outrank the throwaway authorities of tests: loopback TLS would fail on a machine that sets them.
for _name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
    os.environ.pop(_name, None)

for _name in ("COLUMNS", "LINES"):  # pytest's workers set them
    os.environ.pop(_name, None)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process that a test starts would compile us anew, in 0.12 s

gc.disable()  # until all is collected, which lives to the end

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background

forks.install()

_servers = []
"""The API server of `kubernetes`, once there is one: without a request it takes a tenth of a processor."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with forks.off() if item.get_closest_marker("executed") else nullcontext():
        try:
            return (yield)
        finally:
            if log := sys.modules.get("shipper.process.log"):  # not imported here: its branches are measured
                log._log.secrets.clear()  # a secret of one test may be a word that another one looks for


def pytest_collection_finish():
    gc.freeze()  # each full collection would walk through it, for 0.3 s
    gc.enable()


def pytest_unconfigure():
    forks.close()


def pytest_runtest_setup(item):
    if _uses_server(item):
        for server in _servers:
            server.start()
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    for marker in item.iter_markers("needs"):
        needs.require(*marker.args)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or not (_uses_server(nextitem) or nextitem.path == item.path):
        for server in _servers:
            server.stop()


def _uses_server(item):
    return "kubernetes" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """In CI a skipped test is a failure: what must not run is deselected by `-m`, which says so in the command."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter and os.environ.get("CI") else []
    if skipped and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("CI"):
        terminalreporter.section("skipped, which fails in CI")
        for report in skipped[:20]:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            terminalreporter.line(f"{report.nodeid}: {reason}")
        if len(skipped) > 20:
            terminalreporter.line(f"and {len(skipped) - 20} more")


@pytest.fixture(scope="session")
def kubernetes() -> "Iterator[Kubernetes]":
    """An API server for all tests that neither stop it nor change its flags, each with a `namespace` of its own.

    It is stopped where a test that does not ask for it follows, and started again for one that does.
    """
    from tests import hangs
    from tests.backends import kubernetes as server

    with ExitStack() as stack:
        try:
            with hangs.allow(120):
                found = stack.enter_context(server.running())
        except server.Unavailable as why:
            pytest.skip(str(why))
        _servers.append(found)
        yield found
        _servers.clear()


@pytest.fixture
def namespace(kubernetes: "Kubernetes") -> str:
    """The name of a namespace of `kubernetes` that no other test has."""
    return kubernetes.namespace()
