"""The file of a state key that is absent when the supervisor starts."""

from __future__ import annotations

import base64
import json
import signal
import sys
from pathlib import Path

import pytest
import trio

from shipper.supervise.questions import Order, Status, ask
from shipper.supervise.report import in_words
from shipper.supervise.show import of_status
from tests.supervise.driver import FAKE, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose state key is not there."""
    site = Site(tmp_path)
    settings = {"sidecar": [sys.executable, str(FAKE)], "state_key": {"file": "key"}}
    (site.directory / "config.yaml").write_text(json.dumps(settings))
    return site


async def test_it_is_waited_for_in_sight_of_all_and_then_seals_everything(site: Site) -> None:
    async with site.supervisor() as process:
        line = await site.until("key_absent")
        waiting = await trio.to_thread.run_sync(ask, site.state, Status())
        order = await trio.to_thread.run_sync(ask, site.state, Order("drop"))
        assert list(site.fake.iterdir()) == []
        site.replace(site.directory / "key", base64.b64encode(b"k" * 32).decode())
        await site.until("ack", revision="1", stage="drained")
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    assert in_words("key_absent", line)[0].startswith("DEGRADED: nothing runs until the state key is present; ")
    assert f"{site.directory}/key: No such file" in line["message"]
    assert of_status(waiting)[0][0] == "shipper: DEGRADED, nothing runs until the state key is present"
    assert order["status"] == "FAILED"
    assert len(site.happened("key_absent")) == 1
    assert site.heard("hello")[0]["state_keys"][0]["key"] == base64.b64encode(b"k" * 32).decode()
    assert not (site.state / "supervise.key").exists()


async def test_what_is_no_key_yet_is_told_and_waited_out(site: Site) -> None:
    async with site.supervisor():
        await site.until("key_absent")
        site.replace(site.directory / "key", "half of i")
        await site.when(lambda: len(site.happened("key_absent")) == 2)
        site.replace(site.directory / "key", base64.b64encode(b"k" * 32).decode())
        await site.until("ack", revision="1", stage="drained")

    assert "is not 32 bytes in base64" in site.happened("key_absent")[1]["message"]


async def test_who_waits_can_be_stopped_and_owns_the_directory(site: Site) -> None:
    async with site.supervisor() as process:
        await site.until("key_absent")
        second = await trio.run_process(site.command(), check=False, capture_stderr=True, env=site.environment)
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    assert second.returncode == 75


async def test_once_does_not_wait(site: Site) -> None:
    site.arguments = ["--once"]
    async with site.supervisor() as process:
        assert await site.ended(process) == 78
