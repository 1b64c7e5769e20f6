"""The `file` input against real files; only what stores the events is a fake."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.lowlevel

from shipper.plugin import Batch, DataStream, Duration, Size
from shipper.testing import RecordingInputContext
from shipper_plugins.tail import content, copies, followed, open_files, tailer, watch
from shipper_plugins.tail import reconcile as survey
from shipper_plugins.tail.multiline import Multiline
from shipper_plugins.tail.stream import Stream
from tests.limits import descriptors_at_most
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings


@pytest.fixture(autouse=True)
def chunks_that_small_files_have_several_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingInputContext, "chunk_bytes", 16 << 10)


# -- lines ------------------------------------------------------------------------------------------------------------


async def test_an_event_of_a_line_has_what_the_envelope_does_not_know(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "first\nsecond\n")
    store = Store()
    await read_all(
        settings(tmp_path / "*.log", data_stream=DataStream(dataset="nginx.access", namespace="prod")), store
    )
    _, second = store.events

    assert second["message"] == "second"
    assert second["log"] == {"file": {"path": str(tmp_path / "a.log")}, "offset": 6}
    assert second["event"] == {"dataset": "nginx.access"}
    assert second["ecs"]["version"]


async def test_appended_lines_come_at_once_and_a_partial_line_with_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, lines(0, 3) + "par")
    store = Store()
    async with following(settings(path), store):
        await store.comes(3)
        await trio.testing.wait_all_tasks_blocked(0.05)
        append(path, "tial\nnext\n")
        await store.comes(5)

    assert store.messages == [*names(0, 3), "partial", "next"]
    assert [event["log"]["offset"] for event in store.events][3:] == [21, 29]


async def test_a_last_line_without_newline_is_read_when_it_stops_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\ntwo")
    store = Store()

    assert await read_all(settings(path), store) == ["one", "two"]
    append(path, "\nthree")
    assert await read_all(settings(path), store) == ["", "three"]


async def test_files_are_read_from_the_end_only_if_they_were_there_first(tmp_path: Path) -> None:
    append(tmp_path / "old.log", lines(0, 5) + "begun")
    config = settings(tmp_path / "*.log", from_="end")
    store = Store()
    async with following(config, store):
        await store.until(lambda: bool(store.stored))
        append(tmp_path / "old.log", " here\n")
        append(tmp_path / "new.log", "new\n")
        await store.comes(2)
    append(tmp_path / "later.log", "later\n")

    assert await read_all(config, store) == ["later"]
    assert sorted(store.messages) == ["begun here", "later", "new"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "utf-32", "gb18030"])
async def test_other_encodings_are_read_with_offsets_of_the_source(tmp_path: Path, encoding: str) -> None:
    texts = ["erste Zeile", "", "über ÿ Ñ", "letzte"]
    path = tmp_path / "a.log"
    content, at, offsets = b"", 2 * (encoding == "utf-16") + 4 * (encoding == "utf-32"), []
    for text in texts:
        offsets.append(at)
        plain = encoding + "-le" if encoding in ("utf-16", "utf-32") else encoding
        at += len((text + "\r\n").encode(plain))
    content = ("\r\n".join(texts) + "\r\n").encode(encoding)
    store = Store()
    async with following(settings(path, encoding=encoding), store):
        append(path, content[:31])
        append(path, content[31:])
        await store.comes(4)

    assert store.messages == texts
    assert [event["log"]["offset"] for event in store.events] == offsets


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", "utf-16-le"])
async def test_a_byte_order_mark_that_is_written_in_pieces_is_one(tmp_path: Path, encoding: str) -> None:
    """A writer without a buffer, or a copy that is seen while it is made."""
    marks = {"utf-8": "utf-8", "utf-16": "utf-16-be", "utf-32": "utf-32-be"}
    written = "\ufeffhé\nzwĊi\n".encode(marks.get(encoding, encoding))
    path, store = tmp_path / "a.log", Store()
    path.touch()
    async with following(settings(path, encoding=encoding), store) as source:
        (stream,) = await one_stream(source)
        for at in range(len(written)):
            append(path, written[at : at + 1])
            source._reader.turns.wake(stream)
            await source._reader.turns.quiet()
        await store.comes(2)

    assert store.messages == ["hé", "zwĊi"]


async def one_stream(source: tailer.Tailer) -> list[Stream]:
    await becomes(lambda: len(source._followed.known.streams) == 1)
    return list(source._followed.known.streams.values())


async def test_an_endless_line_is_cut_before_it_ends_and_a_restart_goes_on_skipping(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    store = Store()
    config = settings(path, max_line_bytes=Size(600_000))
    append(path, "ä" * 1_000_000)
    async with following(config, store):
        await store.comes(1)
    async with following(config, store):
        append(path, "ä" * 1_000_000 + "\nnext\n")
        await store.comes(2)

    assert store.messages == ["ä" * 300_000, "next"]
    assert store.events[0]["log"]["flags"] == ["truncated"]
    assert store.events[1]["log"]["offset"] == 4_000_001


# -- several lines ----------------------------------------------------------------------------------------------------

TRACE = Multiline(pattern=r"^\s")


@pytest.mark.parametrize(
    ("options", "size"),
    [
        *(({}, size) for size in (1, 300, 3 << 20)),
        ({"multiline": Multiline(pattern=r"^\s", timeout=Duration(0.1))}, 300),
        ({"encoding": "latin-1"}, 300),
    ],
)
async def test_a_writer_that_goes_on_at_its_old_offset_behind_a_truncation_loses_no_line(
    tmp_path: Path, options: dict[str, Any], size: int
) -> None:
    """Copy and truncate under a writer without O_APPEND; the hole is seen before, or together with the text."""
    path, store = tmp_path / "a.log", Store()
    append(path, "x" * (size - 1) + "\n")
    async with following(settings(path, max_line_bytes=Size(1000), **options), store) as source:
        await store.comes(1)
        await source._reader.turns.quiet()
        os.truncate(path, 0)
        os.truncate(path, size + 50)
        await becomes(
            lambda: (s := source._followed.known.at(str(path))) is not None and s.sighting.rested == size + 50
        )
        append(path, "first\nsecond\n")
        await store.comes(3)

    assert store.messages[1:] == ["first", "second"]


async def test_a_file_of_nothing_but_a_hole_gives_no_event_to_its_end(tmp_path: Path) -> None:
    """As a crash leaves one: nothing waits for it, and nothing is left of it."""
    path, store = tmp_path / "a.log", Store()
    append(path, "one\nhalf")
    os.truncate(path, 1 << 20)

    assert await read_all(settings(path, max_line_bytes=Size(100)), store) == ["one", "half"]
    append(path, "two\n")
    assert await read_all(settings(path, max_line_bytes=Size(100)), store) == ["two"]


async def test_lines_that_belong_together_are_one_event_and_the_last_waits_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "a\n b\n c\nd\n e\n")
    store = Store()
    async with following(settings(path, multiline=TRACE), store):
        await store.comes(1)
        append(path, " f\ng\n")
        await store.comes(2)

    assert store.messages == ["a\n b\n c", "d\n e\n f"]
    assert [event["log"]["offset"] for event in store.events] == [0, 8]


async def test_an_unfinished_event_is_not_admitted_and_a_restart_reads_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "a\n b\nc\n d\n")
    store = Store()
    async with following(settings(path, multiline=TRACE), store):
        await store.comes(1)
    append(path, " e\n")

    assert await read_all(settings(path, multiline=TRACE), store) == ["c\n d\n e"]


async def test_an_unfinished_event_is_finished_by_its_timeout(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "a\n b\n")
    store = Store()
    async with following(settings(path, multiline=Multiline(pattern=r"^\s", timeout=0.05)), store):
        await store.comes(1)

    assert store.messages == ["a\n b"]


async def test_a_changed_setting_is_used_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "a\n b\n")
    store = Store()
    config = settings(path, multiline=TRACE)
    async with following(config, store) as source:
        await becomes(lambda: bool(source._followed.pending))
        new = settings(path, data_stream=DataStream(dataset="other"))
        assert new.identity() == config.identity()
        source.change(new, {})
        await store.comes(2)

    assert store.messages == ["a", " b"]
    assert store.events[0]["event"] == {"dataset": "other"}


# -- rotation ---------------------------------------------------------------------------------------------------------


async def test_a_file_renamed_out_of_the_glob_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    store = Store()
    with path.open("a") as file:
        async with following(settings(path), store):
            file.write("one\n")
            file.flush()
            await store.comes(1)
            path.rename(tmp_path / "app.old")
            file.write("two\nthree")
            file.flush()
            append(path, "four\n")
            await store.comes(4)

    assert sorted(store.messages) == ["four", "one", "three", "two"]


@pytest.mark.parametrize(
    ("name", "exclude"), [("app.log.1", ()), ("app.log-20250101", ("app.log?*",)), ("other", ()), ("other", ("other",))]
)
async def test_a_file_renamed_out_of_the_glob_while_nothing_runs_is_read_to_its_end(
    tmp_path: Path, name: str, exclude: tuple[str, ...]
) -> None:
    path, store = tmp_path / "app.log", Store()
    config = settings(path, exclude=exclude)
    append(path, lines(0, 5))
    await read_all(config, store)
    append(path, lines(5, 10) + "last")
    path.rename(tmp_path / name)
    append(path, lines(10, 15))
    async with following(config, store):
        await store.comes(16)

    assert sorted(store.messages) == sorted([*names(0, 15), "last"])
    assert store.problems == []
    assert await read_all(config, store) == []


async def test_files_rotated_twice_out_of_the_glob_while_nothing_runs_are_all_read(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    append(tmp_path / "app.log.7", "older than what was asked for\n")
    os.utime(tmp_path / "app.log.7", (1, 1))
    append(path, lines(0, 5))
    await read_all(settings(path), store)
    append(path, lines(5, 10) + "last")
    path.rename(tmp_path / "app.log.2")
    append(path, lines(10, 15) + "last too")
    path.rename(tmp_path / "app.log.1")
    append(path, lines(15, 20))
    append(tmp_path / "app.log.error", "something else\n")
    async with following(settings(path), store):
        await store.comes(22)

    assert sorted(store.messages) == sorted([*names(0, 20), "last", "last too"])
    assert await read_all(settings(path), store) == []


async def test_a_file_renamed_while_its_reading_was_cut_short_is_read_to_its_end(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 20_000))
    for turn in range(3):
        async with following(settings(path), store):
            await store.comes(store.count + 1)
        if path.exists() and not turn:
            path.rename(tmp_path / "app.log.1")
            append(path, lines(20_000, 20_010))
    assert store.count < 20_000
    await read_all(settings(path), store)

    assert sorted(store.messages) == sorted(names(0, 20_010))


@pytest.mark.parametrize(
    ("name", "reused"), [("app.log.1.gz", False), ("app.log.gz", True), ("app.log-20250101.gz", True)]
)
async def test_a_file_compressed_out_of_the_glob_while_nothing_runs_is_read_to_its_end(
    tmp_path: Path, name: str, reused: bool
) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 500))
    await read_all(settings(path), store)
    append(path, lines(500, 1000))
    (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "app.log.9.gz").write_bytes(gzip.compress(b"something else\n" * 100))
    os.utime(tmp_path / "app.log.9.gz", (1, 1))
    if reused:
        os.truncate(path, 0)
    else:
        (tmp_path / "elsewhere").mkdir()
        path.rename(tmp_path / "elsewhere" / "app.log")
    append(path, lines(1000, 1010))

    assert sorted(await read_all(settings(path), store)) == sorted(names(500, 1010))
    assert await read_all(settings(path), store) == []


async def test_another_file_with_the_inode_of_one_that_is_gone_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(followed, "SETTLED", 0.0)
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 5))
    await read_all(settings(path), store)
    path.rename(tmp_path / "app.log.1")
    (tmp_path / "app.log.1").write_text(lines(500, 600))
    append(path, lines(10, 15))
    async with following(settings(path), store):
        await store.comes(10)
        await store.until(lambda: bool(store.problems))

    assert store.problems == [f"1 files were gone before their end was read: {path}"]
    assert store.codes == ["data_lost"]
    assert await read_all(settings(path), store) == []
    assert store.messages == [*names(0, 5), *names(10, 15)]


async def test_a_lost_end_is_reported_for_a_while_and_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(followed, "SETTLED", 0.0)
    monkeypatch.setattr(followed, "TOLD", 0.2)
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 5))
    append(tmp_path / "whole.log", "one\n")
    config = settings(tmp_path / "*.log")
    await read_all(config, store)
    (tmp_path / "elsewhere").mkdir()
    for file in (path, tmp_path / "whole.log"):
        file.rename(tmp_path / "elsewhere" / file.name)
    append(path, "new\n")
    async with following(config, store):
        await store.until(lambda: bool(store.problems))
        with trio.fail_after(30):
            while store.problems[-1] is not None:
                append(path, "more\n")
                await trio.sleep(0.02)
    reports = len(store.problems)
    async with following(config, store):
        append(path, "again\n")
        await store.until(lambda: store.messages[-1] == "again")

    assert store.problems[:reports] == [f"1 files were gone before their end was read: {path}", None]
    assert len(store.problems) == reports


async def test_a_file_renamed_out_of_the_glob_while_it_was_closed_is_read_to_its_end(tmp_path: Path) -> None:
    store = Store()
    for name in ("a.log", "b.log", "c.log"):
        append(tmp_path / name, f"{name} one\n")
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(3)
        await source._reader.turns.quiet()
        source._reader.open_files.close(*source._reader.open_files.streams())
        for name in ("a.log", "b.log", "c.log"):
            append(tmp_path / name, f"{name} two\n")
            (tmp_path / name).rename(tmp_path / f"{name}.1")
        append(tmp_path / "a.log", "new\n")
        await store.comes(7)

    assert sorted(store.messages) == sorted(["new", *(f"{n}.log {w}" for n in "abc" for w in ("one", "two"))])
    assert store.problems == []


async def test_a_reused_inode_belongs_to_the_file_that_is_still_followed(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 10))
    await read_all(settings(path), store)
    ((key, stored),) = store.stored.items()
    older = msgspec.json.encode(msgspec.json.decode(stored) | {"ended": True, "tail": "0" * 32, "head": "0" * 32})
    store.stored = {"first": older, key: stored, "last": older}

    assert await read_all(settings(path), store) == []


async def test_many_files_that_are_gone_cost_one_look_at_their_directory(tmp_path: Path, monkeypatch: Any) -> None:
    store, config = Store(), settings(tmp_path / "*.log")
    for number in range(60):
        append(tmp_path / f"{number}.log", lines(0, 2, str(number)))
    await read_all(config, store)
    for number in range(60):
        append(tmp_path / f"{number}.log", lines(2, 4, str(number)))
        (tmp_path / f"{number}.log").rename(tmp_path / f"{number}.old")
    looked = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or scandir(path))

    assert len(await read_all(config, store)) == 120
    assert len(looked) < 5
    assert await read_all(config, store) == []


async def test_a_deleted_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    append(path, lines(0, 5000) + "last")
    store = Store()
    store.full = True
    async with following(settings(path), store) as source:
        await becomes(lambda: bool(store.under_way))
        path.unlink()
        store.full = False
        await store.comes(5001)
        await becomes(lambda: not source._followed.known.by_file)

    assert store.messages == [*names(0, 5000), "last"]


@pytest.mark.parametrize("size", [20, 5000])
async def test_copy_and_truncate_in_the_glob_gives_nothing_twice_and_the_rest_once(tmp_path: Path, size: int) -> None:
    path = tmp_path / "app.log"
    store = Store()
    expected = []
    async with following(settings(tmp_path / "app.log*"), store):
        for turn in range(3):
            append(path, lines(0, size, f"turn {turn}"))
            expected += names(0, size, f"turn {turn}")
            await store.comes(len(expected))
            store.full = True
            append(path, lines(0, size, f"unread {turn}"))
            expected += names(0, size, f"unread {turn}")
            for old in range(2, 0, -1):
                if (tmp_path / f"app.log.{old}").exists():
                    os.rename(tmp_path / f"app.log.{old}", tmp_path / f"app.log.{old + 1}")
            shutil.copy(path, tmp_path / "app.log.1")
            os.truncate(path, 0)
            store.full = False
            await store.comes(len(expected))

    assert sorted(store.messages) == sorted(expected)
    assert await read_all(settings(tmp_path / "app.log*"), store) == []


async def test_a_copy_that_grows_is_compared_once_and_not_from_its_beginning_each_time(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """Copying takes as long as it takes; each look at the copy would otherwise read all of both files."""
    path, store, compared = tmp_path / "app.log", Store(), 0
    pieces = copies._pieces

    def counted(*arguments: Any) -> Iterator[bytes]:
        nonlocal compared
        for piece in pieces(*arguments):
            compared += len(piece)
            yield piece

    monkeypatch.setattr(copies, "_pieces", counted)
    append(path, lines(0, 20_000))
    whole = path.read_bytes()
    step = len(whole) // 10
    async with following(settings(tmp_path / "app.log*"), store) as source:
        await store.comes(20_000)
        for end in range(step, len(whole) + 1, step):
            append(tmp_path / "app.log.1", whole[max(0, end - step) : end])
            await becomes(lambda end=end: end in [s.offset for s in source._followed.known.streams.values()])  # type: ignore[misc]
        await source._reader.turns.quiet()

    assert store.messages == names(0, 20_000)
    assert len(whole) < compared < 4 * len(whole)


@pytest.mark.parametrize("is_older", [False, True])
async def test_copy_and_truncate_while_nothing_runs_is_recognised(tmp_path: Path, is_older: bool) -> None:
    """Also by a position that was stored before there were checksums."""
    path, config, store = tmp_path / "app.log", settings(tmp_path / "app.log*"), Store()
    append(path, lines(0, 10))
    await read_all(config, store)
    for key, stored in store.stored.items() if is_older else ():
        position = msgspec.json.decode(stored)
        del position["since"], position["crc"]
        store.stored[key] = msgspec.json.encode(position)
    append(path, lines(10, 20))
    shutil.copy(path, tmp_path / "app.log.1")
    os.truncate(path, 0)
    append(path, lines(20, 60))

    assert sorted(await read_all(config, store)) == sorted(names(10, 60))
    assert await read_all(config, store) == []


async def test_a_file_truncated_and_written_beyond_its_old_length_is_read_from_its_beginning(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 10))
    async with following(settings(path), store):
        await store.comes(10)
        path.write_text(lines(100, 200))
        await store.comes(110)

    assert store.messages == names(0, 10) + names(100, 200)


@pytest.mark.parametrize(
    ("banner", "before", "after", "footer"),
    [(0, 9, 9, 0), (0, 9, 18, 0), (0, 1000, 2000, 0), (200, 9, 9, 0), (0, 9, 9, 50)],
)
async def test_a_file_overwritten_while_nothing_runs_is_read_though_an_end_of_it_is_alike(
    tmp_path: Path, banner: int, before: int, after: int, footer: int
) -> None:
    def job(day: int, count: int) -> str:
        return lines(0, banner, "banner") + lines(0, count, f"day {day}") + lines(0, footer, "footer")

    path, store = tmp_path / "job.log", Store()
    append(path, job(1, before))
    await read_all(settings(path), store)
    path.write_text(job(2, after))

    assert await read_all(settings(path), store) == job(2, after).splitlines()


@pytest.mark.parametrize(("read", "size"), [("all", 5), ("all", 5000), ("some", 5), ("some", 5000), ("none", 5)])
async def test_a_compressed_file_gives_what_was_not_read(tmp_path: Path, read: str, size: int) -> None:
    path, config, store = tmp_path / "app.log", settings(tmp_path / "app.log*"), Store()
    first = {"all": 2 * size, "some": size, "none": 0}[read]
    append(path, lines(0, first))
    assert await read_all(config, store) == names(0, first)
    append(path, lines(first, 2 * size))
    with gzip.open(tmp_path / "app.log.1.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()
    append(path, "new\n")

    assert sorted(await read_all(config, store)) == sorted([*names(first, 2 * size), "new"])
    (tmp_path / "app.log.1.gz").rename(tmp_path / "app.log.2.gz")
    assert await read_all(config, store) == []


async def test_a_file_compressed_while_it_is_followed_gives_nothing_twice(tmp_path: Path) -> None:
    store = Store()
    expected = []
    async with following(settings(tmp_path / "*"), store):
        for turn in range(4):
            path = tmp_path / f"app.log.{turn}"
            append(path, lines(0, 3000, f"turn {turn}") + "last")
            expected += [*names(0, 3000, f"turn {turn}"), "last"]
            with gzip.open(tmp_path / f"app.log.{turn}.gz", "wb") as packed:
                for line in path.read_bytes().splitlines(keepends=True):
                    packed.write(line)
                    if line.endswith(b"00\n"):
                        packed.flush()
                        await trio.lowlevel.checkpoint()
            path.unlink()
            await store.comes(len(expected))

    assert sorted(store.messages) == sorted(expected)
    assert await read_all(settings(tmp_path / "*"), store) == []


async def test_a_compressed_file_that_was_empty_when_the_input_began_at_the_end_is_read_as_one(tmp_path: Path) -> None:
    packed, store = gzip.compress(lines(0, 3000).encode()), Store()
    (tmp_path / "a.gz").touch()
    async with following(settings(tmp_path / "*", from_="end"), store) as source:
        await becomes(lambda: len(source._followed.known.streams) == 1)
        await source._reader.turns.quiet()
        append(tmp_path / "a.gz", packed)
        await store.comes(3000)

    assert store.messages == names(0, 3000)


async def test_a_compressed_file_is_resumed_where_it_was_left(tmp_path: Path) -> None:
    store = Store()
    with gzip.open(tmp_path / "a.gz", "wb", compresslevel=1) as packed:
        packed.write(lines(0, 12_000).encode())
    with gzip.open(tmp_path / "a.gz", "ab", compresslevel=1) as packed:
        packed.write(lines(12_000, 18_000).encode())
    for _ in range(3):
        async with following(settings(tmp_path / "*.gz"), store):
            before = store.count
            await store.until(lambda before=before: store.count > before)  # type: ignore[misc]
    await read_all(settings(tmp_path / "*.gz"), store)

    assert store.messages == names(0, 18_000)


@pytest.mark.parametrize("count", [20, 3000])
async def test_of_a_compressed_file_that_is_cut_short_the_whole_lines_are_read_and_it_is_told(
    tmp_path: Path, count: int
) -> None:
    written = "".join(f"{number} {random.Random(number).random()}\n" for number in range(count))
    packed = gzip.compress(written.encode())
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) * 2 // 3])
    store = Store()
    messages = await read_all(settings(tmp_path / "*.gz"), store)

    assert 0 < len(messages) < count
    assert messages == written.splitlines()[: len(messages)]
    assert store.problems == [f"{tmp_path}/a.gz: the compressed file is cut short"]
    assert store.codes == ["file_unreadable"]
    (tmp_path / "a.gz").write_bytes(packed)
    await read_all(settings(tmp_path / "*.gz"), store)
    assert store.messages == written.splitlines()


@pytest.mark.parametrize("count", [20, 3000])
async def test_a_compressed_file_that_is_being_written_is_told_of_only_if_that_takes_long(
    tmp_path: Path, count: int
) -> None:
    path, packed, store = tmp_path / "a.gz", gzip.compress(lines(0, count).encode()), Store()
    path.write_bytes(packed[:-4])
    async with following(settings(tmp_path / "*.gz"), store) as source:
        await becomes(lambda: bool(source._followed.cut_short))
        assert not store.problems
        os.utime(path, (0, 0))
        source._followed.look_again()
        source._act()
        await store.until(lambda: store.problems == [f"{path}: the compressed file is cut short"])
        append(path, packed[-4:])
        await store.comes(count)
        await store.until(lambda: store.problems[-1] is None)

    assert store.messages == names(0, count)


async def test_a_compressed_copy_that_was_once_seen_half_written_is_not_told_of_when_it_is_whole(
    tmp_path: Path,
) -> None:
    store, packed = Store(), tmp_path / "app.log.1.gz"
    written = "".join(f"{number} {random.Random(number).random()}\n" for number in range(300))
    append(tmp_path / "app.log", written)
    async with following(settings(tmp_path / "*.log*"), store) as source:
        await store.comes(300)
        whole = gzip.compress(written.encode())
        append(packed, whole[:60])
        await becomes(lambda: bool(source._followed.cut_short))
        append(packed, whole[60:])
        await becomes(lambda: any(s.place.done == len(whole) for s in source._followed.known.streams.values()))
        await source._reader.turns.quiet()

        assert source._followed.cut_short == {}
    assert store.messages == written.splitlines()


async def test_more_large_compressed_files_than_may_be_open_are_all_read(tmp_path: Path, monkeypatch: Any) -> None:
    """One that is closed is decompressed from its beginning again, and must then get to where it was."""
    monkeypatch.setattr(open_files, "OPEN_FILES", 1)
    monkeypatch.setattr(content, "STRIDE", 64 << 10)
    written = [[random.Random(f"{file} {line}").randbytes(500).hex() for line in range(300)] for file in range(8)]
    for file, texts in enumerate(written):
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress("".join(f"{text}\n" for text in texts).encode()))
    messages = await read_all(settings(tmp_path / "*.gz"), Store())

    assert sorted(messages) == sorted(text for texts in written for text in texts)


async def test_a_file_with_the_inode_and_the_bytes_of_a_deleted_one_is_read_after_a_restart(tmp_path: Path) -> None:
    config, store = settings(tmp_path / "*.log"), Store()
    append(tmp_path / "job.log", lines(0, 200))
    append(tmp_path / "other.log", "one\n")
    async with following(config, store) as source:
        await store.comes(201)
        former = (tmp_path / "job.log").stat().st_ino
        (tmp_path / "job.log").unlink()
        await becomes(lambda: len(source._followed.known.by_file) == 1)
        append(tmp_path / "other.log", "two\n")
        await store.until(lambda: store.messages[-1] == "two")
    append(tmp_path / "job.log", lines(0, 200))
    inode = (tmp_path / "job.log").stat().st_ino
    store.stored = {k: v.replace(b'"ino":%d,' % former, b'"ino":%d,' % inode) for k, v in store.stored.items()}

    assert await read_all(config, store) == names(0, 200)
    assert await read_all(config, store) == []


async def test_a_file_that_was_away_for_a_while_is_followed_through_a_copy_after_a_restart(tmp_path: Path) -> None:
    config, store, logs, away = settings(tmp_path / "logs" / "app.log*"), Store(), tmp_path / "logs", tmp_path / "away"
    logs.mkdir()
    append(logs / "app.log", lines(0, 200))
    async with following(config, store) as source:
        await store.comes(200)
        source._reader.open_files.clear()
        logs.rename(away)
        await becomes(lambda: not source._followed.known.by_file)
        logs.mkdir()
        append(logs / "app.log.new", "new\n")
        await store.comes(201)
    shutil.rmtree(logs)
    away.rename(logs)
    async with following(config, store) as source:
        await becomes(lambda: len(source._followed.known.by_file) == 1)
        append(logs / "app.log", lines(200, 210))
        await store.comes(211)
        shutil.copy(logs / "app.log", logs / "app.log.1")
        os.truncate(logs / "app.log", 0)
        append(logs / "app.log", "last\n")
        await store.until(lambda: "last" in store.messages)
        await becomes(lambda: not source._followed.stale and len(source._followed.known.by_file) == 2)
        await source._reader.turns.quiet()

    assert sorted(store.messages) == sorted([*names(0, 210), "new", "last"])


async def test_files_that_are_alike_are_all_read(tmp_path: Path) -> None:
    for number in range(300):
        append(tmp_path / f"pod-{number}.log", lines(0, 200))
    store = Store()
    await read_all(settings(tmp_path / "*.log"), store)

    assert store.count == 300 * 200


async def test_positions_of_files_that_are_gone_are_removed_in_time(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(survey, "KEPT", 0.05)
    store = Store()
    for number in range(5):
        append(tmp_path / f"{number}.log", f"{number}\n")
    async with following(settings(tmp_path / "*.log"), store):
        await store.comes(5)
        for number in range(4):
            (tmp_path / f"{number}.log").unlink()
        with trio.fail_after(30):
            while len(store.stored) > 1:
                append(tmp_path / "4.log", "more\n")
                (tmp_path / "dir.log").mkdir()
                await trio.sleep(0.02)
                (tmp_path / "dir.log").rmdir()

    assert msgspec.json.decode(next(iter(store.stored.values())))["path"] == f"{tmp_path}/4.log"


# -- the same content again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["job-1.log", "job-2.log", "job-1.log.1"])
async def test_the_bytes_of_a_deleted_file_are_read_if_they_are_written_again(tmp_path: Path, name: str) -> None:
    """A job whose log is the same each day has run each day; and the inode of what is gone is the next file's."""
    store = Store()
    append(tmp_path / "job-1.log", lines(0, 200))
    async with following(settings(tmp_path / "job-*"), store) as source:
        await store.comes(200)
        (tmp_path / "job-1.log").unlink()
        await becomes(lambda: not source._followed.known.by_file)
        append(tmp_path / "new", lines(0, 200))
        os.utime(tmp_path / "new", (time.time() + 1,) * 2)  # the clock of files goes in steps of some milliseconds
        (tmp_path / "new").rename(tmp_path / name)
        await store.comes(400)

    assert store.messages == names(0, 200) * 2
    assert await read_all(settings(tmp_path / "job-*"), store) == []


