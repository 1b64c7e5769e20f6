"""How it stands while something hinders the supervisor: the status, and the lines that people see."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest
import trio

from shipper.protocol.messages import Observed, QueueFigures
from shipper.spool import keys
from shipper.spool.spool import open_spool
from shipper.supervise.conversation import Conversation
from shipper.supervise.ledger import Kept, Ledger, Wait
from shipper.supervise.questions import Status, ask
from shipper.supervise.report import in_words
from shipper.supervise.show import of_status
from shipper.supervise.standing import Troubles, supervision
from shipper.supervise.standing import status as answered
from shipper.values import DeadLetterFigures, Revisions
from tests.supervise.driver import POLICY, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


HEALTHY = Observed(
    state="HEALTHY",
    message="",
    revisions=Revisions(),
    draining=(),
    units=(),
    queue=QueueFigures(events=0, bytes=0, limit_bytes=1, oldest_seconds=0, disk_bytes=0),
    dead_letters=DeadLetterFigures(),
    credentials_in_use=(),
    credentials_wanted=(),
)


def test_a_trouble_degrades_the_whole_until_it_is_over_and_hides_nothing_worse() -> None:
    troubles = Troubles()
    failed = msgspec.structs.replace(HEALTHY, state="FAILED", message="the disk")
    stopping = msgspec.structs.replace(HEALTHY, state="STOPPING")
    assert troubles.whole(None) == ("UNKNOWN", "")
    assert troubles.whole(HEALTHY) == ("HEALTHY", "")

    troubles.begin("the files", ["p.yaml:1:1: wrong"])
    assert troubles.whole(None) == troubles.whole(HEALTHY) == ("DEGRADED", "the files")
    assert troubles.whole(failed) == ("FAILED", "the disk")
    assert troubles.whole(stopping) == ("STOPPING", "")
    assert troubles.rows() == [{"kind": "other", "cause": "the files", "message": "p.yaml:1:1: wrong"}]

    assert troubles.over("the files")
    assert not troubles.over("the files")
    assert troubles.whole(HEALTHY) == ("HEALTHY", "")


def test_a_credential_that_waits_for_one_in_use_is_shown_as_none_that_may_go(tmp_path: Path) -> None:
    old = Kept("es-1", {"username": "ann", "password": "old"}, ["file:/es"], ["outputs.main"], released=True)
    conversation = Conversation(Ledger(kept={"es-1": old}), fresh=False)
    waits = {"es-1": Wait("es-2", "released")}

    pages = supervision(conversation, Troubles(), 0, tmp_path, waits)
    persons = answered(conversation, Troubles(), "running", None, waiting=waits)
    assert (pages["unrevoked"], pages["credentials"][0]["released"]) == (0, False)
    assert (persons["credentials"][0]["released"], persons["credentials"][0]["waits_for"]) == (True, "es-2")


async def status(site: Site) -> dict[str, object]:
    return await trio.to_thread.run_sync(ask, site.state, Status())


@pytest.mark.parametrize("how", ["wrong", "gone"])
async def test_while_the_files_are_not_valid_the_status_is_degraded_with_the_place(site: Site, how: str) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        if how == "wrong":
            site.replace(site.policy, POLICY.replace("hosts", "hots"))
        else:
            site.policy.unlink()
        line = await site.until("invalid")
        bad = await status(site)
        site.replace(site.policy, POLICY)
        valid = await site.until("valid")
        good = await status(site)

    place = f"{site.policy}:5:5: outputs.main.hots: " if how == "wrong" else f"{site.policy}:1:1: cannot be read: "
    title, _ = of_status(bad)[0]
    assert (line["state"], bad["state"]) == ("DEGRADED", "DEGRADED")
    assert title == "shipper: DEGRADED, the files are not a valid policy"
    assert any(row["message"].startswith(place) for row in bad["troubles"])  # type: ignore[attr-defined]
    assert place in str(of_status(bad))
    assert (good["state"], good["troubles"]) == ("HEALTHY", [])
    assert in_words("valid", valid) == ["the files are valid again (revision 1)"]
    assert in_words("invalid", line | {"errors": []}) == [
        "DEGRADED: the files are not a valid policy; the last valid policy runs on"
    ]


async def test_while_on_release_fails_the_status_is_degraded_with_the_reason(site: Site) -> None:
    site.on_release(f"test -e {site.directory}/mended")
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        site.replace(site.secret, "k2:hunter2\n")
        failed = await site.until("revoke_failed")
        bad = await status(site)
        (site.directory / "mended").touch()
        await site.until("revoked")
        good = await status(site)

    assert bad["state"] == failed["state"] == "DEGRADED"
    cause = f"on_release fails for {failed['credential']}"
    assert bad["troubles"] == [{"kind": "on_release", "cause": cause, "message": "exit status 1"}]
    assert (good["state"], good["troubles"]) == ("HEALTHY", [])


async def test_a_status_server_whose_port_is_taken_is_told_in_words_and_by_the_status(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (site.directory / "config.yaml").write_text(f"http: {address}\n")
        async with site.supervisor() as process:
            line = await site.until("unserved")
            bad = await status(site)
            process.send_signal(signal.SIGTERM)
            await site.ended(process)

    assert in_words("unserved", line)[0].startswith(f"DEGRADED: no status server: {address} ")
    assert bad["state"] == "DEGRADED"
    assert address in str(bad["troubles"])


async def test_while_a_secret_is_waited_for_the_status_server_is_not_ready(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    (site.directory / "config.yaml").write_text("http: 127.0.0.1:0\n")
    site.secret.unlink()
    async with site.supervisor() as process:
        await site.until("absent")
        address = (await site.until("ready"))["http"]
        await shown(address, lambda view: view["supervisor"])
        with pytest.raises(HTTPError) as refusal:
            await trio.to_thread.run_sync(lambda: urlopen(f"http://{address}/readyz", timeout=60))
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    reason = "DEGRADED: nothing runs until every secret is present"
    assert (refusal.value.code, json.load(refusal.value)["reason"]) == (503, reason)


async def got(address: str, path: str) -> bytes:
    def get() -> bytes:
        with urlopen(f"http://{address}{path}", timeout=60) as answer:
            return bytes(answer.read())

    return await trio.to_thread.run_sync(get)


async def shown(address: str, wanted: Callable[[Any], Any]) -> dict[str, Any]:
    """What the status server shows, once that is what is wanted."""
    with trio.fail_after(60):
        while not wanted(view := json.loads(await got(address, "/status"))):  # noqa: ASYNC110 (another process)
            await trio.sleep(0.01)
    return dict(view)


async def test_the_status_server_shows_what_hinders_the_supervisor_and_is_ready_since_events_flow(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    config = {"http": "127.0.0.1:0", "on_release": {"command": ["test", "-e", f"{tmp_path}/mended"]}}
    config["release_when"] = "at_once"  # there is no destination
    (site.directory / "config.yaml").write_text(json.dumps(config))
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        address = (await site.until("ready"))["http"]
        good = await shown(address, lambda view: view["supervisor"] and view["state"] == "HEALTHY")
        site.replace(site.policy, POLICY.replace("hosts", "hots"))
        bad = await shown(address, lambda view: view["supervisor"]["troubles"])
        ready = json.loads(await got(address, "/readyz"))
        site.replace(site.policy, POLICY)
        await shown(address, lambda view: not view["supervisor"]["troubles"])
        site.replace(site.secret, "k2:hunter2\n")
        unrevoked = await shown(
            address, lambda view: view["supervisor"]["unrevoked"] and view["supervisor"]["troubles"]
        )
        metrics = (await got(address, "/metrics")).decode().splitlines()
        (site.directory / "mended").touch()
        healed = await shown(address, lambda view: not view["supervisor"]["unrevoked"])
        page = (await got(address, "/")).decode()
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    own = good["supervisor"]
    assert (own["troubles"], own["restarts"], own["unrevoked"]) == ([], 0, 0)
    assert (own["directory"], own["pid"], own["wanted"][1]) == (str(site.state), process.pid, 1)
    assert [(one["name"], one["units"], one["current"]) for one in own["credentials"]] == [
        ("k1", ["outputs.main"], True)
    ]
    assert "hunter" not in str(own)
    assert str(site.secret) not in str(own)
    assert (bad["state"], bad["message"]) == ("DEGRADED", "the files are not a valid policy")
    assert f"{site.policy}:5:5" in str(bad["supervisor"]["troubles"])
    assert ready == {"ready": True, "reason": "DEGRADED: the files are not a valid policy"}
    assert [one["kind"] for one in unrevoked["supervisor"]["troubles"]] == ["on_release"]
    assert [(one["name"], one["released"], one["revoked"]) for one in healed["supervisor"]["credentials"]] == [
        ("k2", False, False),
        ("k1", True, True),
    ]
    for words in (f"revision {healed['supervisor']['wanted'][1]}", "elasticsearch", "in use", "revoked"):
        assert words in page
    for line in (
        'shipper_supervisor_troubles{kind="on_release"} 1.0',
        'shipper_supervisor_troubles{kind="policy"} 0.0',
        "shipper_supervisor_unrevoked_credentials 1.0",
        "shipper_supervisor_restarts_total 0.0",
        'shipper_state{state="DEGRADED"} 1.0',
    ):
        assert line in metrics
    assert healed["state"] == "HEALTHY"


async def test_the_status_server_of_a_sidecar_that_was_started_again_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    (site.directory / "config.yaml").write_text("http: 127.0.0.1:0\n")
    async with site.supervisor() as process:
        await site.until("ack", revision="1", stage="drained")
        os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
        await site.when(lambda: len(site.happened("ready")) == 2)
        view = await shown(site.happened("ready")[1]["http"], lambda view: view["supervisor"])
        told = await status(site)
        process.send_signal(signal.SIGTERM)
        assert await site.ended(process) == 0

    assert view["supervisor"]["restarts"] == 1
    assert told["sidecar"]["restarts"] == 1  # type: ignore[index]


WORDS = "words that may be others tomorrow"
NEWER = json.dumps({"message": WORDS, "code": "state_newer"})
FULL = json.dumps({"message": "the state directory has format 2", "code": "disk_full"})


async def test_a_state_directory_that_cannot_be_used_ends_the_supervisor_with_78_and_one_line(site: Site) -> None:
    (site.fake / "fail").write_text(NEWER)
    async with site.supervisor() as process:
        assert await site.ended(process) == 78
        await site.until("start_failed")

    assert [line["event"] for line in site.lines] == ["watching", "launched", "start_failed"]
    assert in_words("start_failed", site.lines[-1])[0].startswith(f"the sidecar cannot start: {WORDS}; mend that, or ")


async def test_a_start_that_may_succeed_later_is_tried_again_and_its_cause_is_told_once(site: Site) -> None:
    (site.fake / "fail").write_text(FULL)
    async with site.supervisor():
        await site.when(lambda: len(site.happened("ended")) >= 3)
        bad = await status(site)
        (site.fake / "fail").unlink()
        await site.until("ack", revision="1", stage="drained")
        good = await status(site)

    assert len(site.happened("start_failed")) == 1
    assert site.happened("error") == []
    assert (bad["state"], bad["message"]) == ("DEGRADED", "the sidecar cannot start")
    assert (good["state"], good["troubles"]) == ("HEALTHY", [])


async def test_a_sidecar_that_has_run_before_is_never_given_up(site: Site) -> None:
    async with site.supervisor():
        await site.until("ack", revision="1", stage="drained")
        (site.fake / "fail").write_text(NEWER)
        os.kill((await site.until("launched"))["pid"], signal.SIGKILL)
        await site.until("start_failed")
        (site.fake / "fail").unlink()
        await site.when(lambda: len(site.happened("ready")) == 2)


async def test_the_real_sidecar_says_of_a_newer_directory_what_the_supervisor_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    with monkeypatch.context() as newer:
        newer.setattr(keys, "FORMAT", keys.FORMAT + 1)
        async with open_spool(site.state / "sidecar", None):
            pass
    async with site.supervisor() as process:
        assert await site.ended(process) == 78
        line = await site.until("start_failed")

    assert "this version knows formats up to" in line["message"]


def _ail(code: str, message: str) -> str:
    return json.dumps({"code": code, "message": message})


async def test_a_credential_that_was_just_supplied_is_not_told_as_missing(site: Site) -> None:
    async with site.supervisor():
        await site.until("unit", state="HEALTHY")
        await site.when(lambda: site.heard("policy"))
        (id,) = site.heard("policy")[0]["credentials"]
        site.replace(site.fake / "ail", _ail("credential_missing", "words that may be others tomorrow"))
        site.replace(site.fake / "want", id)
        await site.until("supplied")
        site.replace(site.fake / "ail", _ail("unauthorized", "401, events held"))
        site.replace(site.fake / "want", id)
        await site.until("unit", state="DEGRADED")

    assert [line["message"] for line in site.happened("unit")] == ["", "401, events held"]


def test_a_trouble_with_a_path_that_is_not_utf8_can_be_told() -> None:
    troubles = Troubles()
    troubles.begin("the files are not a valid policy", ["/d\udcff/p.yaml:1:1: x"])

    assert [row["message"] for row in troubles.rows()] == ["/d?/p.yaml:1:1: x"]
