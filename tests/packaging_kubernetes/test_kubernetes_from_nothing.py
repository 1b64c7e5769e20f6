"""`docs/kubernetes.md` is done as it is written, with kubectl and with shippers of the manifests. The info says how:

sh              run in the order of the text, in one directory; kubectl is that of an administrator
sh nodes        the same, and two nodes run the Pods of the DaemonSet from then on
sh rotation     the same, and the destination takes only the new key from its end on
sh gone         the same, after one node has been shut down for ever
text output     what the last command before it has printed, with other times and versions
… file=NAME     written to that file of the directory before anything runs
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.testing import open_destination
from shipper.testing.destination import BulkDestination
from tests.backends import kubernetes as server
from tests.backends import kubernetes_roles as roles
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_api import Object, path, until
from tests.packaging_kubernetes import nodes
from tests.packaging_kubernetes.document import BLOCKS, FILES

OLD = Credential.parse({"api_key": "key1:s3cret"})
NEW = Credential.parse({"api_key": "key2:s3cret"})
NAMES = ["node-1", "node-2"]
PATIENCE = 240.0


class Desk:
    """Where a platform engineer sits."""

    def __init__(self, kubernetes: Kubernetes, place: Path, url: str) -> None:
        self.kubernetes, self.place = kubernetes, place
        self.logs = place / "logs"
        self.logs.mkdir()
        programs = place / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(roles.KUBECTL)
        (programs / "shipper").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shipper "$@"\n')
        (programs / "shipper").chmod(0o755)
        shutil.copytree(roles.PACKAGING, place / "packaging/kubernetes")
        for name, text in FILES.items():
            (place / name).write_text(self._here(text, url))
        (place / "es.key").write_text(OLD.fields["api_key"])
        (place / "new.key").write_text(NEW.fields["api_key"])
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubernetes.kubeconfig(place / "kubeconfig")),
            "HOME": str(place),
        }

    def _here(self, text: str, url: str) -> str:
        return text.replace("https://es.example.com:9200", url).replace("/var/log/", f"{self.logs}/")

    def write(self, line: str) -> None:
        (self.logs / "web").mkdir(exist_ok=True)
        with (self.logs / "web" / "access.log").open("a") as log:
            log.write(f"{line}\n")

    def run(self, text: str) -> str:
        """Returns what the commands have printed; shows all of it when one fails."""
        text = self._here(text, "")
        ended = subprocess.run(
            ["sh", "-euc", text], cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}\n{self.seen()}"
        return ended.stdout

    def seen(self) -> str:
        """What a person would look at next."""
        asked = ["get", "shippermembers,shipperpolicies,shippersecrets,leases", "-n", "logging", "-o", "yaml"]
        told = subprocess.run([roles.KUBECTL, *asked], env=self.environment, capture_output=True, text=True).stdout
        logs = [f"{file}: {file.read_text()[-3000:]}" for file in self.place.glob("node-*/log")]
        return "\n".join([told[-20000:], *logs])

    @contextmanager
    def nodes(self) -> Iterator[dict[str, nodes.Node]]:
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        with nodes.started(self.kubernetes, "logging", "daemonsets/shipper", self.place, NAMES, environment) as running:
            yield running

    async def registered(self) -> None:
        where = path("shippermembers", "logging", api=roles.SHIPPER)

        def states() -> list[object]:
            answer = self.kubernetes.admin.call("GET", where)  # 404 or 429 until a new kind is served
            return [one.get("status", {}).get("state") for one in answer.body.get("items", ())]

        def done() -> None:
            until(lambda: states() == ["running"] * len(NAMES), "every shipper has registered", PATIENCE)

        await trio.to_thread.run_sync(done)


@pytest.fixture
def audited() -> Iterator[Kubernetes]:
    """A server of its own, since the document begins with nothing."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(server.running(audit=True))
        except server.Unavailable as why:
            pytest.skip(str(why))
        yield found


async def test_what_the_document_says_is_what_happens(audited: Kubernetes, tmp_path: Path) -> None:
    kubernetes = audited
    async with open_asyncio() as aio, open_destination(aio, keys={OLD, NEW}) as destination:
        desk = await trio.to_thread.run_sync(Desk, kubernetes, tmp_path, destination.url)
        with ExitStack() as stack:
            running: dict[str, nodes.Node] = {}
            said = ""
            desk.write("before")
            for block in BLOCKS:
                if block.language == "text":
                    assert_alike(said, block.text)
                elif block.language == "sh":
                    if block.info == "gone":
                        await trio.to_thread.run_sync(running["node-2"].stop)
                    said = await trio.to_thread.run_sync(desk.run, block.text)
                    if block.info == "nodes":
                        running = await trio.to_thread.run_sync(lambda: stack.enter_context(desk.nodes()))
                        await desk.registered()
                        await probed(running, ready=503)
                    elif block.info == "rotation":
                        await probed(running, ready=200)
                        await written_with_the_new_key(desk, destination)
            assert destination.refused == 0
    asked = [entry for entry in kubernetes.audit() if entry["user"]["username"].endswith(":logging:shipper")]
    used = {_right(entry) for entry in asked}
    granted = set(rights(roles.MEMBER)) | set(rights(roles.LEADER))

    assert [entry for entry in asked if entry.get("responseStatus", {}).get("code") == 403] == []
    assert sorted(granted - used - RARE) == []
    assert used - granted == {("secrets", verb) for verb in ("get", "list", "watch")}


RARE = {
    ("shippermembers", "delete"),  # of Pods that are gone, as are their Leases, which `pods` tells
    ("leases", "delete"),
    ("pods", "get"),
    ("shippermembers", "patch"),  # of a member whose Pod is another one than before
    ("shipperpolicies", "list"),  # by servers that do not give objects in a watch
    ("shippersecrets", "list"),
    ("shippersecrets", "get"),  # after a conflict
}
"""Rights for which the document has no occasion."""


def rights(role: str) -> Iterator[tuple[str, str]]:
    (found,) = [one for one in roles.rendered() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role]
    for rule in found["rules"]:
        yield from ((resource, verb) for resource in rule["resources"] for verb in rule["verbs"])


def _right(entry: Object) -> tuple[str, str]:
    """What a request needed."""
    of = entry.get("objectRef", {})
    resource = "/".join(part for part in (of.get("resource", ""), of.get("subresource", "")) if part)
    return resource, entry["verb"]


async def probed(running: dict[str, nodes.Node], *, ready: int) -> None:
    """A kubelet never restarts a shipper, also before a policy selects it."""
    kinds = {"startupProbe": 200, "livenessProbe": 200, "readinessProbe": ready}
    for node in running.values():
        for kind, expected in kinds.items():
            assert await trio.to_thread.run_sync(node.probe, kind) == expected


async def written_with_the_new_key(desk: Desk, destination: BulkDestination) -> None:
    """The old one is revoked; what comes after that is delivered."""
    destination.keys = {NEW}
    before = sum(len(found) for found in destination.documents.values())
    desk.write("after")
    with trio.fail_after(PATIENCE):
        await destination.wait_for(before + 1)


def assert_alike(said: str, shown: str) -> None:
    """The last lines have the same columns and cells, but for times and versions."""
    expected = [varying(line) for line in shown.splitlines()]

    assert [varying(line) for line in said.splitlines()][-len(expected) :] == expected


def varying(line: str) -> list[str]:
    return [re.sub(r"^(\d+[smh])+$|^\d{2,}$", "N", cell) for cell in line.split()]