async def test_the_bytes_of_a_truncated_file_are_read_if_they_are_written_again(tmp_path: Path) -> None:
    path, store = tmp_path / "job.log", Store()
    append(path, lines(0, 200))
    async with following(settings(path), store) as source:
        await store.comes(200)
        os.truncate(path, 0)
        await becomes(lambda: bool(source._followed.known.gone))
        append(path, lines(0, 200))
        await store.comes(400)

    assert store.messages == names(0, 200) * 2


def job(day: int) -> str:
    return lines(0, 200, "banner") + lines(0, 100, f"day {day} record") + lines(0, 50, "footer")


async def test_a_file_that_is_like_a_deleted_one_but_in_the_middle_is_read(tmp_path: Path) -> None:
    store = Store()
    append(tmp_path / "job-1.log", job(1))
    await read_all(settings(tmp_path / "*.log"), store)
    (tmp_path / "job-1.log").rename(tmp_path / "done")
    append(tmp_path / "job-2.log", job(2))
    with gzip.open(tmp_path / "job-3.log", "wb") as packed:
        packed.write(job(3).encode())

    assert sorted(await read_all(settings(tmp_path / "*.log"), store)) == sorted((job(2) + job(3)).splitlines())


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_file_that_is_like_one_beside_it_but_in_the_middle_is_no_copy(tmp_path: Path, is_packed: bool) -> None:
    config, store = settings(tmp_path / "*"), Store()
    append(tmp_path / "job", job(1))
    async with following(config, store):
        await store.comes(350)
        append(tmp_path / "job.1", gzip.compress(job(2).encode()) if is_packed else job(2))
        await store.comes(700)

    assert store.messages == (job(1) + job(2)).splitlines()


