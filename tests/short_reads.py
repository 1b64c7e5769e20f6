"""Reads that give fewer bytes than they were asked for, though the file goes on.

A read that does not wait gives the pages that are in memory, so far as they are in one piece; a file system in user
space gives what it likes, but at least one byte.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

_PAGE = 4096


@contextmanager
def short_reads(seed: int, share: float = 0.5) -> Iterator[None]:
    """Within the block, this share of the positioned reads of this process is short."""
    rng = random.Random(seed)
    pread, preadv = os.pread, os.preadv

    def short_preadv(fd: int, buffers: Sequence[bytearray], offset: int, flags: int = 0) -> int:
        if rng.random() >= share:
            return preadv(fd, buffers, offset, flags)
        if not flags:
            return preadv(fd, [memoryview(buffers[0])[: _some(rng, len(buffers[0]))]], offset)
        cached = _PAGE - offset % _PAGE
        return preadv(fd, [memoryview(buffers[0])[:cached]], offset, flags)

    def short_pread(fd: int, size: int, offset: int) -> bytes:
        return pread(fd, _some(rng, size) if rng.random() < share else size, offset)

    with mock.patch("os.preadv", short_preadv), mock.patch("os.pread", short_pread):
        yield


def _some(rng: random.Random, size: int) -> int:
    return min(size, rng.choice((1, rng.randint(1, max(1, size)), _PAGE)))
