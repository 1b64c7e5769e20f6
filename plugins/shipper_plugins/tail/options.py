"""What an input says of the files that it wants to have followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from shipper.plugin import Fields
from shipper_plugins.tail.filtering import Filter
from shipper_plugins.tail.multiline import Multiline


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which files are followed, and what their lines become."""

    identity: str
    """Equal for options that may follow each other in one running input."""
    paths: tuple[str, ...]
    """Absolute paths or globs, at least one."""
    fields: Callable[[str], Fields]
    """By the path of a file: the fields that all its events share, beside `log`."""
    exclude: tuple[str, ...] = ()
    """Globs of files to leave out."""
    from_end: bool = False
    """Whether the files that are there when the input first sees these paths are read from their end."""
    max_line_bytes: int = 1 << 20
    encoding: str = "utf-8"
    multiline: Multiline | None = None
    filter: Filter | None = None
    """Which events are kept; None: all."""
    ignore_older: float = 0
    """Seconds since the last write after which a file that is new to the input is not read; 0: it is."""
    stop_at_end: bool = False
    """Whether to read what is there and stop."""


class Tails(Protocol):
    """The settings of an input that follows files."""

    def options(self) -> Options:
        """What to follow."""
        ...