# -- which files ------------------------------------------------------------------------------------------------------


async def test_new_files_and_directories_are_seen_at_once(tmp_path: Path) -> None:
    store = Store()
    async with following(settings(tmp_path / "apps" / "**" / "*.log"), store):
        await trio.sleep(0.05)
        (tmp_path / "apps" / "a" / "b").mkdir(parents=True)
        append(tmp_path / "apps" / "a" / "b" / "x.log", "deep\n")
        append(tmp_path / "apps" / "y.log", "flat\n")
        await store.comes(2)
    assert sorted(store.messages) == ["deep", "flat"]
    assert store.problems == []


async def test_excluded_files_and_those_that_are_not_regular_are_left_alone(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.tmp", ".hidden"):
        append(tmp_path / name, name + "\n")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "directory.log").mkdir()
    (tmp_path / "nowhere.log").symlink_to(tmp_path / "missing")
    store = Store()

    assert await read_all(settings(tmp_path / "*", exclude=("*.tmp", str(tmp_path / "b*"))), store) == ["a.log"]


async def test_a_path_that_is_a_directory_is_reported_until_it_is_a_file(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    path.mkdir()
    append(path / "inner.log", "inner\n")
    async with following(settings(path, path / "*.log"), store):
        await store.comes(1)
        await store.until(lambda: store.problems == [f"{path}: a directory, and not a file"])
        path.rename(tmp_path / "logs")
        append(path, "line\n")
        await store.comes(2)
        await store.until(lambda: store.problems[-1] is None)

    assert store.messages == ["inner", "line"]


async def test_links_are_followed_once_and_their_targets_watched(tmp_path: Path) -> None:
    real, links = tmp_path / "pods" / "web", tmp_path / "containers"
    real.mkdir(parents=True)
    links.mkdir()
    append(real / "0.log", "one\n")
    (links / "web.log").symlink_to(real / "0.log")
    (real / "loop").symlink_to(tmp_path / "pods")
    store = Store()
    async with following(settings(links / "*.log"), store):
        await store.comes(1)
        append(real / "0.log", "two\n")
        await store.comes(2)
        os.rename(real / "0.log", real / "0.log.old")
        append(real / "0.log", "three\n")
        await store.comes(3)

    assert store.messages == ["one", "two", "three"]
    assert store.events[2]["log"]["file"]["path"] == str(links / "web.log")
    everywhere = Store()
    assert sorted(await read_all(settings(tmp_path / "**"), everywhere)) == ["one", "three", "two"]


async def test_without_inotify_files_are_polled(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "POLL", (0.02, 0.05))
    monkeypatch.setattr(tailer, "POLL", (0.02, 0.05))

    def absent() -> None:
        raise OSError(errno.ENOSYS, "there is no inotify")

    monkeypatch.setattr(watch, "Inotify", absent)
    path, store = tmp_path / "a.log", Store()
    async with following(settings(tmp_path / "*.log"), store):
        await trio.sleep(0.03)
        append(path, "one\n")
        await store.comes(1)
        append(path, "two\n")
        await store.comes(2)
        path.rename(tmp_path / "b.log")
        append(path, "three\n")
        await store.comes(3)

    assert store.messages == ["one", "two", "three"]


@pytest.mark.root
async def test_an_unreadable_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    parent = tmp_path
    while parent != Path("/tmp") and parent != parent.parent:
        parent.chmod(0o755)
        parent = parent.parent
    append(tmp_path / "a.log", "secret\n")
    (tmp_path / "a.log").chmod(0)
    append(tmp_path / "b.log", "open\n")
    store = Store()
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        async with following(settings(tmp_path / "*.log"), store):
            await store.until(lambda: bool(store.count and store.problems))
            (problem,) = store.problems
            assert str(problem).startswith(f"{tmp_path}/a.log: Permission denied for the user ")
            os.seteuid(user)
            (tmp_path / "a.log").chmod(0o644)
            os.seteuid(65534)
            await store.until(lambda: store.problems[-1] is None)
            await store.comes(2)
    finally:
        os.seteuid(user)

    assert store.messages == ["open", "secret"]


# -- flow -------------------------------------------------------------------------------------------------------------


async def test_many_files_are_read_with_few_of_them_open(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(open_files, "OPEN_FILES", 20)
    for number in range(200):
        append(tmp_path / f"{number}.log", lines(0, 20, str(number)))
    store = Store()
    before = len(os.listdir("/proc/self/fd"))
    async with following(settings(tmp_path / "*.log"), store):
        await store.comes(4000)
        opened = len(os.listdir("/proc/self/fd")) - before
        for number in range(200):
            append(tmp_path / f"{number}.log", "more\n")
        await store.comes(4200)

    assert opened < 100
    assert len(os.listdir("/proc/self/fd")) <= before
    assert store.count == 4200
    assert len(store.stored) == 200
    assert store.most <= tailer.WORKERS


async def test_a_name_that_is_no_utf_8_is_read_and_shown(tmp_path: Path) -> None:
    append(tmp_path / os.fsdecode(b"caf\xe9.log"), "line\n")
    store = Store()
    await read_all(settings(tmp_path / "*.log"), store)

    assert store.events[0]["log"]["file"]["path"] == f"{tmp_path}/caf\ufffd.log"
    assert await read_all(settings(tmp_path / "*.log"), store) == []


async def test_a_copy_that_was_compressed_beside_its_original_is_not_read(tmp_path: Path) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 2000))
    async with following(settings(tmp_path / "*"), store):
        await store.comes(2000)
        (tmp_path / "app.log.gz").write_bytes(gzip.compress(path.read_bytes()))
        append(path, lines(2000, 2100))
        await store.comes(2100)
        await becomes(lambda: len(store.stored) == 2)
        path.unlink()
        append(tmp_path / "other", "other\n")
        await store.comes(2101)

    assert await read_all(settings(tmp_path / "*"), store) == []
    assert store.messages == [*names(0, 2100), "other"]


