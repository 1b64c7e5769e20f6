"""The API server of tests, restarted, without its etcd, and with a history that is forgotten."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backends import kubernetes as server
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Api, Object, path, until
from tests.backends.kubernetes_widgets import crd, widget

pytestmark = pytest.mark.backend

ROOT = Path(__file__).parents[2]


@contextmanager
def _running(**how: Any) -> Iterator[Kubernetes]:
    try:
        with server.running(**how) as found:
            yield found
    except server.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def mine() -> Iterator[Kubernetes]:
    """A server that the tests of this module may kill."""
    with _running() as found:
        yield found


@pytest.fixture
def configmaps(mine: Kubernetes) -> str:
    mine.start()  # after a test that failed
    return path("configmaps", mine.namespace())


def _make(api: Api, configmaps: str, name: str) -> str:
    return str(api.create(configmaps, {"metadata": {"name": name}})["metadata"]["resourceVersion"])


def test_a_restart_forgets_no_object_and_all_history(mine: Kubernetes, configmaps: str) -> None:
    """This is what an upgrade of the control plane does to the watches of all clients."""
    known = _make(mine.admin, configmaps, "a")
    _make(mine.admin, configmaps, "b")

    mine.restart()

    assert len(mine.admin.items(configmaps)) == 2
    with mine.admin.watch(configmaps, resourceVersion=known, timeoutSeconds="5") as events:
        [event] = events
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_watch_ends_cleanly_when_the_server_is_told_to_end(mine: Kubernetes, configmaps: str) -> None:
    version = _make(mine.admin, configmaps, "a")
    with mine.admin.watch(configmaps, resourceVersion=version, timeoutSeconds="60") as events:
        mine.terminate()

        assert list(events) == []


def test_a_watch_breaks_off_when_the_server_is_killed(mine: Kubernetes, configmaps: str) -> None:
    version = _make(mine.admin, configmaps, "a")
    with mine.admin.watch(configmaps, resourceVersion=version, timeoutSeconds="60") as events:
        mine.kill()

        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            list(events)


def test_a_watch_goes_on_over_a_restart_of_etcd(mine: Kubernetes, configmaps: str) -> None:
    version = _make(mine.admin, configmaps, "a")
    with mine.admin.watch(configmaps, resourceVersion=version, timeoutSeconds="60") as events:
        mine.etcd.kill()
        mine.start_etcd()
        until(lambda: _created(mine.admin, configmaps), "writes work again")

        assert next(events)["object"]["metadata"]["name"] == "b"


def _created(api: Api, configmaps: str) -> bool:
    return api.call("POST", configmaps, {"metadata": {"name": "b"}}).status in (201, 409)


def test_without_etcd_only_the_cache_answers(mine: Kubernetes, configmaps: str) -> None:
    """A client needs a time limit of its own: the server takes half a minute and more to say so."""
    _make(mine.admin, configmaps, "a")
    until(lambda: len(mine.admin.items(configmaps, resourceVersion="0")) == 1, "the cache has it")
    mine.etcd.kill()
    try:
        assert len(mine.admin.items(configmaps, resourceVersion="0")) == 1
        with pytest.raises(TimeoutError):
            mine.admin.call("GET", configmaps, seconds=1)
    finally:
        mine.start_etcd()


def test_a_compacted_version_is_expired_where_nothing_caches_it() -> None:
    with _running(arguments=("--watch-cache-sizes=configmaps#0",)) as mine:
        configmaps = path("configmaps", mine.namespace())
        old = _make(mine.admin, configmaps, "a")
        _make(mine.admin, configmaps, "b")
        _make(mine.admin, configmaps, "c")
        mine.compact()

        with mine.admin.watch(configmaps, resourceVersion=old, timeoutSeconds="5") as events:
            [event] = events
        exact = mine.admin.call("GET", configmaps, resourceVersion=old, resourceVersionMatch="Exact")

    assert event["object"]["code"] == 410
    assert (exact.status, exact.reason) == (410, "Expired")


def test_a_watch_of_a_quiet_kind_is_told_of_newer_versions_if_etcd_tells_them() -> None:
    """Else its version expires with the changes of other kinds. It costs 7 % of a processor: no other server has it."""
    with _running(of_etcd=["--watch-progress-notify-interval=1s"]) as found:
        configmaps = path("configmaps", found.namespace())
        start = found.admin.get(configmaps)["metadata"]["resourceVersion"]
        _make(found.admin, path("configmaps", found.namespace()), "elsewhere")

        how: Object = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "6"}
        for _ in range(
            10
        ):  # a bookmark is due two seconds before the end: a server that begins later than that skips it
            with found.admin.watch(configmaps, **how) as events:
                if bookmark := next(events, None):
                    break

    assert bookmark is not None
    assert bookmark["type"] == "BOOKMARK"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) > int(start)


def test_the_audit_tells_who_asked_for_what() -> None:
    with _running(audit=True) as mine:
        group = "shipper.dev"
        mine.admin.apply([crd(group)])
        widgets = path("widgets", mine.namespace(), api=f"{group}/v1")
        mine.admin.create(widgets, widget("a", api=f"{group}/v1", size=3))
        mine.user(7).call("GET", widgets)

        until(lambda: len(_audited(mine)) == 2, "both are in the audit")
        made, refused = _audited(mine)

    assert (made["verb"], made["user"]["username"], made["responseStatus"]["code"]) == ("create", "admin", 201)
    assert made["requestObject"]["spec"] == {"size": 3}
    assert (refused["verb"], refused["user"]["username"], refused["responseStatus"]["code"]) == ("list", "user-7", 403)


def _audited(mine: Kubernetes) -> list[Object]:
    return [
        e
        for e in mine.audit()
        if e.get("objectRef", {}).get("namespace", "").startswith("test-") and e["objectRef"]["resource"] == "widgets"
    ]


_STARTER = """
import json, sys, time
from tests.backends import kubernetes as server
with server.running() as found:
    print(json.dumps([found.etcd.process.pid, found.apiserver.process.pid]), flush=True)
    time.sleep(600)
"""


def test_the_servers_die_with_the_process_that_started_them(mine: Kubernetes) -> None:
    starter = subprocess.Popen([sys.executable, "-c", _STARTER], cwd=ROOT, stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout is not None
        pids = json.loads(starter.stdout.readline())
        assert all(map(_lives, pids))

        starter.send_signal(signal.SIGKILL)

        until(lambda: not any(map(_lives, pids)), "the servers are dead")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
