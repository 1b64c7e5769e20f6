"""The demo of a fleet, as a user starts it, and the parts that judge it: they must be able to find something wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.sdk.errors import ShipperError
from shipper_demo import etcd
from shipper_demo.fleet import HOSTS, Story
from shipper_demo.key import Key
from shipper_demo.replacement import Replacement
from shipper_demo.revoking import Wish
from shipper_demo.screen import Screen
from tests.demos import PATIENCE, columns, demo, figure, lines, printed, processes_of, rest

FLEET = [sys.executable, "-m", "shipper", "demo", "fleet"]


@pytest.fixture
def installed() -> None:
    """Skips where there is no etcd."""
    try:
        etcd.program(None)
    except ShipperError as why:
        pytest.skip(str(why))


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
async def test_five_hosts_replace_their_key_through_a_kill_a_hang_and_an_election(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    async with demo(tmp_path, "--rate", "100", "--keep", str(kept), command=FLEET) as process:
        text = await rest(process, seconds=150)

    assert process.returncode == 0, text
    written = [len((kept / name / "access.log").read_text().splitlines()) for name in HOSTS]
    assert columns(text, "lines written") == columns(text, "arrived") == written
    assert min(written) > 500
    assert [columns(text, name) for name in ("lost", "twice")] == [[0] * 5] * 2
    assert [figure(text, name) for name in ("requests refused", "late uses", "sent while fenced")] == [0, 0, 0]
    assert figure(text, "keys revoked") == 1
    elected, killed = re.findall(r"(\w+) is elected for on_release|and (\w+), the elected host, is killed", text)
    assert elected[0] == killed[1]
    assert not re.search(rf"the old key is revoked +by {elected[0]}", text)
    assert re.search(r"waited for +berlin +\d+\.\d s  absent", text)
    assert re.search(r"did not wait for +paris +\d+\.\d s  fenced", text)
    assert "fleet wait ends with status 0" in text
    assert "\x1b" not in text
    assert not processes_of(kept)


@pytest.mark.usefixtures("installed")
async def test_interrupted_while_hosts_are_killed_it_starts_them_again_and_counts(tmp_path: Path) -> None:
    async with demo(tmp_path, "--rate", "100", command=FLEET) as process:
        text = await printed(process, "the elected host, is killed")
        process.send_signal(signal.SIGINT)
        text = await rest(process, text, seconds=120)

    assert process.returncode == 0, text
    assert columns(text, "lost") == [0] * 5
    assert figure(text, "keys revoked") == 1
    assert not processes_of(tmp_path)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found by /proc")
@pytest.mark.usefixtures("installed")
async def test_killed_while_a_host_hangs_it_leaves_no_process_behind(tmp_path: Path) -> None:
    async with demo(tmp_path, command=FLEET) as process:
        await printed(process, "paris hangs")
        process.kill()
        await process.wait()
    with trio.fail_after(PATIENCE):
        while processes_of(tmp_path):  # noqa: ASYNC110 (they are not ours to wait for)
            await trio.sleep(0.05)


# -- etcd --------------------------------------------------------------------------------------------------------------


async def test_an_etcd_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    async with demo(tmp_path, "--etcd", str(tmp_path / "missing"), command=FLEET) as process:
        text = await rest(process)

    assert (process.returncode, text) == (1, f"shipper: --etcd {tmp_path}/missing: there is no such program\n")


async def test_an_etcd_that_ends_at_once_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    program.chmod(0o700)
    async with demo(tmp_path / "etcd", "--etcd", str(program), command=FLEET) as process:
        process_text = await rest(process)

    assert process.returncode == 1
    assert "etcd has ended (status 3)" in process_text
    assert "no room" in process_text


# -- what is judged ----------------------------------------------------------------------------------------------------


def told(tmp_path: Path) -> tuple[Story, StringIO]:
    """A story of which all went as promised, for hosts that have written nothing."""
    stream = StringIO()
    story = Story(tmp_path, 1, Screen(stream), trio.Event())
    made = story.replacement
    made.published("2", 1.0)
    made.released(Wish(made.old.name, 7, "rome"), 0)
    made.revoked(401, 9.0)
    made.drained(0, {}, 5.0)
    story.sent_while_fenced = 0
    return story, stream


@pytest.mark.parametrize(("at_the_release", "late"), [(3, 0), (2, 1)])
async def test_a_use_of_the_old_key_after_its_release_is_seen(tmp_path: Path, at_the_release: int, late: int) -> None:
    story, stream = told(tmp_path)
    old, new = story.replacement.old, story.replacement.new
    story.hosts["paris"].wire.uses.update({old.authorization: 3, new.authorization: 4})
    story.replacement.used = at_the_release

    assert await story.conclude() is (late == 0)
    assert figure(stream.getvalue(), "late uses") == late


async def test_a_line_that_a_host_lost_is_seen(tmp_path: Path) -> None:
    story, stream = told(tmp_path)
    story.hosts["lima"].log.written = 1

    assert not await story.conclude()
    assert columns(stream.getvalue(), "lost") == [0, 0, 0, 0, 1]


async def test_a_line_that_came_under_two_ids_is_seen(tmp_path: Path) -> None:
    story, stream = told(tmp_path)
    (line,) = lines(tmp_path, 1)
    event = {"message": line, "data_stream": {"dataset": "rome"}}
    (tmp_path / "destination").mkdir()
    record = tmp_path / "destination" / "record.ndjson"
    record.write_text("".join(json.dumps(event | {"_id": id}) + "\n" for id in "ab"))
    story.hosts["rome"].log.written = 1

    assert not await story.conclude()
    assert columns(stream.getvalue(), "twice") == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("change", "name", "number"),
    [
        (lambda story: setattr(story, "sent_while_fenced", 1), "sent while fenced", 1),
        (lambda story: setattr(story.replacement, "refused", 200), "keys revoked", 0),
        (lambda story: setattr(story.replacement, "refused", None), "keys revoked", 0),
        (lambda story: story.hosts["oslo"].wire.answers.update([401]), "requests refused", 1),
        (lambda story: story.replacement.drained(3, {}, 6.0), "fleet wait", 3),
    ],
    ids=["sent without a lease", "still taken", "never revoked", "refused", "never drained"],
)
async def test_whatever_is_not_as_promised_is_seen(tmp_path: Path, change: Any, name: str, number: int) -> None:
    story, stream = told(tmp_path)
    change(story)

    assert not await story.conclude()
    assert figure(stream.getvalue(), name) == number


def test_a_member_whose_token_is_lower_may_revoke_nothing() -> None:
    made = Replacement(Key("old", "s"), Key("new", "s"))
    made.released(Wish("old", 5, "rome"), 0)

    assert [made.may_revoke(Wish("old", token, "oslo")) for token in (4, 5, 6)] == [False, True, True]
    assert not made.may_revoke(Wish("new", 6, "oslo"))