async def test_a_large_file_does_not_keep_a_small_one_waiting(tmp_path: Path, monkeypatch: Any) -> None:
    """It is opened by a thread, which the machine may be slow to start; so the large one has many chunks."""
    monkeypatch.setattr(RecordingInputContext, "chunk_bytes", 1 << 10)
    append(tmp_path / "a.log", lines(0, 100_000))
    append(tmp_path / "b.log", "small\n")
    store = Store()
    await read_all(settings(tmp_path / "*.log"), store)

    assert store.messages.index("small") < 90_000
    assert store.count == 100_001


async def test_a_cancel_while_the_events_are_stored_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, lines(0, 2000, "x" * 130))
    for _ in range(4):
        store.full = True
        async with following(settings(path), store):
            await becomes(lambda: bool(store.under_way))
            had = len(store.batches)
            store.full = False
            await store.until(lambda had=had: len(store.batches) > had)  # type: ignore[misc]
            store.full = True
            await becomes(lambda: bool(store.under_way))
    store.full = False
    await read_all(settings(path), store)

    assert store.messages == names(0, 2000, "x" * 130)


async def test_positions_move_with_the_events_before_them_and_never_ahead(tmp_path: Path) -> None:
    held = trio.Event()

    class Holding(Store):
        """Takes positions, and no event."""

        async def emit(self, *batches: Batch, **more: Any) -> None:
            if batches and not held.is_set():
                held.set()
                await trio.sleep_forever()
            await super().emit(*batches, **more)

    path, store = tmp_path / "a.log", Holding()
    append(path, lines(0, 10))
    async with following(settings(path), store):
        await held.wait()

    assert await read_all(settings(path), store) == names(0, 10)


