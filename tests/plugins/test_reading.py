"""Reads by offset give what they were asked for, or say why not."""

import errno
import os

import pytest

from shipper_plugins.reading import read_at, read_some
from tests.short_reads import short_reads

TEXT = bytes(range(256)) * 100


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(TEXT)
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def bad_from(monkeypatch, byte, answer):
    """The file system gives the bytes before this one, and then an error or nothing."""
    pread = os.pread

    def read(file, size, offset):
        if offset < byte:
            return pread(file, min(size, byte - offset), offset)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "pread", read)


@pytest.mark.parametrize("read", [read_at, read_some])
def test_all_bytes_come_however_many_one_call_gives(file, read):
    for seed in range(20):
        with short_reads(seed, share=0.9):
            assert read(file, 100, 20_000) == TEXT[100:20_100]


@pytest.mark.parametrize("read", [read_at, read_some])
def test_a_file_that_ends_before_gives_what_it_has(file, read):
    for offset in (0, 25_000, len(TEXT), len(TEXT) + 10):
        assert read(file, offset, 1 << 20) == TEXT[offset:]
        assert read(file, offset, 0) == b""


@pytest.mark.parametrize("answer", [OSError(errno.EIO, "Input/output error"), b""])
def test_what_is_before_a_bad_byte_can_be_read_and_the_byte_itself_cannot(file, monkeypatch, answer):
    bad_from(monkeypatch, 1000, answer)

    assert read_some(file, 900, 500) == TEXT[900:1000]
    assert read_at(file, 900, 100) == TEXT[900:1000]
    for read, offset in ((read_some, 1000), (read_at, 1000), (read_at, 900)):
        with pytest.raises(
            OSError, match=r"Input/output error|it has 25600 bytes, but cannot be read beyond byte 1000"
        ):
            read(file, offset, 500)


def test_a_size_that_is_no_lie_any_more_is_no_error(file):
    """The file is truncated after its size was asked for, and before it is read."""
    os.truncate(file, 1000)

    assert read_at(file, 900, 500) == TEXT[900:1000]
    assert read_at(file, 2000, 500) == b""


def test_a_file_that_grows_between_the_read_and_the_look_at_its_size_is_no_error(file, monkeypatch):
    read, calls = os.pread, 0

    def late(fd, size, offset):
        nonlocal calls
        calls += 1
        return b"" if calls == 1 else read(fd, size, offset)

    monkeypatch.setattr(os, "pread", late)

    assert read_some(file, 0, 3) == TEXT[:3]
