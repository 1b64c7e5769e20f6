"""The `journald` input against a real journald, and its reading of the export format."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import DataStream, Fields, StartFailed
from shipper_plugins.journald import export, pace
from shipper_plugins.journald import fields as journal_fields
from shipper_plugins.journald import input as journald
from shipper_plugins.journald.export import MOST_BYTES, MOST_ENTRY, Exported
from shipper_plugins.journald.input import JournaldInput
from tests.plugins.journald.journal import Journal, journal
from tests.plugins.tail.tailing import Store, following, read_all

of_root = pytest.mark.root


@pytest.fixture(scope="module")
def running() -> Iterator[Journal]:
    with journal() as made:
        yield made


def of(running: Journal, **options: Any) -> JournaldInput:
    return JournaldInput(**{"namespace": running.namespace, "identifiers": ("test",), **options})


FAKE = """case " $* " in *" --lines=1 "*) set -- --of=last "$@";; esac
echo "$@" >> {calls}
cat {entries}
"""


def pretending(path: Path, monkeypatch: pytest.MonkeyPatch, *entries: str) -> Path:
    """A journalctl that writes these entries, whatever it is asked; returns the file with its arguments."""
    calls, text = path / "calls", path / "entries"
    text.write_text("".join(f"{entry}\n\n" for entry in entries))
    instead(path, monkeypatch, FAKE.format(calls=calls, entries=text))
    return calls


def instead(path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """This is the journalctl that is found."""
    program = path / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(path), prepend=os.pathsep)


@pytest.mark.parametrize(("cursor", "messages"), [(b"s=1", ["two"]), (b"s=0", ["one", "two"])])
async def test_only_the_entry_of_the_cursor_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor: bytes, messages: list[str]
) -> None:
    calls = pretending(tmp_path, monkeypatch, "__CURSOR=s=1\nMESSAGE=one", "__CURSOR=s=2\nMESSAGE=two")
    store = Store()
    await store.emit(positions={"cursor": cursor})

    assert await read_all(JournaldInput(), store) == messages
    assert f"--cursor={cursor.decode()}" in calls.read_text().split()
    assert await store.position("cursor") == b"s=2"


async def test_an_entry_after_the_year_2262_has_its_time_and_the_next_ones_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [1_700_000_000_000_000, 17_000_000_000_000_000, 10**18 - 1, 1_700_000_000_000_001]
    entries = [f"__CURSOR=s={n}\n__REALTIME_TIMESTAMP={at}\nMESSAGE={n}" for n, at in enumerate(times)]
    pretending(tmp_path, monkeypatch, *entries)
    store = Store()
    await read_all(JournaldInput(), store)

    ordinary = "2023-11-14T22:13:20.000Z"
    assert [event.get("@timestamp") for event in store.events] == [ordinary, "2508-09-16T06:13:20.000Z", None, ordinary]
    assert [at for batch in store.batches for at in batch.timestamps or ()] == [
        times[0] * 1000,
        None,
        None,
        times[3] * 1000,
    ]


async def test_where_the_journal_ends_is_asked_of_the_entries_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pretending(tmp_path, monkeypatch, "__CURSOR=s=1\nMESSAGE=one")
    config = JournaldInput(from_="end", units=("a.service",), priority="err", matches=("A=b",))

    assert await read_all(config, Store()) == []
    assert {"--of=last", "--unit=a.service", "--priority=err", "A=b"} <= set(calls.read_text().splitlines()[0].split())


# -- a real journal ----------------------------------------------------------------------------------------------------


@of_root
async def test_an_entry_becomes_an_event(running: Journal) -> None:
    running.send(
        {
            "MESSAGE": "it works é",
            "PRIORITY": "4",
            "SYSLOG_FACILITY": "3",
            "SYSLOG_IDENTIFIER": "one",
            "SYSLOG_PID": "77",
            "MESSAGE_ID": "f77379a8490b408bbe5f6940505a777b",
            "CODE_LINE": "12",
            "MY_OWN": ["a", "b"],
        }
    )
    store = Store()
    config = of(running, identifiers=("one",), data_stream=DataStream(dataset="journal"))
    await read_all(config, store)
    (event,) = store.events
    (entry,) = [one for one in running.entries() if one.get("SYSLOG_IDENTIFIER") == "one"]

    assert event["message"] == "it works é"
    assert event["event"] == {"dataset": "journal", "code": "f77379a8490b408bbe5f6940505a777b"}
    assert event["log"]["syslog"] == {
        "severity": {"code": 4, "name": "Warning"},
        "facility": {"code": 3, "name": "daemon"},
        "priority": 28,
        "appname": "one",
        "procid": "77",
    }
    assert event["process"]["pid"] == os.getpid()
    assert event["process"]["command_line"] == entry["_CMDLINE"]
    assert event["host"] == {"name": entry["_HOSTNAME"], "hostname": entry["_HOSTNAME"], "id": entry["_MACHINE_ID"]}
    assert event["user"] == {"id": "0", "group": {"id": "0"}}
    assert event["journald"]["code"] == {"line": 12}
    assert event["journald"]["custom"]["my_own"] == ["a", "b"]
    assert store.batches[0].timestamps == (int(entry["__REALTIME_TIMESTAMP"]) * 1000,)  # type: ignore[call-overload]


@of_root
async def test_what_is_logged_comes_at_once_and_once_over_restarts(running: Journal) -> None:
    running.send({"MESSAGE": "first", "SYSLOG_IDENTIFIER": "live"})
    config, store = of(running, identifiers=("live",)), Store()
    async with following(config, store):
        await store.comes(1)
        running.send({"MESSAGE": "second", "SYSLOG_IDENTIFIER": "live"})
        await store.comes(2)
    running.send({"MESSAGE": "third", "SYSLOG_IDENTIFIER": "live"})
    async with following(config, store):
        await store.comes(3)

    assert store.messages == ["first", "second", "third"]


@pytest.mark.needs("journalctl")
async def test_entries_that_keep_coming_are_stored_in_turns(autojump_clock: trio.testing.MockClock) -> None:
    """The first one at once, and those that come during a turn together."""
    store, (writer, pipe) = Store(), trio.testing.memory_stream_one_way_pair()
    async with JournaldInput().open(store) as source, trio.open_nursery() as nursery:
        assert isinstance(source, journald._Journal)
        nursery.start_soon(source._take_all, pipe, "")
        for number in range(4):
            await writer.send_all(f"__CURSOR=s={number}\nMESSAGE={number}\n\n".encode())
            await trio.sleep(pace.TURN / 8)
        await writer.aclose()

    assert [batch.count for batch in store.batches] == [1, 3]
    assert store.stored == {"cursor": b"s=3"}


@of_root
async def test_from_the_end_begins_where_the_journal_ended_at_the_first_start(running: Journal) -> None:
    running.log(0, 3)
    config, store = of(running, from_="end"), Store()
    async with following(config, store):
        await store.until(lambda: bool(store.stored))
    running.send({"MESSAGE": "while it was down", "SYSLOG_IDENTIFIER": "test"})
    async with following(config, store):
        await store.comes(1)

    assert store.messages == ["while it was down"]


@of_root
@pytest.mark.needs("pgrep")
async def test_a_journalctl_that_is_killed_is_started_again_and_nothing_comes_twice(running: Journal) -> None:
    running.send({"MESSAGE": "before", "SYSLOG_IDENTIFIER": "killed"})
    store = Store()
    async with following(of(running, identifiers=("killed",)), store):
        await store.comes(1)
        children = await trio.run_process(["pgrep", "-P", str(os.getpid()), "journalctl"], capture_stdout=True)
        for child in children.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        await store.until(lambda: store.problem is not None)
        running.send({"MESSAGE": "after", "SYSLOG_IDENTIFIER": "killed"})
        await store.comes(2)
        await store.until(lambda: store.problem is None)

    assert store.messages == ["before", "after"]


@of_root
@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"priority": "warning"}, ["urgent"]),
        ({"matches": ("COLOR=red", "COLOR=blue", "SIZE=1")}, ["urgent"]),
        ({"matches": ("COLOR=blue",)}, ["calm"]),
        ({"identifiers": ("chosen",)}, ["urgent", "calm"]),
        ({"units": ("no-such.service",)}, []),
    ],
)
async def test_entries_are_chosen(running: Journal, options: dict[str, Any], messages: list[str]) -> None:
    if not any(entry.get("SYSLOG_IDENTIFIER") == "chosen" for entry in running.entries()):
        running.send(
            {"MESSAGE": "urgent", "PRIORITY": "3", "COLOR": "red", "SIZE": "1", "SYSLOG_IDENTIFIER": "chosen"},
            {"MESSAGE": "calm", "PRIORITY": "6", "COLOR": "blue", "SIZE": "2", "SYSLOG_IDENTIFIER": "chosen"},
        )
    config = of(running, **{"identifiers": ("chosen",), **options})

    assert await read_all(config, Store()) == messages


@of_root
async def test_the_files_of_a_directory_are_read(running: Journal) -> None:
    running.send({"MESSAGE": "in a file", "SYSLOG_IDENTIFIER": "filed"})
    config = JournaldInput(directory=str(running.directory), identifiers=("filed",))

    assert await read_all(config, Store()) == ["in a file"]


@of_root
def test_the_export_format_has_what_journalctl_writes_as_json(running: Journal) -> None:
    running.send(
        {"MESSAGE": b"a\n\nb=c\xff\x00", "BLANK": "", "LINES": ["x\n", "\n\ny"], "SYSLOG_IDENTIFIER": "odd"},
        {"MESSAGE": "plain", "TWICE": ["1", "1"], "SYSLOG_IDENTIFIER": "odd"},
    )
    command = ["journalctl", f"--namespace={running.namespace}", "--output=export", "--all", "--quiet", "--no-pager"]
    exported = subprocess.run(command, capture_output=True, check=True).stdout
    written = [{name: _text(value) for name, value in entry.items()} for entry in running.entries()]

    assert Exported().feed(exported) == written


def _text(value: Any) -> Any:
    """What JSON has for a field: bytes that are no text are numbers."""
    if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        return bytes(value).decode(errors="replace")
    return [_text(one) for one in value] if isinstance(value, list) else value


@pytest.mark.needs("journalctl")
async def test_a_directory_that_is_not_there_is_a_problem_and_no_end(tmp_path: Path) -> None:
    store = Store()
    async with following(JournaldInput(directory=str(tmp_path / "none")), store):
        await store.until(lambda: store.problem is not None)

    assert str(store.problem).startswith("journalctl ended with status 1: Failed to open")


async def test_a_journalctl_that_does_not_tell_the_end_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(tmp_path, monkeypatch, "exec sleep 1000")
    monkeypatch.setattr(journald, "_LAST_SECONDS", 0.05, raising=False)
    store = Store()
    async with following(JournaldInput(from_="end"), store):
        await store.until(lambda: store.problem is not None)

    assert str(store.problem).startswith("journalctl does not tell where the journal ends")


async def test_without_journalctl_the_input_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StartFailed, match="journalctl is not installed"):
        async with JournaldInput().open(Store()):
            pass


# -- the export format -------------------------------------------------------------------------------------------------

NAMES = st.text(st.sampled_from("ABC_"), min_size=1, max_size=3)
BYTES = st.binary(max_size=6) | st.sampled_from([b"a=b", b"\n\n", b"x\n\nA=1\n\n", b"\xff", "é".encode(), b"\n=", b""])
ENTRIES = st.lists(st.lists(st.tuples(NAMES, BYTES), min_size=1, max_size=5), max_size=4)


def written(name: str, value: bytes) -> bytes:
    is_text = value.isascii() and (value + b" ").decode().isprintable()
    if is_text:
        return b"%b=%b\n" % (name.encode(), value)
    return b"%b\n%b%b\n" % (name.encode(), struct.pack("<Q", len(value)), value)


@settings(deadline=None)
@given(ENTRIES, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_entries_are_read_however_their_bytes_come(entries: list[list[tuple[str, bytes]]], sizes: list[int]) -> None:
    data = b"".join(b"".join(written(*pair) for pair in entry) + b"\n" for entry in entries)
    expected = []
    for entry in entries:
        fields: dict[str, list[str]] = {}
        for name, value in entry:
            fields.setdefault(name, []).append(value.decode(errors="replace"))
        expected.append({name: values if len(values) > 1 else values[0] for name, values in fields.items()})
    exported, read, at = Exported(), [], 0
    for number in range(len(data)):
        size = sizes[number % len(sizes)]
        read += exported.feed(data[at : at + size])
        at += size

    assert read == expected
    assert Exported().feed(data) == expected


def test_a_field_and_an_entry_are_cut_and_what_is_beyond_is_not_kept() -> None:
    huge = b"x" * (MOST_BYTES + 7)
    binary = b"B\n" + struct.pack("<Q", len(huge)) + huge + b"\n"
    data = b"A=" + huge + b"\n" + binary + b"C=1\n\nD=2\n\n"
    exported, entries, most = Exported(), [], 0
    for at in range(0, len(data), 60_000):
        entries += exported.feed(data[at : at + 60_000])
        most = max(most, len(exported._rest))
    first, second = entries

    assert (len(first["A"]), len(first["B"])) == (MOST_BYTES - 2, MOST_BYTES)
    assert (first["C"], second) == ("1", {"D": "2"})
    assert most < MOST_BYTES + 60_000


async def test_a_large_entry_is_read_in_a_thread_though_it_comes_in_small_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, batch = [], journald._batch

    def noting(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return batch(*given)

    monkeypatch.setattr(journald, "_batch", noting)
    exported, entry = Exported(), b"__CURSOR=c\n" + written("MESSAGE", b"a\n" * (256 << 10)) + b"\n"
    made = [await journald._batch_of(exported, entry[at : at + 4096], {}) for at in range(0, len(entry), 4096)]

    assert made[-1] is not None
    assert threads[0] == threading.get_ident()
    assert threads[-1] != threading.get_ident()


def test_many_large_fields_are_no_larger_entry() -> None:
    data = b"".join(b"F%d=%b\n" % (number, b"x" * 500_000) for number in range(20)) + b"\nD=2\n\n"
    first, second = Exported().feed(data)

    assert sum(map(len, first.values())) <= MOST_ENTRY
    assert second == {"D": "2"}


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*journal_fields._PLACES, "PRIORITY", "SYSLOG_FACILITY", "X", "_X", "__"]),
        st.text(max_size=3) | st.sampled_from(["7", "24", "9" * 30]) | st.lists(st.text(max_size=2), min_size=2),
    )
)
def test_any_entry_becomes_an_event(entry: export.Entry) -> None:
    event: Fields = journal_fields.event(entry)

    assert isinstance(event, dict)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"matches": ("nope",)}, "a match is a field"),
        ({"matches": ("--help=x",)}, "a match is a field"),
        ({"directory": "journal"}, "not an absolute path"),
        ({"directory": "/x", "namespace": "y"}, "no namespace"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        JournaldInput(**options)
