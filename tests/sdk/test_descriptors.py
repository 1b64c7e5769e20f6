"""A process may have as many files open as the system lets it, and the last ones are for its core."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shipper.sdk import descriptors
from tests.limits import descriptors_at_most


def few() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are shown by Linux alone")
def test_a_sidecar_takes_the_hard_limit_of_open_files_for_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=few) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type":"hello","protocol":1}\n')
        process.stdin.flush()
        assert b'"ready"' in process.stdout.readline()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.kill()
    (files,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]

    assert files[3] == files[4] != "256"


@pytest.mark.parametrize(("limit", "first"), [(1024, 992), (128, 96), (64, 48), (40, 30)])
def test_the_last_descriptors_are_reserved_and_a_quarter_of_few(limit: int, first: int) -> None:
    with descriptors_at_most(limit):
        assert not descriptors.is_reserved(first - 1)
        assert descriptors.is_reserved(first)


def test_where_no_descriptor_is_left_that_is_seen_and_over_once_there_is_one() -> None:
    with descriptors_at_most(0):
        assert descriptors.none_is_left()
    assert not descriptors.none_is_left()


def test_a_want_of_descriptors_is_told_with_the_limit_and_what_to_do() -> None:
    with descriptors_at_most(512):
        told = descriptors.in_words(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    assert told == "Too many open files: the limit is 512, raise it (LimitNOFILE= of the unit, ulimit -Hn)"
    assert "fs.file-max" in descriptors.in_words(OSError(errno.ENFILE, os.strerror(errno.ENFILE)))
    assert descriptors.in_words(OSError(errno.ENOENT, "no such file")) == "no such file"


def test_who_has_no_other_descriptor_may_take_the_first_half_of_the_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 64)

    assert [descriptors.is_reserved(number) for number in (47, 48, 63)] == [False, True, True]
    assert [descriptors.is_reserved(number, is_needed=True) for number in (55, 56, 63)] == [False, True, True]
