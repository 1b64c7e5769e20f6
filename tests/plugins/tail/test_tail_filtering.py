"""`include_lines`, `exclude_lines` and `ignore_older` of the `file` input."""

from __future__ import annotations

import gzip
import os
import re
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Batch, Duration, Fields
from shipper_plugins.tail.effects import Keep
from shipper_plugins.tail.filtering import LONGEST_SEARCHED, Filter
from shipper_plugins.tail.followed import Clock, Followed
from shipper_plugins.tail.identity import Identity
from shipper_plugins.tail.ignoring import Ignoring
from shipper_plugins.tail.multiline import Multiline
from shipper_plugins.tail.options import Options
from shipper_plugins.tail.sight import Sight, Wish
from shipper_plugins.tail.stream import Stream
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all
from tests.plugins.tail.tailing import settings as of

HOURS = 3600


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def filtered(store: Store) -> int:
    return int(store.meters.view()["lines_filtered"]["value"])


# -- lines -------------------------------------------------------------------------------------------------------------


async def test_lines_are_kept_by_their_text_and_counted_if_not(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "ERR one\nDBG two\nWARN three\nERR but DBG\né\n")
    store = Store()
    config = of(tmp_path / "a.log", include_lines=("^ERR", "^WARN"), exclude_lines=("DBG",))

    assert await read_all(config, store) == ["ERR one", "WARN three"]
    assert [event["log"]["offset"] for event in store.events] == [0, 16]
    assert filtered(store) == 3


async def test_the_position_moves_past_lines_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "x 1\nx 2\n")
    store = Store()
    await read_all(of(path, exclude_lines=("^x",)), store)

    assert store.count == 0
    assert filtered(store) == 2
    assert await read_all(of(path), store) == []

    append(path, "x 3\n")
    assert await read_all(of(path), store) == ["x 3"]


async def test_a_change_of_the_patterns_counts_from_where_reading_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "a 1\nb 1\n")
    store = Store()
    async with following(of(path, include_lines=("^a",)), store) as source:
        await store.comes(1)
        source.change(of(path, include_lines=("^b",)), {})
        append(path, "a 2\nb 2\n")
        await store.comes(2)

    assert store.messages == ["a 1", "b 2"]


async def test_an_event_of_several_lines_is_searched_as_a_whole(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "ERR\n at x\nOK\n at x\nERR 2\n")
    config = of(tmp_path / "a.log", multiline=Multiline(pattern=r"^\s"), include_lines=("^ERR",))

    assert await read_all(config, Store()) == ["ERR\n at x", "ERR 2"]


async def test_lines_in_other_encodings_are_searched_as_text(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "é\r\nx\r\n".encode("latin-1"))
    append(tmp_path / "b.log", b"\xff \xc3\xa9\ny\n")

    assert await read_all(of(tmp_path / "a.log", encoding="latin-1", include_lines=("é",)), Store()) == ["é"]
    assert await read_all(of(tmp_path / "b.log", exclude_lines=("é",)), Store()) == ["y"]


def test_a_long_text_is_searched_at_its_beginning() -> None:
    text = b"x" * LONGEST_SEARCHED + b"y"
    batch = Batch.lines(text + b"\n", offset=0, shared={})

    assert Filter(include=("y",)).kept(batch).count == 0
    assert Filter(include=("^x",)).kept(batch).count == 1


PATTERNS = st.lists(
    st.sampled_from(
        ["a", "^a", "a$", "^$", "b", "é", "a.b", "[^a]b", r"\Aab", r"b\z", "(?i)A", "(?-m)^b", "x|^b", r"\bb\b", "a?$"]
    ),
    max_size=3,
)
TEXTS = st.lists(st.text(st.sampled_from('ab é"\\\x7f'), max_size=4), min_size=1, max_size=6)


def is_kept(text: str, include: list[str], exclude: list[str]) -> bool:
    def found(patterns: list[str]) -> bool:
        return any(re.search(p.replace(r"\z", r"\Z").replace("(?-m)", ""), text, re.ASCII) for p in patterns)

    return (found(include) or not include) and not found(exclude)


