"""Files that are packed by gzip, xz and bzip2 are read, and what is packed otherwise is told."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from shipper.plugin import Size
from shipper_plugins.tail import content, packing
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings

Pack = Callable[[bytes], bytes]
WAYS = {".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress}
EACH = pytest.mark.parametrize(("ending", "pack"), WAYS.items())
BOTH = pytest.mark.parametrize(("ending", "pack"), list(WAYS.items())[:2])
UNREAD = {
    ".zst": b"\x28\xb5\x2f\xfd\x04\x00",
    ".pzst": b"\x50\x2a\x4d\x18\x04\x00\x00\x00",
    ".lz4": b"\x04\x22\x4d\x18\x64\x40",
    ".lz": b"LZIP\x01\x0c",
    ".zip": b"PK\x03\x04\x14\x00",
    ".Z": b"\x1f\x9d\x90",
}


@EACH
async def test_a_rotated_file_that_is_packed_while_it_is_followed_gives_nothing_twice(
    tmp_path: Path, ending: str, pack: Pack
) -> None:
    path, store = tmp_path / "app.log", Store()
    append(path, lines(0, 3000) + "last")
    async with following(settings(tmp_path / "app.log*"), store):
        await store.comes(3000)
        path.rename(tmp_path / "app.log-20260101")
        append(path, "new\n")
        await store.comes(3002)
        whole = (tmp_path / "app.log-20260101").read_bytes()
        append(tmp_path / f"app.log-20260101{ending}", pack(whole))
        (tmp_path / "app.log-20260101").unlink()
        append(path, "end\n")
        await store.comes(3003)

    assert sorted(store.messages) == sorted([*names(0, 3000), "last", "new", "end"])
    assert await read_all(settings(tmp_path / "app.log*"), store) == []


@BOTH
async def test_the_rest_of_a_begun_file_is_read_from_its_packed_copy(tmp_path: Path, ending: str, pack: Pack) -> None:
    path, config, store = tmp_path / "app.log", settings(tmp_path / "app.log*"), Store()
    append(path, lines(0, 500))
    await read_all(config, store)
    append(path, lines(500, 1000))
    (tmp_path / f"app.log.1{ending}").write_bytes(pack(path.read_bytes()))
    path.unlink()
    append(path, lines(1000, 1010))

    assert sorted(await read_all(config, store)) == sorted(names(500, 1010))


@EACH
@pytest.mark.parametrize("first", [0, 2])
async def test_a_packed_file_that_is_written_in_pieces_and_of_several_members_is_read_as_one(
    tmp_path: Path, ending: str, pack: Pack, first: int
) -> None:
    path, store = tmp_path / f"a{ending}", Store()
    packed = pack(lines(0, 2000).encode()) + bytes(4) + pack(lines(2000, 3000).encode())
    append(path, packed[:first])
    async with following(settings(tmp_path / "*"), store) as source:
        await becomes(lambda: len(source._followed.known.streams) == 1)
        await source._reader.turns.quiet()
        append(path, packed[first:])
        await store.comes(3000)

    assert store.messages == names(0, 3000)


@EACH
async def test_a_damaged_packed_file_and_one_that_is_cut_short_are_told_of(
    tmp_path: Path, ending: str, pack: Pack
) -> None:
    packed, store = pack(lines(0, 3000).encode()), Store()
    (tmp_path / f"damaged{ending}").write_bytes(packed[:40] + b"x" * 60 + packed[100:])
    (tmp_path / f"short{ending}").write_bytes(packed[:-8])
    await read_all(settings(tmp_path / "*"), store)

    assert f"damaged{ending}: not a valid" in str(store.problem)
    assert f"short{ending}: the compressed file is cut short" in str(store.problem)


@pytest.mark.parametrize(("ending", "head"), UNREAD.items())
@pytest.mark.parametrize("first", [0, 2])
async def test_what_is_packed_in_a_way_that_is_not_read_is_told_and_no_text(
    tmp_path: Path, ending: str, head: bytes, first: int
) -> None:
    store = Store()
    append(tmp_path / "a.log", "fine\n")
    append(tmp_path / f"b{ending}", head[:first])
    async with following(settings(tmp_path / "*"), store) as source:
        await becomes(lambda: len(source._followed.known.streams) == 2)
        await source._reader.turns.quiet()
        append(tmp_path / f"b{ending}", head[first:] + b"\nbinary\n" * 300)
        await store.until(lambda: "which is not read: leave it out" in str(store.problem))
        assert source.figures()["unread_bytes"] > 0

    assert store.messages == ["fine"]
    assert store.codes[-1] == "file_unreadable"


async def test_text_that_begins_as_a_packed_file_does_is_text(tmp_path: Path) -> None:
    store = Store()
    for number, text in enumerate(["BZh9\n", "BZ", "PK", "(", "L", "7z\n"]):
        append(tmp_path / f"{number}.log", text)

    assert await read_all(settings(tmp_path / "*.log"), store) == ["BZh9", "BZ", "PK", "(", "L", "7z"]


@BOTH
async def test_what_a_packed_file_becomes_is_read_in_pieces(
    tmp_path: Path, ending: str, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 KiB of it become up to a thousand times as much by gzip, and still more in these ways."""
    monkeypatch.setattr(content, "STRIDE", 1 << 20)
    monkeypatch.setattr(packing, "PIECE", 64 << 10)
    path, size = tmp_path / f"a{ending}", 4 << 20
    path.write_bytes(pack(b"x" * size))
    status = path.stat()
    opened = content.open_content(str(path), (status.st_dev, status.st_ino))
    assert isinstance(opened, content.Unpacked)
    kept = [len(opened.look(offset, 1000).found) + len(opened._kept) for offset in range(0, size, 512 << 10)]
    opened.close()

    assert max(kept) < content.STRIDE + 2 * packing.PIECE


async def test_a_file_that_wants_more_memory_than_it_may_is_told_of(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 256 << 20}]
    path, store = tmp_path / "a.xz", Store()
    path.write_bytes(lzma.compress(b"a\n", filters=filters))
    await read_all(settings(path), store)

    assert "a.xz: not a valid xz file, or one for more memory than it may" in str(store.problem)


@EACH
async def test_more_packed_files_than_are_unpacked_at_once_are_all_read_and_none_is_told_of(
    tmp_path: Path, ending: str, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "chunk_bytes", 4 << 10)
    texts = [lines(0, 1000, f"file {number}") for number in range(3 * packing.AT_ONCE)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}{ending}").write_bytes(pack(text.encode()))
    store = Store()
    found = await read_all(settings(tmp_path / "*", max_line_bytes=Size(1000)), store)

    assert sorted(found) == sorted("".join(texts).splitlines())
    assert store.problems == []
