"""The model of a disk that loses its power: what is durable is there, and all that may be there is, at some time."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.journal import Create, Rename, Resize, Step, Sync, Unlink, Write
from tests.torn import SECTOR, TornDisk

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


@given(STEPS, STEPS, SEEDS)
def test_a_sync_of_one_file_makes_nothing_of_another_durable(before: list[Step], after: list[Step], seed: int) -> None:
    """File 0 is synced and then left alone."""
    others = [step for step in after if not isinstance(step, Write | Resize | Sync) or step.file != 0]

    assert left([*NAMED, *before, Sync(0), *others], seed)["0"] == written(before, 0)


@given(st.lists(WRITES, max_size=20), SEEDS)
def test_each_byte_is_one_that_was_written_there_or_nought(steps: list[Write], seed: int) -> None:
    for name, content in left([*NAMED, *steps], seed).items():
        mine = [step for step in steps if str(step.file) == name]
        for at, byte in enumerate(content):
            assert byte in {
                0,
                *(step.content[at - step.at] for step in mine if step.at <= at < step.at + len(step.content)),
            }


@given(PLACES, st.binary(min_size=1, max_size=2 * SECTOR), SEEDS)
def test_a_sector_is_old_or_new_and_never_a_part_of_both(at: int, new: bytes, seed: int) -> None:
    old = bytes(byte ^ 0xFF for byte in new)
    content = left([Write(0, at, new)], seed, {"0": bytes(at) + old})["0"][at:]
    for low in range(-(at % SECTOR), len(new), SECTOR):
        part = slice(max(0, low), low + SECTOR)
        assert content[part] in (old[part], new[part])


def seen(steps: list[Step], files: dict[str, bytes] | None = None) -> list[dict[str, bytes]]:
    """Every disk that some hundred cuts leave."""
    return [left(steps, seed, files) for seed in range(500)]


def test_each_part_of_what_was_not_synced_may_be_all_that_is_left() -> None:
    disks = seen([Write(0, 0, b"n" * 2 * SECTOR), Write(1, 0, b"n")], {"0": b"o" * 2 * SECTOR, "1": b"o"})

    for first, second, other in product("on", repeat=3):
        assert {"0": (first * SECTOR + second * SECTOR).encode(), "1": other.encode()} in disks


def test_a_name_that_was_not_synced_may_be_old_new_or_both_and_its_content_is_what_was_synced() -> None:
    moved = seen([Write(0, 0, b"n"), Sync(0), Rename("a", "b", 0)], {"a": b"o", "b": b"x"})
    made = seen([Create("a", 0), Write(0, 0, b"n"), Sync(0)])
    removed = seen([Unlink("a")], {"a": b"o"})

    assert all(disk in ({"a": b"n", "b": b"x"}, {"b": b"n"}) for disk in moved)
    assert {len(disk) for disk in moved} == {1, 2}
    assert {} in made
    assert {"a": b"n"} in made
    assert {} in removed
    assert {"a": b"o"} in removed


def test_a_file_that_grew_and_was_not_written_holds_zeros_or_what_another_gave_up() -> None:
    disks = seen([Unlink("a"), Sync(None), Write(1, 0, b"n" * SECTOR)], {"a": b"o" * SECTOR, "b": b""})

    assert {bytes(SECTOR), b"o" * SECTOR, b"n" * SECTOR, b""} == {disk["b"] for disk in disks}
