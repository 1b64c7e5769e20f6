"""When members answer, and when a question ends: hosts that are slow, late, or cut off, and callers that go away."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.backends.etcd import Etcd
from tests.story.fleet import PATIENCE, ask, busy, read, wired

pytestmark = pytest.mark.backend
PATIENCE_TEXT = f"{PATIENCE:g}s"


async def test_t152_3_and_9_a_member_answers_only_what_its_sidecar_did_and_ends_with_a_version_that_overtakes(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        fleet.host("web-1")
        slow = fleet.host("web-2")
        await fleet.started(one, "web-1", "web-2")
        refused = fleet.hold_back("web-2")
        await fleet.until(lambda: refused)  # what was refused lies before each barrier that follows
        slow.pause_sidecar()
        two = await fleet.rotate("k2")
        await fleet.started(two, "web-1")
        await fleet.until(lambda: "2" in [said["version"] for said in slow.said("fleet_version")])
        supplied = (await fleet.report("web-2")).stages  # type: ignore[union-attr]
        three = await fleet.rotate("k3")
        slow.go_on()
        active = await fleet.wait(three, "active")
        await fleet.started(three, "web-1")
        closed = await fleet.wait(two, seconds=0), await fleet.wait(three, seconds=0)
        before = [said["revision"] for said in slow.said("ack", stage="drained")]
        fleet.destination.script = None
        await fleet.opens(two, "web-1", "web-2")
        await fleet.opens(three, "web-1", "web-2")
        report = await fleet.report("web-2")
        await fleet.delivered()

    assert supplied == dict.fromkeys(("received", "active", "drained"), one), "a sidecar that hangs answers nothing"
    assert (active.state, active.counts) == ("open", {"reached": 2})
    for verdict in closed:
        assert (verdict.state, [(member.name, member.kind) for member in verdict.members]) == (
            "closed",
            [("web-2", "waiting")],
        )
    assert len(before) == 1, "it has drained the first version only"
    assert report is not None
    assert report.stages == dict.fromkeys(("received", "active", "drained"), three)
    assert len(slow.said("launched")) == 1
    assert fleet.destination.refused == 0


async def test_the_page_of_a_host_says_of_all_hosts_who_is_behind_and_why(tmp_path: Path, etcd: Etcd) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        fleet.host("web-1")
        fleet.host("web-2")
        await fleet.started(one, "web-1", "web-2")
        refused = fleet.hold_back("web-2")
        await fleet.until(lambda: refused)
        two = await fleet.rotate("k2")
        await fleet.started(two, "web-1")
        addresses = [(await fleet.report(name)).http for name in ("web-1", "web-2")]  # type: ignore[union-attr]
        await fleet.until(partial(_says, addresses[0], "1 drained, 1 active"))
        pages = [await read(address, "/") for address in addresses]
        fleet.destination.script = None
        await fleet.opens(two, "web-1", "web-2")
        await fleet.until(partial(_says, addresses[0], "2 drained"))
        await fleet.delivered()

    for page in pages:
        for words in (b"web-2", b"waiting", b"1 version behind, active, not yet drained"):
            assert words in page, words
    assert b"503 Service Unavailable" in pages[1]
    assert b"drained: waits for" in pages[1]
    assert b"may go" not in pages[0], "the other host needs it still"
    assert b"not used here any more" in pages[0]
    assert b"drained: waits for" not in pages[0]


async def _says(address: str, words: str) -> bool:
    return words.encode() in await read(address, "/")


async def test_t152_12_and_14_a_question_has_an_end_leaves_nothing_behind_and_misses_no_answer_for_a_compaction(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with wired(etcd.nodes[0].port) as wire, busy(tmp_path, etcd) as fleet, trio.open_nursery() as nursery:
        one = await fleet.begin()
        fleet.host("web-1")
        fleet.host("web-2", etcd=[f"http://127.0.0.1:{wire.port}"])
        config = fleet.hosts["web-1"].directory / "supervise.yaml"
        await fleet.started(one, "web-1", "web-2")
        address = (await fleet.report("web-2")).http  # type: ignore[union-attr]
        watchers = etcd.watchers
        unknown = [await fleet.order("wait", version, "--timeout", PATIENCE_TEXT, "--json") for version in ("9", "1.1")]

        # callers that go away
        command = [sys.executable, "-m", "shipper", "fleet", "wait", "2", "--timeout", PATIENCE_TEXT]
        slow = fleet.hold_back("web-1")
        await fleet.until(lambda: slow)
        two = await fleet.rotate("k2")
        await fleet.started(two, "web-2")
        run = partial(trio.run_process, [*command, "--config", str(config)], check=False, capture_stderr=True)
        callers = [await nursery.start(run) for _ in range(2)]
        streams = [await trio.open_tcp_stream(*_parts(address)) for _ in range(2)]
        for stream in streams:
            await stream.send_all(f"GET /fleet/versions/2?wait=60s HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        await fleet.until(lambda: etcd.watchers >= watchers + 3)
        for caller, number in zip(callers, (signal.SIGINT, signal.SIGKILL), strict=True):
            caller.send_signal(number)
        for stream in streams:
            await trio.aclose_forcefully(stream)
        statuses = [await caller.wait() for caller in callers]
        await fleet.until(lambda: etcd.watchers <= watchers)

        # the history that a watch needs is gone when it is back
        answers: list[Any] = []

        async def ask_and_wait() -> None:
            answers.append(await ask(address, f"/fleet/versions/2?wait={PATIENCE_TEXT}"))

        nursery.start_soon(ask_and_wait)
        await fleet.until(lambda: etcd.watchers > watchers)
        wire.cut()
        fleet.destination.script = None
        await fleet.started(two, "web-1")
        await trio.to_thread.run_sync(etcd.compact)
        three = await fleet.rotate("k3")
        await fleet.started(three, "web-1")
        await trio.to_thread.run_sync(etcd.compact)
        wire.mend()
        await fleet.until(lambda: answers)
        await fleet.opens(three, "web-1", "web-2")
        await fleet.delivered()

        # nobody is left
        for host in fleet.hosts.values():
            host.kill()
        four = await fleet.publish(fleet.policy())
        closed = await fleet.order("wait", str(four.number), "--timeout", "0s")
        forgotten = [await fleet.order("forget", name, "--force") for name in ("web-1", "web-2")]
        empty = await fleet.order("wait", str(four.number), "--timeout", "0s")

    assert slow
    assert [status for status, _ in unknown] == [5, 5]
    assert [json.loads(said.splitlines()[0])["state"] for _, said in unknown] == ["unknown", "unknown"]
    assert statuses[1] == -signal.SIGKILL
    assert [(status, said["state"], said["triple"]) for status, said in answers] == [(200, "open", list(two))]
    assert [closed[0], *(status for status, _ in forgotten), empty[0]] == [3, 0, 0, 0]
    assert "no members" in empty[1]


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
