from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from shipper.supervise import watch as watching
from shipper.supervise.watch import ANY, Watch, entries

Change = Callable[[], object]


async def tells(watch: Watch, change: Change, within: float = 30.0) -> bool:
    """Whether the watch tells of a change."""
    change()
    with trio.move_on_after(within) as scope:
        await watch.changed()
    return not scope.cancelled_caught


@pytest.fixture(params=["inotify", "polling"])
def watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    with Watch(poll=request.param == "polling") as watch:
        assert watch.method == request.param
        yield watch


async def test_a_file_that_is_written_in_place(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("old")
    watch.follow([file])

    assert await tells(watch, lambda: file.write_text("newer"))


async def test_a_file_that_is_renamed_over(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("old")
    (tmp_path / "new").write_text("newer")
    watch.follow([file])

    assert await tells(watch, lambda: (tmp_path / "new").rename(file))


async def test_a_file_that_appears_and_one_that_goes(tmp_path: Path, watch: Watch) -> None:
    file = tmp_path / "policy.yaml"
    watch.follow([file])

    assert await tells(watch, lambda: file.write_text("here"))
    assert await tells(watch, file.unlink)


async def test_a_directory_tells_of_its_policy_files(tmp_path: Path, watch: Watch) -> None:
    watch.follow([tmp_path])

    assert await tells(watch, lambda: (tmp_path / "b.yml").write_text("x"))


async def test_the_symlink_swap_of_a_kubernetes_volume(tmp_path: Path, watch: Watch) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text(version * int(version))
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    watch.follow([tmp_path / "policy.yaml"])

    def swap() -> None:
        (tmp_path / "..data_tmp").symlink_to("2")
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")

    assert await tells(watch, swap)
    assert (tmp_path / "policy.yaml").read_text() == "22"


async def test_a_secret_in_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    secret = tmp_path / "run" / "keys" / "es"
    with Watch() as watch:
        watch.follow([secret])
        assert await tells(watch, lambda: secret.parent.mkdir(parents=True))
        assert watch.follow([secret]), "there is something new to watch, so it must be read again"
        assert await tells(watch, lambda: secret.write_text("id:key"))


async def test_other_names_and_a_file_still_open_make_no_event(tmp_path: Path) -> None:
    with Watch() as watch:
        watch.follow([tmp_path / "policy.yaml"])
        assert not await tells(watch, lambda: (tmp_path / "other.yaml").write_text("x"), within=0.2)
        with (tmp_path / "policy.yaml").open("w") as file:
            assert not await tells(watch, file.flush, within=0.2)
            file.write("half")
            assert not await tells(watch, file.flush, within=0.2)
        with trio.fail_after(60):
            await watch.changed()


async def test_following_the_same_paths_again_says_that_nothing_is_new(tmp_path: Path) -> None:
    with Watch() as watch:
        assert watch.follow([tmp_path / "a"])
        assert not watch.follow([tmp_path / "a"])
        assert watch.follow([tmp_path / "a", tmp_path / "b"])


def test_every_symlink_on_the_way_is_an_entry(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "f").symlink_to("link/../link/f")

    found = {
        (str(at.relative_to(tmp_path)), name) for at, name in entries(tmp_path / "f") if at.is_relative_to(tmp_path)
    }

    assert found == {(".", "f"), (".", "link"), ("real", "f")}
    assert (tmp_path, ANY) in entries(tmp_path)


def test_a_loop_of_symlinks_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert (tmp_path, "a") in entries(tmp_path / "a")


def test_a_directory_that_is_closed_ends_nothing(closed: Path) -> None:
    for poll in (False, True):
        with Watch(poll=poll) as watch:
            assert watch.follow([closed, closed / "policy.d"])


def test_a_symlink_that_vanishes_while_it_is_followed_is_a_name_like_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    read = os.readlink

    def vanishing(path: Path) -> str:
        path.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(os, "readlink", vanishing)

    assert (tmp_path, "link") in entries(tmp_path / "link")