async def test_a_position_holds_no_text(tmp_path: Path) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, "canary in the text\n" * 100)
    await read_all(settings(path), store)

    assert b"canary" not in b"".join(store.stored.values())
    assert len(b"".join(store.stored.values())) < 400


# -- without descriptors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["a.log", "*.log"])
async def test_without_a_descriptor_a_file_waits_until_there_is_one(tmp_path: Path, pattern: str) -> None:
    append(tmp_path / "a.log", lines(0, 10))
    store = Store()
    with contextlib.ExitStack() as short:
        short.enter_context(descriptors_at_most(0))
        async with following(settings(tmp_path / pattern), store):
            await store.until(lambda: bool(store.problems))
            assert "Too many open files" in str(store.problems[0])
            assert not store.messages
            short.close()
            await store.comes(10)
            await store.until(lambda: store.problems[-1] is None)

    assert store.messages == names(0, 10)


async def test_a_file_renamed_while_there_is_no_descriptor_is_read_to_its_end(tmp_path: Path) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, lines(0, 10))
    async with following(settings(path), store) as source:
        await store.comes(10)
        await source._reader.turns.quiet()
        source._reader.open_files.clear()
        with path.open("ab") as file, descriptors_at_most(0):
            file.write(lines(10, 20).encode())
            file.flush()
            path.rename(tmp_path / "a.log.1")
            scans = source._followed.scans
            await becomes(lambda: source._followed.scans > scans + 1)
            began, scans = trio.current_time(), source._followed.scans
            await becomes(lambda scans=scans: source._followed.scans > scans + 1)  # type: ignore[misc]
            assert trio.current_time() - began > 0.5, "it looks again and again"
        await store.comes(20)

    assert store.messages == names(0, 20)


