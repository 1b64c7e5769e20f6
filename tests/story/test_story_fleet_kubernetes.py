"""A fleet on a real API server: what people do, and who dies, with the rights that the documentation grants.

The destination judges, as in `test_story_fleet`.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from shipper.fleet.records import Version
from shipper.fleet.store import StoreUnreachable
from tests.backends.kubernetes import Kubernetes
from tests.fleet.kubernetes import NAMESPACE, install, running
from tests.readme import ROOT
from tests.story.fleet import PATIENCE, Fleet, busy, content, key

pytestmark = pytest.mark.backend
NAMES = ("web-1", "web-2", "web-3")


@pytest.fixture(scope="module")
def cluster(kubernetes: Kubernetes) -> Kubernetes:
    install(kubernetes)
    return kubernetes


def rules(role: str) -> list[dict[str, Any]]:
    """The rules of a Role in docs/fleet.md."""
    blocks = re.findall(r"^(?: {4}.*\n|\n)+", (ROOT / "docs" / "fleet.md").read_text(), re.MULTILINE)
    (found,) = [block for block in blocks if "kind: Role\n" in block]
    roles = {one["metadata"]["name"]: one for one in yaml.safe_load_all(found.replace("\n    ", "\n"))}
    return list(roles[role]["rules"])


async def shipped(fleet: Fleet, *words: str) -> str:
    """What `shipper fleet …` says that succeeds."""
    status, said = await fleet.order(*words)
    assert status == 0, said
    return said


async def test_people_publish_rotate_and_roll_back_while_a_host_dies(tmp_path: Path, cluster: Kubernetes) -> None:
    async with busy(tmp_path, cluster) as fleet:
        cluster.grant(NAMESPACE, "user-1", rules("shipper-fleet"))
        cluster.kubeconfig(tmp_path / "kubeconfig", cluster.user_token(1))
        policy, secret = tmp_path / "policy.yaml", tmp_path / "es.key"
        for name in NAMES:
            fleet.host(name, releases=name != "web-3", lease="3s")
        assert fleet.destination.keys is not None
        fleet.destination.keys |= {key("k1"), key("k2")}
        policy.write_text(fleet.policy())
        secret.write_bytes(content("k1"))
        await shipped(fleet, "secret", "set", "es", "--file", str(secret))
        published = await shipped(fleet, "publish", str(policy), "--wait", "drained", "--timeout", "60s")
        everywhere = await shipped(fleet, "wait", "1", "--timeout", "60s")
        await fleet.ships(*NAMES)

        fleet.hosts["web-3"].kill()
        secret.write_bytes(content("k2"))
        await shipped(fleet, "secret", "set", "es", "--file", str(secret))
        absent, early = None, fleet.runs(fleet.begun)
        while absent is None or absent[0]["kind"] != "absent":
            status, said = await fleet.order("wait", "2", "--timeout", "8s", "--json")
            absent = json.loads(said.splitlines()[0])["members"]
            assert status == 3, said
        shown = await shipped(fleet, "status")
        early += fleet.runs(fleet.begun)
        fleet.hosts["web-3"].start()
        rotated = await shipped(fleet, "wait", "2", "--timeout", "60s")
        (run,) = await fleet.until(fleet.runs)

        back = await shipped(fleet, "rollback", "1")
        await shipped(fleet, "wait", "3", "--timeout", "60s")
        history = json.loads(await shipped(fleet, "history", "--json"))
        await fleet.ships(*NAMES)
        await fleet.delivered()

    assert "version 1" in published
    assert "every member has reached it" in everywhere
    assert "3 of 3 reached" in everywhere
    assert [(one["name"], one["kind"]) for one in absent] == [("web-3", "absent")]
    assert "web-3" in shown
    assert early == []
    assert "3 of 3 reached" in rotated
    assert run.name == "k1"
    assert "version 3" in back
    assert history["newest"] == "3"
    assert fleet.uses("k1", run.at) == 0


@pytest.fixture
def own() -> Iterator[Kubernetes]:
    """A server that a test may kill."""
    with running() as found:
        yield found


async def test_hosts_ship_on_while_the_server_is_away_and_agree_when_it_is_back(
    tmp_path: Path, own: Kubernetes
) -> None:
    async with busy(tmp_path, own) as fleet:
        one = await fleet.begin()
        for name in NAMES:
            fleet.host(name, lease="3s")
        await fleet.started(one, *NAMES)
        own.stop()
        await fleet.ships(*NAMES, lines=50)
        status = await trio.to_thread.run_sync(fleet.hosts["web-1"].status)
        await trio.to_thread.run_sync(own.start)
        two = await fleet.until(lambda: _rotated(fleet))
        await fleet.opens(two, *NAMES)
        own.kill()
        await fleet.ships(*NAMES, lines=50)
        await trio.to_thread.run_sync(own.start)
        three = await fleet.publish(fleet.policy(timeout="3s"))
        await fleet.opens(three, *NAMES)
        await fleet.delivered()

    assert status["troubles"]
    assert [len(host.said("launched")) for host in fleet.hosts.values()] == [1, 1, 1]


async def _rotated(fleet: Fleet) -> Version | None:
    try:
        return await fleet.rotate("k2")
    except StoreUnreachable:
        return None


def test_a_question_that_waits_ends_by_ctrl_c_in_one_line(tmp_path: Path, cluster: Kubernetes) -> None:
    key_file = tmp_path / "fleet.key"
    key_file.write_text(base64.b64encode(b"k" * 32).decode())
    key_file.chmod(0o600)
    store = {"kubeconfig": str(cluster.kubeconfig(tmp_path / "kubeconfig"))}
    section = {"name": "waits", "kubernetes": store, "keys": [{"file": str(key_file)}]}
    (tmp_path / "supervise.yaml").write_text(json.dumps({"fleet": section}))
    command = [sys.executable, "-m", "shipper", "fleet", "status", "--watch", "--json"]
    command += ["--config", str(tmp_path / "supervise.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)

    assert json.loads(shown)["name"] == "waits"
    assert (process.returncode, err) == (130, "")
