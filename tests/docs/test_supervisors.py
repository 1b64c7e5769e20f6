"""The examples of docs/supervisors.md, said to a real sidecar. In a transcript, `…` stands for anything."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, open_destination
from tests.docs.reader import ACCESS, NEW, OLD, PATIENCE, environment, furnish, running, until
from tests.readme import Page
from tests.story.driver import launched

PAGE = Page("docs/supervisors.md")


async def test_the_supervisor_in_one_page_rotates_a_key_and_outlives_its_sidecar(tmp_path: Path) -> None:
    place = furnish(tmp_path, PAGE.files)
    (place / "DIR").mkdir()
    (place / "revoke").write_text('#!/bin/sh -e\necho "$1" >> revoked\n')
    (place / "revoke").chmod(0o700)
    (place / "key").write_text(OLD.fields["api_key"])
    env, revoked = environment(place), place / "revoked"
    async with open_asyncio() as aio, open_destination(aio, keys={OLD, NEW}) as destination:
        text = PAGE.files["policy.yaml"].replace("/var/log/app.log", str(place / "access.log"))
        (place / "policy.yaml").write_text(text.replace("http://127.0.0.1:9200", destination.url))
        with running(place, PAGE.one("sh", "background"), env) as output:
            output.start()
            await _shipped(destination, 5)
            (place / "key").write_text(NEW.fields["api_key"])
            assert output.process is not None
            output.process.send_signal(signal.SIGHUP)
            await until(lambda: revoked.exists() and revoked.read_text() == "key-1\n")
            destination.keys = {NEW}
            os.kill(_sidecar(output.process.pid), signal.SIGKILL)
            with (place / "access.log").open("a") as log:
                log.write(ACCESS)
            await _shipped(destination, 6)
            os.kill(output.process.pid, signal.SIGSTOP)
            for child in _children(output.process.pid):
                os.kill(int(child), signal.SIGTERM)
            os.kill(output.process.pid, signal.SIGTERM)
            os.kill(output.process.pid, signal.SIGCONT)

    assert destination.refused == 0
    assert json.loads((place / "DIR/supervisor.json").read_text())["credentials"].keys() == {"key-2"}


async def _shipped(destination: BulkDestination, events: int) -> None:
    with trio.fail_after(PATIENCE):
        await destination.wait_for(events)


def _sidecar(pid: int) -> int:
    """The child that is no command which revokes."""
    for child in _children(pid):
        with suppress(OSError):  # it has ended meanwhile
            if b"--state" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("there is no sidecar")


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_the_transcript_is_what_a_sidecar_answers(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\n")
    lines = PAGE.one("json", "transcript").text.splitlines()
    async with open_asyncio() as aio, open_destination(aio) as destination, launched(tmp_path / "state") as sidecar:
        heard = 0
        for line in lines:
            direction, text = line[0], line[2:]
            if direction == ">":
                text = text.replace("/var/log/app.log", str(tmp_path / "app.log"))
                if '"revision":2' in text:  # what it drains has been read then, and its output has answered
                    await _shipped(destination, 1)
                await sidecar.send(text.replace("http://127.0.0.1:9200", destination.url).encode())
                continue
            said = await sidecar.wait(lambda m: m["type"] != "observed", since=heard)
            heard = sidecar.said.index(said, heard) + 1

            assert fits(json.loads(text), said), f"{text}\nwas answered by\n{json.dumps(said)}"


def fits(shown: Any, said: Any) -> bool:
    """Whether they are equal, but for what `…` stands for."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(said, dict):
        return shown.keys() == said.keys() and all(fits(shown[key], said[key]) for key in shown)
    if isinstance(shown, list) and isinstance(said, list):
        return len(shown) == len(said) and all(map(fits, shown, said))
    return bool(shown == said)