async def test_a_compressed_copy_is_looked_for_again_if_it_could_not_be_for_want_of_a_descriptor(
    tmp_path: Path,
) -> None:
    path, store = tmp_path / "a.log", Store()
    append(path, lines(0, 200))
    async with following(settings(path), store) as source:
        await store.comes(200)
        await source._reader.turns.quiet()
        source._reader.open_files.clear()
        packed = gzip.compress(lines(0, 210).encode())
        with (tmp_path / "a.log.1.gz").open("wb") as file, descriptors_at_most(0):
            file.write(packed)
            file.flush()
            scans = source._followed.scans
            path.unlink()
            await becomes(lambda: source._followed.scans > scans + 1)
        await store.comes(210)

    assert store.messages == names(0, 210)


async def test_one_shot_use_does_not_end_before_there_was_a_descriptor_for_each_file(tmp_path: Path) -> None:
    append(tmp_path / "a.log", lines(0, 10))
    store = Store()
    with contextlib.ExitStack() as short:
        short.enter_context(descriptors_at_most(0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all, settings(tmp_path / "a.log"), store)
            await store.until(lambda: bool(store.problems))
            short.close()

    assert store.messages == names(0, 10)


async def test_a_path_without_a_glob_that_has_no_file_is_a_problem_until_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer, "ABSENT", 0.3)
    store = Store()
    async with following(settings(tmp_path / "a.log", tmp_path / "*.gz"), store):
        await store.until(lambda: bool(store.problems))
        assert store.problems == [f"{tmp_path / 'a.log'}: there is no such file"]
        assert store.codes == ["file_missing"]
        append(tmp_path / "a.log", lines(0, 10))
        await store.comes(10)
        await store.until(lambda: store.problems[-1] is None)


