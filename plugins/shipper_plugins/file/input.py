"""The `file` input: tails log files, with globs, rotation, compressed files, encodings, events of several lines.

    {type: file, paths: ["/var/log/nginx/*.log"], exclude_lines: ['GET /health '], ignore_older: 48h}

This module has the settings; `shipper_plugins.tail` has the parts.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from shipper.plugin import BadOption, Duration, Fields, Input, InputContext, Size, Source
from shipper.sdk.patterns import check_pattern as check_regular
from shipper_plugins.tail.discovery import check_pattern
from shipper_plugins.tail.filtering import Filter
from shipper_plugins.tail.lines import Charset
from shipper_plugins.tail.multiline import Multiline
from shipper_plugins.tail.opening import tailing
from shipper_plugins.tail.options import Options

_Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class FileInput(Input, frozen=True, kw_only=True):
    """Follows the lines of log files, through rotation by rename, copy and truncate, gzip, xz and bzip2."""

    ending: ClassVar[Mapping[str, bool | int | str]] = {"stop_at_end": True}
    rereads: ClassVar[bool] = True

    paths: Annotated[tuple[_Glob, ...], msgspec.Meta(min_length=1)]
    """Absolute paths or globs: `*`, `?`, `[0-9]`, `[^0-9]`, and `**` for any number of directories. They are evaluated
    again when a directory changes."""
    exclude: tuple[_Glob, ...] = ()
    """Globs of files to ignore: absolute, or a name alone (`*.gz`)."""
    from_: Literal["beginning", "end"] = msgspec.field(default="beginning", name="from")
    """Where to begin in files that exist when the input first sees these paths; later files are always read from their
    beginning."""
    max_line_bytes: Size = Size(1 << 20)
    """A longer line is cut, and marked by `log.flags: [truncated]`."""
    encoding: str = "utf-8"
    """The encoding of the files (`latin-1`, `utf-16`, …); bytes that are invalid in it are replaced."""
    multiline: Multiline | None = None
    """The lines that belong together (default: each line is an event)."""
    include_lines: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Regular expressions (RE2: no look-around), searched for in each line, or event of several lines: only those with
    one of them are kept (default: all)."""
    exclude_lines: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Regular expressions: events with one of them are left out, also of those that `include_lines` keeps. They are
    counted as `lines_filtered`."""
    ignore_older: Duration = Duration(0)
    """A file that was last written so long before the input first saw it is not read, but for what is written later
    (default: every file is). One that was begun, or is a rotated copy of such a one, is read to its end."""
    stop_at_end: bool = False
    """Stop at the end of the files, for one-shot use."""

    def __post_init__(self) -> None:
        for number, path in enumerate(self.paths):
            if not os.path.isabs(path):
                raise BadOption("not an absolute path, such as /var/log/app/*.log", "paths", number)
            check_pattern(path, "paths", number)
        for number, pattern in enumerate(self.exclude):
            if os.sep in pattern and not os.path.isabs(pattern):
                raise BadOption("neither an absolute path nor a name, such as *.gz", "exclude", number)
            check_pattern(pattern, "exclude", number)
        for option, patterns in (("include_lines", self.include_lines), ("exclude_lines", self.exclude_lines)):
            for number, pattern in enumerate(patterns):
                check_regular(pattern, option, number)
        if self.ignore_older < 0:
            raise BadOption(f"must be at least 0s, not {self.ignore_older}", "ignore_older")
        if not 16 <= self.max_line_bytes <= 1 << 30:
            raise BadOption(f"must be from 16B to 1GiB, not {self.max_line_bytes}", "max_line_bytes")
        try:
            Charset.of(self.encoding)
        except ValueError as error:
            raise BadOption(str(error), "encoding") from None

    def identity(self) -> Any:
        """The set of files; other settings can change while the input runs."""
        return {"paths": list(self.paths), "exclude": list(self.exclude), "encoding": self.encoding}

    def options(self) -> Options:
        """Returns the options of `Tails`."""
        return Options(
            identity=repr(self.identity()),
            paths=self.paths,
            exclude=self.exclude,
            from_end=self.from_ == "end",
            max_line_bytes=self.max_line_bytes,
            encoding=self.encoding,
            multiline=self.multiline,
            filter=self._filter(),
            ignore_older=self.ignore_older,
            stop_at_end=self.stop_at_end,
            fields=self._fields,
        )

    def _filter(self) -> Filter | None:
        is_wanted = self.include_lines or self.exclude_lines
        return Filter(self.include_lines, self.exclude_lines) if is_wanted else None

    def _fields(self, path: str) -> Fields:
        return {"event": {"dataset": self.data_stream.dataset}, "ecs": {"version": "8.17.0"}}

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        """See `tailing`."""
        async with tailing(self, context) as source:
            yield source
