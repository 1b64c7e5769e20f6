"""What the decisions about a stream ask for, where they need more of a file than was seen: a value for each call.

A decision that takes several steps is a generator: it yields such a value, and is sent the answer. Who runs it makes
the calls: `reader` in threads, a test in memory. If a call fails, or is cancelled, the decision is dropped; it changes
nothing between the steps that the next turn could not go on from.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from shipper_plugins.tail.content import File, Look
from shipper_plugins.tail.copies import Compared
from shipper_plugins.tail.identity import Remembered
from shipper_plugins.tail.lines import Cut, Cutter
from shipper_plugins.tail.place import Place
from shipper_plugins.tail.stream import Stream

_Answer = TypeVar("_Answer")


class Ask(msgspec.Struct, Generic[_Answer], frozen=True):
    """`answer = yield from ask`, in a decision."""

    def __iter__(self) -> Generator[Ask[Any], Any, _Answer]:
        answer: _Answer = yield self
        return answer


Steps = Generator[Ask[Any], Any, _Answer]
"""A decision, and what it returns."""


class LookAgain(Ask[Look], frozen=True):
    """At most `size` bytes of the file of a stream from `offset`."""

    stream: Stream
    path: str
    file: File
    offset: int
    size: int


class IsWhole(Ask[bool], frozen=True):
    """Whether the compressed file of a stream has its end."""

    stream: Stream
    path: str
    file: File


class Compare(Ask[Compared], frozen=True):
    """Compare a file with a stream: see `copies.compare`."""

    path: str
    file: File
    original: Remembered
    known: Place


class CutUp(Ask[Cut], frozen=True):
    """Cut what was found: see `Cutter.cut`."""

    cutter: Cutter
    found: bytes
    place: Place
    final: bool
    flush: bool


class Keep(Ask[None], frozen=True):
    """Store these positions."""

    positions: Mapping[str, bytes | None]