async def test_a_file_that_is_away_for_a_rotation_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, lines(0, 10))
    store = Store()
    async with following(settings(path), store) as source:
        await store.comes(10)
        path.rename(tmp_path / "a.log.1")
        await becomes(lambda: bool(source._absent))
        append(path, lines(10, 20))
        await store.comes(20)

    assert store.problems == []


async def test_a_directory_that_cannot_be_listed_makes_no_file_a_missing_one(tmp_path: Path) -> None:
    append(tmp_path / "a.log", lines(0, 200))
    store = Store()
    async with following(settings(tmp_path / "*.log"), store) as source:
        await store.comes(200)
        source._reader.open_files.clear()
        with descriptors_at_most(0):
            (tmp_path / "b.log").mkdir()
            await store.until(lambda: bool(store.problems))
        append(tmp_path / "a.log", lines(200, 210))
        (tmp_path / "b.log").rmdir()
        await store.until(lambda: store.problems[-1] is None)
        await store.comes(210)

    assert store.messages == names(0, 210)


async def test_the_last_descriptors_are_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "a.log", lines(0, 10))
    store = Store()
    monkeypatch.setattr(content, "is_reserved", lambda descriptor, is_needed: True)
    async with following(settings(tmp_path / "a.log"), store):
        await store.until(lambda: bool(store.problems))
        assert "Too many open files: the limit is" in str(store.problems[0])
        monkeypatch.setattr(content, "is_reserved", lambda descriptor, is_needed: False)
        await store.comes(10)
        await store.until(lambda: store.problems[-1] is None)


async def test_a_file_that_is_read_takes_the_descriptor_of_an_idle_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "a.log", lines(0, 10))
    append(tmp_path / "b.log", lines(10, 20))
    store = Store()
    async with following(settings(tmp_path / "*.log"), store) as source:
        open_files = source._reader.open_files
        monkeypatch.setattr(content, "is_reserved", lambda descriptor, is_needed: bool(open_files._open))
        await store.comes(20)

    assert sorted(store.messages) == sorted(names(0, 20))


async def test_inputs_share_the_descriptors_that_there_are(tmp_path: Path) -> None:
    stores = [Store() for _ in range(5)]
    with descriptors_at_most(300):
        async with contextlib.AsyncExitStack() as stack:
            for number, store in enumerate(stores):
                for file in range(150):
                    append(tmp_path / f"{number}-{file}.log", lines(0, 10))
                await stack.enter_async_context(following(settings(tmp_path / f"{number}-*.log"), store))
                await store.comes(1500)

    assert [store.problems for store in stores] == [[]] * 5
