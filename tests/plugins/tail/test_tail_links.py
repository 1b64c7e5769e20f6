"""Files behind links, as a kubelet has them: what rotates behind a link is read to its end, or told of."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shipper_plugins.tail import followed
from tests.plugins.running import becomes
from tests.plugins.tail.tailing import Store, append, following, lines, names, read_all, settings


class Pod:
    """A log at `pods/…/0.log`, with a link to it in `containers`."""

    def __init__(self, root: Path) -> None:
        self.log = root / "pods" / "web_1" / "nginx" / "0.log"
        self.link = root / "containers" / "web-nginx-abc.log"
        self.log.parent.mkdir(parents=True)
        self.link.parent.mkdir()
        self.link.symlink_to(self.log)
        self.config = settings(root / "containers" / "*.log")


@pytest.mark.parametrize(
    ("ending", "pack", "is_link_there"),
    [
        ("", bytes, True),
        ("", bytes, False),
        (".gz", gzip.compress, True),
        (".xz", lzma.compress, False),
        (".bz2", bz2.compress, True),
    ],
)
async def test_what_was_rotated_behind_a_link_while_nothing_ran_is_read_to_its_end(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes], is_link_there: bool
) -> None:
    """Twice, so that the first one may be packed and the second one never was seen."""
    pod, store = Pod(tmp_path), Store()
    append(pod.log, lines(0, 500))
    await read_all(pod.config, store)
    append(pod.log, lines(500, 1000))
    if ending:
        append(pod.log.with_name(f"0.log.20260101-120000{ending}"), pack(pod.log.read_bytes()))
        pod.log.unlink()
    else:
        pod.log.rename(pod.log.with_name("0.log.20260101-120000"))
    append(pod.log.with_name("0.log.20260101-130000"), lines(1000, 1500))
    append(pod.log, lines(1500, 1510))
    last = 1510 if is_link_there else 1500
    if not is_link_there:
        pod.link.unlink()
        pod.log.unlink()

    assert sorted(await read_all(pod.config, store)) == sorted(names(500, last))
    assert store.problems == []
    assert await read_all(pod.config, store) == []


async def test_a_copy_that_a_glob_finds_beside_the_target_of_a_link_is_one(tmp_path: Path) -> None:
    pod, store = Pod(tmp_path), Store()
    config = settings(pod.link.parent / "*.log", pod.log.parent / "0.log.*")
    append(pod.log, lines(0, 5))
    assert await read_all(config, store) == names(0, 5)
    append(pod.log.with_name("0.log.1.gz"), gzip.compress(pod.log.read_bytes()))
    assert await read_all(config, store) == []
    pod.log.unlink()

    assert await read_all(config, store) == []


async def test_a_begun_file_that_is_gone_with_its_link_is_told_of_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "SETTLED", 0.0)
    pod, store = Pod(tmp_path), Store()
    append(pod.log, lines(0, 5))
    await read_all(pod.config, store)
    pod.link.unlink()
    pod.log.unlink()
    async with following(pod.config, store) as source:
        await store.until(lambda: "gone before their end was read" in str(store.problem))
        assert source.figures() == {"files": 0, "unread_bytes": 0, "lost_files": 1}

    assert store.codes[-1] == "data_lost"


async def test_a_rotated_file_that_was_read_and_is_removed_while_nothing_runs_is_no_loss(tmp_path: Path) -> None:
    """As the oldest ones are."""
    store = Store()
    append(tmp_path / "app.log", lines(5, 10))
    append(tmp_path / "app.log-20260101", lines(0, 5))
    append(tmp_path / "app.log-20260101.gz", gzip.compress(lines(20, 25).encode()))
    await read_all(settings(tmp_path / "*"), store)
    os.unlink(tmp_path / "app.log-20260101")
    os.unlink(tmp_path / "app.log-20260101.gz")
    async with following(settings(tmp_path / "*"), store) as source:
        append(tmp_path / "app.log", "end\n")
        await store.comes(16)
        await becomes(lambda: source._followed.scans > 0)
        assert "lost_files" not in source.figures()

    assert store.problems == []
