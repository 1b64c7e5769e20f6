"""The model of a disk that loses its power: what is durable is there, and all that may be there is, at some time."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.journal import Create, Rename, Resize, Step, Sync, Unlink, Write
from tests.torn import SECTOR, TornDisk, cuts

FILES = st.integers(0, 3)
PLACES = st.integers(0, 3 * SECTOR)
WRITES = st.builds(Write, FILES, PLACES, st.binary(max_size=2 * SECTOR))
STEPS = st.lists(WRITES | st.builds(Resize, FILES, PLACES) | st.builds(Sync, FILES), max_size=30)
SEEDS = st.integers(0, 2**32)
NAMED: list[Step] = [*(Create(str(file), file) for file in range(4)), Sync(None)]


def left(steps: list[Step], seed: int, files: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """One of the disks that a cut after these steps may leave."""
    disk = TornDisk(files)
    for step in steps:
        disk.do(step)
    return disk.cut(random.Random(seed))


def written(steps: list[Step], file: int) -> bytes:
    """What a file holds that nobody cut."""
    content = b""
    for step in steps:
        match step:
            case Write(of, at, new) if of == file:
                content = content.ljust(at, b"\0")[:at] + new + content[at + len(new) :]
            case Resize(of, size) if of == file:
                content = content[:size].ljust(size, b"\0")
    return content


@given(STEPS, SEEDS)
def test_what_was_synced_is_there_whatever_became_of_the_rest(steps: list[Step], seed: int) -> None:
    synced: list[Step] = [Sync(file) for file in range(4)]

    assert left([*NAMED, *steps, *synced], seed) == {str(file): written(steps, file) for file in range(4)}


def seen(steps: list[Step], files: dict[str, bytes] | None = None) -> list[dict[str, bytes]]:
    """Every disk that some hundred cuts leave."""
    return [left(steps, seed, files) for seed in range(500)]


def test_each_part_of_what_was_not_synced_may_be_all_that_is_left() -> None:
    disks = seen([Write(0, 0, b"n" * 2 * SECTOR), Write(1, 0, b"n")], {"0": b"o" * 2 * SECTOR, "1": b"o"})

    for first, second, other in product("on", repeat=3):
        assert {"0": (first * SECTOR + second * SECTOR).encode(), "1": other.encode()} in disks


def test_what_was_removed_may_be_gone_before_its_successor_has_a_durable_name() -> None:
    steps = [Create("new.tmp", 1), Write(1, 0, b"n"), Sync(1), Rename("new.tmp", "new", 1), Unlink("old"), Sync(None)]
    sound = [*steps[:4], Sync(None), *steps[4:]]

    assert list(cuts(steps, {"old": b"o"}, 0, random.Random(0))) == [(5, {})]
    assert list(cuts(sound, {"old": b"o"}, 0, random.Random(0))) == []
