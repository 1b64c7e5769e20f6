"""A fleet on a real API server: what people do, and who dies, with the rights that the documentation grants.

The destination judges, as in `test_story_fleet`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.backends.kubernetes import Kubernetes
from tests.fleet.kubernetes import NAMESPACE, install
from tests.readme import ROOT
from tests.story.fleet import Fleet, busy, content, key

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
