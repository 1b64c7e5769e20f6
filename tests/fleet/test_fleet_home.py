"""What a member remembers of its fleet."""

import shutil

import pytest
from msgspec.structs import replace

from shipper.fleet.home import Home
from shipper.fleet.memory import Kept
from shipper.fleet.records import Version
from shipper.sdk.errors import OptionError, StateLocked
from tests.fleet.hosts import ENVIRONMENT


def opened(place, fleet="prod", member="web-1"):
    return Home.open(place, fleet, member, ENVIRONMENT)


async def test_what_was_saved_is_there_after_a_restart(tmp_path):
    home = opened(tmp_path)
    memory = replace(home.memory, state="member", newest=Version(0, 7, "abc"), write=3, revision=9, fence=True)
    await home.save(memory)
    await home.keep(kept := Kept(Version(0, 7, "abc"), b"\x00text", {"es-1": b"\xffsecret"}))

    assert opened(tmp_path).memory == memory
    assert opened(tmp_path).kept == kept


async def test_opening_writes_nothing_and_another_directory_has_another_id(tmp_path):
    assert opened(tmp_path).memory.directory != opened(tmp_path).memory.directory
    assert list(tmp_path.iterdir()) == []


async def test_a_copy_of_a_directory_is_a_new_one_and_a_moved_directory_is_the_same(tmp_path):
    (tmp_path / "one").mkdir()
    home = opened(tmp_path / "one")
    await home.save(replace(home.memory, state="member", revision=5, fence=True))
    await home.keep(Kept(Version(0, 1, "abc"), b"", {}))
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    (tmp_path / "one").rename(tmp_path / "moved")

    copy, moved = opened(tmp_path / "copy"), opened(tmp_path / "moved")
    assert moved.memory == home.memory
    assert moved.kept == home.kept
    assert (copy.memory.state, copy.memory.revision, copy.memory.fence, copy.kept) == ("new", 0, False, None)
    assert copy.memory.directory != moved.memory.directory
    assert copy.place != moved.place
    assert opened(tmp_path / "copy", member="web-2").memory.state == "new"


async def test_a_directory_from_before_its_place_was_kept_is_the_same(tmp_path):
    home = opened(tmp_path)
    await home.save(replace(home.memory, state="member", revision=5, inode=0))
    assert opened(tmp_path).memory.directory == home.memory.directory
    assert opened(tmp_path).memory.inode == tmp_path.stat().st_ino


@pytest.mark.parametrize("name", ["fleet.json", "fleet.version.json"])
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"format": 1}', b"\xff", b'{"format": "x"}', b"[" * 10_000])
async def test_a_damaged_file_is_one_clear_error_and_stays(tmp_path, name, raw):
    await opened(tmp_path).save(opened(tmp_path).memory)
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(StateLocked, match=f"{name} is damaged; restore it, or remove it"):
        opened(tmp_path)
    assert (tmp_path / name).read_bytes() == raw


async def test_a_newer_format_is_refused(tmp_path):
    home = opened(tmp_path)
    await home.save(replace(home.memory, format=2))
    with pytest.raises(StateLocked, match="format 2"):
        opened(tmp_path)


async def test_a_failed_save_keeps_the_old_memory(tmp_path):
    home = opened(tmp_path)
    await home.save(home.memory)
    before = home.memory
    (tmp_path / "fleet.json.new").mkdir()
    with pytest.raises(OSError, match=r"fleet\.json"):
        await home.save(replace(before, write=5))
    assert home.memory == before == opened(tmp_path).memory


async def test_under_another_name_a_directory_begins_anew(tmp_path):
    home = opened(tmp_path)
    await home.save(replace(home.memory, state="member", revision=5))
    await home.keep(Kept(Version(0, 1, "abc"), b"", {}))
    other = opened(tmp_path, member="web-2")
    assert (other.memory.state, other.memory.revision, other.kept) == ("new", 0, None)
    assert other.memory.directory != home.memory.directory


async def test_a_directory_that_promised_a_fence_keeps_its_name_until_it_has_left(tmp_path):
    home = opened(tmp_path)
    await home.save(replace(home.memory, state="member", fence=True))
    for fleet, member in (("prod", "web-2"), ("test", "web-1")):
        with pytest.raises(OptionError, match="shipper fleet leave"):
            opened(tmp_path, fleet, member)
    await home.save(replace(home.memory, state="left"))
    assert opened(tmp_path, member="web-2").memory.state == "new"
