"""A directory is one member: what it remembers is durable, secret, and not that of a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from shipper.kubernetes.home import FILE, Home, Kept
from shipper.kubernetes.member.memory import Content, Memory
from shipper.sdk.errors import OptionError, StateLocked
from shipper.supervise.vault import Vault
from tests import canary

CONTENT = Content("es-1", "es", "u", "api_key", "", "7", b"id:canary-of-a-key")


@contextmanager
def opened(directory: Path, member: str = "node-1", *, boot: str | None = None) -> Iterator[Home]:
    with Vault(directory) as vault:
        vault.load()
        yield Home.open(directory, vault, "logging", member, boot=boot)


async def remembered(directory: Path, **fields: object) -> Memory:
    with opened(directory) as home:
        memory = replace(home.memory, contents=(CONTENT,), drawn=3, number=5, **fields)
        await home.save(memory)
    return memory


async def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    memory = await remembered(tmp_path)

    with opened(tmp_path) as home:
        assert home.memory == memory


async def test_contents_are_not_in_the_clear(tmp_path: Path) -> None:
    await remembered(tmp_path)

    assert canary.left_in(tmp_path, {b"canary-of-a-key"}) == {}


async def test_a_copy_is_another_directory_that_still_has_the_contents(tmp_path: Path) -> None:
    memory = await remembered(tmp_path / "one", withdrawn=("es-1",), proven=("es-1",))
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    with opened(tmp_path / "two") as home:
        assert home.memory.directory != memory.directory
        assert (home.memory.contents, home.memory.drawn) == ((CONTENT,), 3)
        assert home.memory.withdrawn == ("es-1",), "its events wait for an order still"
        assert (home.memory.parts, home.memory.proven) == ((), ()), (
            "of what it uses, nothing was said by this directory"
        )


async def test_another_name_makes_another_member(tmp_path: Path) -> None:
    memory = await remembered(tmp_path)

    with opened(tmp_path, "node-2") as home:
        assert home.memory.directory != memory.directory


async def test_a_member_that_has_promised_to_stop_with_its_lease_keeps_its_name(tmp_path: Path) -> None:
    await remembered(tmp_path, fence=True)

    with pytest.raises(OptionError, match="is the member node-1 of namespace logging"), opened(tmp_path, "node-2"):
        pass


async def test_the_place_is_that_of_the_directory_on_this_boot(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with opened(tmp_path) as home:
        place = home.place
    with opened(tmp_path) as home:
        assert home.place == place
    with opened(tmp_path, boot="another") as home:
        assert home.place != place
    with opened(tmp_path / "other") as home:
        assert home.place != place
    assert "/" not in place


def test_a_newer_format_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    newer = Kept("logging", "node-1", 0, Memory("d", format=2))
    with Vault(tmp_path) as vault:
        vault.load()
        for raw, words in ((msgspec.json.encode(newer), "format 2"), (b"{}", "damaged")):
            vault.write(FILE, raw)
            with pytest.raises(StateLocked, match=words):
                Home.open(tmp_path, vault, "logging", "node-1")
