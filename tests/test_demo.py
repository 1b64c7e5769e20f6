"""The demo, as a user starts it, and the parts that judge it: they must be able to find something wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import trio

import shipper_demo
from shipper.testing.destination import Document
from shipper_demo.backend import Record
from shipper_demo.destination import opened
from shipper_demo.key import Key
from shipper_demo.relay import Story
from shipper_demo.rotation import Rotations
from shipper_demo.screen import Screen
from shipper_demo.tally import Tally
from tests.demos import PATIENCE, columns, demo, figure, lines, printed, processes_of, rest

RELAY = [sys.executable, "-m", "shipper", "demo", "relay"]


# -- the whole ---------------------------------------------------------------------------------------------------------


async def test_it_rotates_and_every_figure_is_as_promised(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    async with demo(tmp_path, "--seconds", "4", "--every", "1", "--keep", str(kept)) as process:
        text = await rest(process)

    assert process.returncode == 0, text
    assert figure(text, "lines written") == figure(text, "delivered") > 50_000
    assert [figure(text, name) for name in ("lost", "duplicates", "requests refused")] == [0, 0, 0]
    assert figure(text, "keys revoked") == 3
    assert len(re.findall(r"shipper-\d revoked \d+ ms later: 401$", text, re.MULTILINE)) == 3
    assert "As promised" in text
    assert json.loads((kept / "shipper.schema.json").read_text())["$defs"]
    assert (kept / "policy.yaml").read_text().startswith("# yaml-language-server: $schema=shipper.schema.json\n")
    assert "\x1b" not in text
    assert not processes_of(kept)
    written = (kept / "access.log").read_text().splitlines()
    record = [json.loads(line) for line in (kept / "destination" / "record.ndjson").read_text().splitlines()]
    assert sorted(event["message"] for event in record) == sorted(written)


async def test_an_interrupt_ends_it_in_order_with_the_count(tmp_path: Path) -> None:
    async with demo(tmp_path, "--seconds", "600", "--every", "0.5") as process:
        text = await printed(process, "shipper-2 revoked|shipper-1 revoked")
        process.send_signal(signal.SIGINT)
        text = await rest(process, text)

    assert process.returncode == 0, text
    assert figure(text, "lost") == 0
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found by /proc")
async def test_killed_it_leaves_no_process_behind(tmp_path: Path) -> None:
    async with demo(tmp_path, "--seconds", "600") as process:
        await printed(process, r"\(the first one\)")
        process.kill()
        await process.wait()
    with trio.fail_after(PATIENCE):
        while processes_of(tmp_path):  # noqa: ASYNC110 (they are not ours to wait for)
            await trio.sleep(0.05)


async def test_two_interrupts_end_it_at_once(tmp_path: Path) -> None:
    async with demo(tmp_path, "--seconds", "600") as process:
        await printed(process, r"\(the first one\)")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        await rest(process)

    assert process.returncode == 130
    assert not processes_of(tmp_path)
    assert not os.listdir(tmp_path)


async def test_a_directory_to_keep_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    async with demo(tmp_path, "--keep", str(tmp_path)) as process:
        await rest(process)

    assert process.returncode == 78
    assert os.listdir(tmp_path) == ["precious"]


# -- the relay ---------------------------------------------------------------------------------------------------------


async def test_two_edges_lose_nothing_through_cuts_kills_and_rotations(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    async with demo(tmp_path, "--rate", "300", "--keep", str(kept), command=RELAY) as process:
        text = await rest(process, seconds=120)

    assert process.returncode == 0, text
    written = [len((kept / f"{edge}.log").read_text().splitlines()) for edge in ("berlin", "paris")]
    assert columns(text, "accepted") == columns(text, "delivered") == written
    assert min(written) > 300
    assert [columns(text, name) for name in ("lost", "double")] == [[0, 0], [0, 0]]
    assert columns(text, "state equal") == columns(text, "keys of state")
    assert min(columns(text, "keys of state")) > 20
    assert figure(text, "requests refused") == 0
    assert figure(text, "keys revoked") == text.count("is revoked, and answered 401") > 0
    assert "the principal is killed" in text
    assert not processes_of(kept)


@pytest.mark.parametrize(("lines_of_log", "as_promised"), [(1, True), (2, False)])
async def test_a_line_that_an_edge_lost_is_seen(tmp_path: Path, lines_of_log: int, as_promised: bool) -> None:
    (line,) = lines(tmp_path, 1)
    event = {"_id": "a", "message": line, "data_stream": {"dataset": "berlin"}}
    (tmp_path / "record").write_text(json.dumps(event) + "\n")
    stream = StringIO()
    told = Story(tmp_path, 1, Screen(stream), Record(tmp_path / "record"), trio.Event())
    told.edges[0].log.written = lines_of_log

    assert await told.conclude() is as_promised
    assert columns(stream.getvalue(), "lost") == [lines_of_log - 1, 0]


@pytest.mark.parametrize(
    ("there", "equal"),
    [
        ([], 1),
        ([("a", 1, {"n": 1}), ("b", 1, None)], 2),
        ([("a", 2, {"n": 1}), ("a", 1, {"n": 0})], 2),
        ([("a", 1, {"n": 0})], 1),
        ([("a", 1, {"n": 1}), ("b", 1, {"n": 1})], 1),
        ([("a", 1, {"n": 1}), ("c", 1, {"n": 1})], 1),
    ],
    ids=["missing", "equal", "an older one comes late", "another document", "not deleted", "never written"],
)
async def test_a_key_whose_last_word_did_not_arrive_is_seen(
    tmp_path: Path, there: list[tuple[str, int, dict[str, int] | None]], equal: int
) -> None:
    stream = StringIO()
    with Record(tmp_path / "record") as taken:
        taken.take([version(key, place, document) for key, place, document in there])
        told = Story(tmp_path, 1, Screen(stream), taken, trio.Event())
        told.edges[0].inventory.documents = {"a": {"n": 1}, "b": None}

        assert await told.conclude() is (equal == 2)
    assert columns(stream.getvalue(), "keys of state") == [2, 0]
    assert columns(stream.getvalue(), "state equal") == [equal, 0]


def version(key: str, place: int, document: dict[str, int] | None) -> Document:
    said = {"owner": "berlin", "key": key, "deleted": document is None}
    return Document("index", "state-machines", key, json.dumps({"shipper": said, **(document or {})}).encode(), place)


# -- the destination ---------------------------------------------------------------------------------------------------


async def test_a_revoked_key_is_refused_when_revoke_returns(tmp_path: Path) -> None:
    old, new = Key("old", "secret-1"), Key("new", "secret-2")
    async with opened(tmp_path / "destination") as destination:
        await destination.admit(old)
        await destination.admit(new)
        before = await destination.answer_to(old)
        await destination.revoke(old)
        after = [await destination.answer_to(key) for key in (old, new)]

    assert (before, after) == (200, [401, 200])


# -- the log and the count ---------------------------------------------------------------------------------------------


def record(path: Path, events: list[tuple[str, str]]) -> Tally:
    path.write_text("".join(json.dumps({"_id": id, "message": message}) + "\n" for id, message in events))
    tally = Tally(path)
    while tally.read():
        pass
    return tally


def test_what_arrived_once_is_counted_so(tmp_path: Path) -> None:
    tally = record(tmp_path / "r", [(f"id{n}", line) for n, line in enumerate(lines(tmp_path, 100))])

    assert (tally.delivered, tally.lost(100), tally.duplicates, tally.shared_ids, tally.foreign) == (100, 0, 0, 0, 0)


def test_what_is_missing_twice_or_strange_is_counted(tmp_path: Path) -> None:
    first, second, third, _ = lines(tmp_path, 4)
    tally = record(tmp_path / "r", [("a", first), ("a", first), ("b", second), ("c", second), ("d", "something else")])
    shared = record(tmp_path / "s", [("a", first), ("b", second), ("b", third)])

    assert (tally.lost(4), tally.duplicates, tally.double, tally.foreign) == (2, 2, 1, 1)
    assert (shared.lost(3), shared.shared_ids) == (0, 1)


# -- what is shown -----------------------------------------------------------------------------------------------------


def drained(revision: str) -> dict[str, object]:
    return {"event": "ack", "revision": revision, "stage": "drained", "milliseconds": 7, "ledger": {"accepted": 5}}


def rotations(count: int) -> Rotations:
    made = Rotations()
    for n in range(1, count + 1):
        made.wrote(Key(f"k{n}", "s"), float(n))
        made.heard({"event": "sent", "revision": str(n)}, float(n))
    return made


def test_a_key_is_released_by_its_name_and_the_newest_one_is_not() -> None:
    made = rotations(3)

    assert [made.released(name) for name in ("k2", "k1", "k2")] == [made.rows[2], made.rows[1], made.rows[2]]
    with pytest.raises(LookupError, match="k3"):
        made.released("k3")


def test_a_key_is_in_use_when_its_revision_is_active() -> None:
    made = rotations(1)
    before = made.in_use
    made.heard({"event": "ack", "revision": "1", "stage": "received", "milliseconds": 1}, 1.0)
    between = made.in_use
    made.heard({"event": "ack", "revision": "1", "stage": "active", "milliseconds": 2}, 1.0)

    assert (before, between, made.in_use) == (False, False, True)


def test_a_rotation_is_good_only_if_the_old_key_is_refused() -> None:
    made = rotations(2)
    made.heard(drained("2"), 3.0)
    _, row = made.rows
    row.answer = 200

    assert (row.complete, row.good) == (True, False)


def test_where_it_is_not_installed_one_line_says_so():
    program = "import sys\nsys.path.remove(sys.argv.pop())\nfrom shipper.__main__ import main\nmain(['demo'])\n"
    place = str(Path(shipper_demo.__file__).parents[1])
    ended = subprocess.run([sys.executable, "-c", program, place], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "the demo is not installed here" in ended.stderr