@settings(deadline=None)
@given(TEXTS, PATTERNS, PATTERNS, st.booleans(), st.integers(1, 2))
def test_events_are_kept_that_a_simple_reading_keeps(
    texts: list[str], include: list[str], exclude: list[str], are_lines: bool, gap: int
) -> None:
    shared: Fields = {"log": {"file": {"path": "/a"}}, "x": 1}
    batch = Batch.lines("".join(f"{text}\n" for text in texts).encode(), offset=3, gap=gap, shared=shared)
    if not are_lines:
        batch = Batch.documents([orjson.dumps(own) for own in batch.own()], shared={"x": 1})
    kept = Filter(tuple(include), tuple(exclude)).kept(batch)

    assert kept.whole() == [event for event in batch.whole() if is_kept(event["message"], include, exclude)]


@pytest.mark.parametrize("option", ["include_lines", "exclude_lines"])
def test_a_pattern_that_is_none_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match="invalid regular expression"):
        of("/a", **{option: ("(",)})


# -- old files ---------------------------------------------------------------------------------------------------------


async def test_an_old_file_is_not_read_but_for_what_is_written_later(tmp_path: Path) -> None:
    old, young = tmp_path / "old.log", tmp_path / "young.log"
    append(old, lines(0, 3, "old"))
    aged(old, 3 * HOURS)
    append(young, lines(0, 2, "young"))
    aged(young, HOURS)
    config = of(tmp_path / "*.log", ignore_older=Duration(2 * HOURS))
    store = Store()

    assert await read_all(config, store) == names(0, 2, "young")

    append(old, "old 3\n")
    assert await read_all(config, store) == ["old 3"]
    assert store.events[-1]["log"]["offset"] == 18


async def test_a_line_that_an_old_file_ends_in_the_middle_of_is_read_whole(tmp_path: Path) -> None:
    old = tmp_path / "old.log"
    append(old, lines(0, 3, "old") + "begun")
    aged(old, 3 * HOURS)
    store = Store()
    async with following(of(tmp_path / "*.log", ignore_older=Duration(HOURS)), store):
        await store.until(lambda: bool(store.stored))
        append(old, " here\n")
        await store.comes(1)

    assert store.messages == ["begun here"]


async def test_in_one_shot_use_nothing_of_an_old_file_is_read(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\nbegun")
    aged(tmp_path / "a.log", 2 * HOURS)

    assert await read_all(of(tmp_path / "a.log", ignore_older=Duration(HOURS)), Store()) == []


async def test_a_file_that_was_begun_is_read_to_its_end_however_old(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "one\n")
    config = of(path, ignore_older=Duration(HOURS))
    store = Store()
    await read_all(config, store)
    append(path, "two\n")
    aged(path, 2 * HOURS)

    assert await read_all(config, store) == ["two"]


async def test_the_unread_rest_of_an_old_rotated_and_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    text = lines(0, 100)
    append(path, text)
    config = of(tmp_path / "a.log*", ignore_older=Duration(HOURS))
    store = Store()
    await read_all(config, store)
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress((text + "rest\n").encode()))
    path.unlink()
    aged(tmp_path / "a.log.1.gz", 2 * HOURS)

    assert await read_all(config, store) == ["rest"]


async def test_an_old_compressed_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x\n"))
    aged(tmp_path / "a.gz", 2 * HOURS)
    store = Store()

    assert await read_all(of(tmp_path / "*", ignore_older=Duration(HOURS)), store) == []
    assert await read_all(of(tmp_path / "*"), store) == []


@pytest.mark.parametrize(("hours_before", "is_ignored"), [(0, False), (1, False), (3, True)])
def test_the_age_of_a_file_is_that_when_it_was_first_seen(hours_before: int, is_ignored: bool) -> None:
    """A first run over much takes longer than `ignore_older`: what was young when it was seen is read."""
    seen = 10**18
    followed = Followed(
        Options(identity="x", paths=("/a",), fields=lambda path: {}, ignore_older=2 * HOURS),
        Clock(lambda: 9 * HOURS, lambda: seen + 9 * HOURS * 10**9),
    )
    stream = Stream("1", Identity("/a", (1, 2), "", 0, compressed=True), first_seen=seen)
    wish = Wish.of(stream)
    assert wish is not None
    sight = Sight(wish, True, 7, seen - hours_before * HOURS * 10**9, True, b"", None)
    steps = list(Ignoring(followed).ignore(stream, sight))

    assert [isinstance(step, Keep) for step in steps] == [True] * is_ignored
    assert stream.place.done == (7 if is_ignored else None)
