"""The end of the supervisor, at moments and beside sidecars that are hard to come by."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trio

from shipper.supervise.agent import supervise
from shipper.supervise.child import Child
from shipper.supervise.config import Config
from shipper.supervise.options import Options
from shipper.supervise.report import Report
from tests.supervise.driver import FAKE, Site, told


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_sidecar_that_is_being_launched_when_the_signal_comes_is_stopped_in_order(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes up the policy, and is killed for not ending by itself."""
    launch = Child.launch
    manager = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM)
    await manager.bind(str(site.directory / "notify"))

    async def interrupted(command: Sequence[str], environment: Mapping[str, str]) -> Child:
        os.kill(os.getpid(), signal.SIGTERM)
        while await manager.recv(100) != b"STOPPING=1":
            continue
        return await launch(command, environment)

    monkeypatch.setattr(Child, "launch", interrupted)
    options = Options([site.policy], site.state, Config(sidecar=(sys.executable, str(FAKE))))
    environment = {**os.environ, "NOTIFY_SOCKET": str(site.directory / "notify")}
    with manager, (site.directory / "out").open("w+") as out, trio.fail_after(60):
        report = Report(out.fileno(), json=True)
        assert await supervise(options, environment, report) == 0
        assert report.flush()

    events = [told(line)["event"] for line in (site.directory / "out").read_text().splitlines()]
    assert events[:3] == ["watching", "stopping", "launched"]
    first, second, *_ = map(json.loads, (site.fake / "heard.jsonl").read_text().splitlines())
    assert (first["type"], second) == ("hello", {"type": "stop", "within_seconds": 20.0})


async def test_a_sidecar_that_starts_when_the_signal_comes_is_sent_no_policy(site: Site) -> None:
    site.fake.mkdir(parents=True, exist_ok=True)
    (site.fake / "slow").touch()
    async with site.supervisor() as process:
        await site.until("launched")
        process.send_signal(signal.SIGTERM)
        await site.until("stopping")
        (site.fake / "slow").unlink()
        assert await site.ended(process) == 0

    assert site.happened("ready")
    assert site.happened("sent") == site.heard("policy") == []


async def test_what_holds_up_the_end_is_told(site: Site) -> None:
    keeper = f'sleep 20 2>/dev/null & exec {sys.executable} {FAKE} "$@"'
    (site.directory / "config.yaml").write_text(json.dumps({"sidecar": ["sh", "-c", keeper, "sh"]}))
    site.arguments = ["--grace", "0s"]
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        process.send_signal(signal.SIGTERM)
        assert (await site.until("killed"))["reason"] == "the sidecar does not end"
        assert await site.ended(process) == 1
