"""Files that a person names, pipes among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shipper.supervise import reading
from shipper.supervise.reading import content


def test_of_a_pipe_all_is_read_that_comes_until_it_is_closed() -> None:
    """As in `shipper validate <(envsubst < policy.yaml)`."""
    ours, theirs = os.pipe()
    os.write(theirs, b"version: 1\n")
    os.close(theirs)

    assert content(Path(f"/dev/fd/{ours}"), 1000) == b"version: 1\n"
    os.close(ours)


def test_more_than_the_limit_is_not_read_of_a_pipe() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, bytes(1000))

    assert len(content(Path(f"/dev/fd/{ours}"), 99)) == 100
    os.close(ours)
    os.close(theirs)


def test_a_pipe_that_stays_open_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.05)
    ours, theirs = os.pipe()
    os.write(theirs, b"version")

    with pytest.raises(OSError, match=r"a pipe that nobody has closed within 0\.05 s"):
        content(Path(f"/dev/fd/{ours}"), 1000)
    os.close(ours)
    os.close(theirs)
