"""How the demo looks: plain lines in a pipe; on a terminal with colours, a line of progress, and no longer than that
is wide."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from shipper_demo.rotation import STAGES, Rotation

if TYPE_CHECKING:
    from rich.live import Live

WHAT = """\
shipper demo: a growing access log is shipped, and the key that it is shipped with is replaced every {every:g} s.

  `shipper supervise` follows the log and a key file. The destination is a second shipper that receives over HTTP, takes
  only the keys that are in its own policy, and writes what it took to a file.

  A rotation writes a new key into the key file, no more. The agent sends that as a new revision of its policy, which is
  `received`, then `active` (what comes from now on goes with the new key), then `drained`: every event that waited for
  the old key has its final answer. In that instant the agent runs `on_release`, and the old key is revoked.

  It takes {seconds:g} s; Ctrl-C ends it earlier, with the same count at the end.
"""
COUNT = "\nThe lines of the log, against the destination's own record of what it took:\n"
GOOD = """
As promised: no event was lost, none came twice, and no request met a revoked key.

  Ship your own log:    shipper supervise policies/nginx-elasticsearch.yaml --state DIR   (README: A first real use)
  See what it does:     shipper status --state DIR
"""
BAD = """
NOT as promised. Please run it again with --keep DIR, and report what is in DIR."""
_HEAD = "    time  revision  key          received    active   drained   waited for  replaced key"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table at the end; `good` is None where nothing was promised."""

    name: str
    number: int
    remark: str = ""
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table of several columns; `good` is None where nothing was promised."""

    name: str
    values: Sequence[int]
    good: bool | None = None


class Screen:
    """Where the demo is shown; a context manager."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._stack = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False, soft_wrap=True)
            self._live = self._stack.enter_context(Live("", console=console, auto_refresh=False, transient=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str, style: str = "", *, hang: int | None = None) -> None:
        """Write lines that stay. What is too long for the terminal goes on in a next line, below column `hang`, or else
        below the beginning of its line."""
        if self._live is None:
            print(text, file=self._stream, flush=True)
        else:
            width = self._live.console.width
            wrapped = "\n".join(part for line in text.split("\n") for part in _wrapped(line, width, hang))
            self._live.console.print(wrapped, style=style, markup=False)

    def tell(self, text: str) -> None:
        """Write paragraphs, which are as wide as the terminal, or as they are written."""
        if self._live is not None and self._live.console.width < max(map(len, text.split("\n"))):
            text = "\n\n".join(_in_one_line(paragraph) for paragraph in text.split("\n\n")) + "\n"
        self.say(text)

    def progress(self, text: str) -> None:
        """Show how far it is, on a terminal only."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(text, style="cyan", no_wrap=True, overflow="ellipsis"), refresh=True)

    def head(self) -> None:
        """The head of the rotations."""
        self.say(_HEAD, "dim")

    def rotation(self, row: Rotation, begun: float) -> None:
        """One row; `begun` is when the demo began."""
        self.say(row_text(row, begun), "" if row.good else "red")

    def figures(self, figures: Sequence[Figure]) -> None:
        """The table at the end."""
        styles = {True: "green", False: "bold red", None: ""}
        for figure in figures:
            line = f"  {figure.name:<18}{figure.number:>11,}   {figure.remark}"
            self.say(line.rstrip(), styles[figure.good], hang=34)

    def columns(self, heads: Sequence[str], rows: Sequence[Row]) -> None:
        """A table with a column for each head, and whether each row is as promised by its colour."""
        self.say(f"  {'':<18}" + "".join(f"{head:>12}" for head in heads), "dim")
        for row in rows:
            cells = "".join(f"{value:>12,}" for value in row.values)
            self.say(f"  {row.name:<18}{cells}", "bold red" if row.good is False else "green" if row.good else "")


def _wrapped(line: str, width: int, hang: int | None) -> Iterator[str]:
    """Yields a line in parts of at most so many columns."""
    indent = len(line) - len(line.lstrip()) if hang is None or hang > width * 2 // 3 else hang
    parts = textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    yield from parts or [line]


def _in_one_line(paragraph: str) -> str:
    indent = len(paragraph) - len(paragraph.lstrip())
    return " " * indent + " ".join(paragraph.split())


def row_text(row: Rotation, begun: float) -> str:
    """What became of a key, in one line."""
    times = "".join(f"{_milliseconds(row, stage):>10}" for stage in STAGES)
    start = f"{row.written_at - begun:>6.1f} s{row.revision:>10}  {row.key.name:<11}"
    return f"{start}{times}{row.waited_for:>13,}  {_end(row)}"


def _milliseconds(row: Rotation, stage: str) -> str:
    return f"{row.milliseconds[stage]} ms" if stage in row.milliseconds else "-"


def _end(row: Rotation) -> str:
    if row.replaced is None:
        return "(the first one)"
    if row.revoked_at is None or row.drained_at is None:
        return f"{row.replaced.name} NOT revoked"
    after = max(0.0, row.revoked_at - row.drained_at) * 1000
    return f"{row.replaced.name} revoked {after:.0f} ms later: {row.answer}"
