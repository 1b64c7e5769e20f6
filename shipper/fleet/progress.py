"""Shows a wait while it goes on: on a terminal by a bar and the members that keep it closed, elsewhere by lines.

A terminal shows as many members as it has rows, on its alternate screen: so nothing is left of it, even if the terminal
was resized meanwhile, and has wrapped lines. Elsewhere there is a line at the start, and one for each change, at most
one a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from shipper.fleet import pictures
from shipper.fleet.judge import Verdict
from shipper.process.log import printable
from shipper.supervise.show import COLOURS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

PAUSE_SECONDS = 1.0
"""Between two lines, and between two pictures."""
Show = Callable[[Verdict | str, float], None]
"""Shows an answer, or why there is none now, after so many seconds."""

_BAR = 40
_WIDEST = 48


@contextmanager
def shown(stream: TextIO | None) -> Iterator[Show]:
    """Yields what shows a wait on a stream (None: it is closed); the picture on a terminal is gone after the block."""
    if stream is None:
        yield lambda found, seconds: None
        return
    if not stream.isatty():
        yield _Lines(stream).show
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda found, seconds: live.update(_picture(found, seconds, console), refresh=True)


class _Lines:
    """Writes a line for each answer that differs from the one before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said = ""

    def show(self, found: Verdict | str, seconds: float) -> None:
        line = printable(found if isinstance(found, str) else pictures.line(found))
        if line != self._said:
            self._said = line
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _picture(found: Verdict | str, seconds: float, console: Console) -> RenderableType:
    from rich.cells import cell_len
    from rich.console import Group
    from rich.text import Text

    if isinstance(found, str):
        return Text(printable(found))
    seen = pictures.progress(found, console.height - 1)
    count = f"{seen.reached:,} of {seen.members:,}  {int(seconds) // 60}:{int(seconds) % 60:02}"
    bar = max(0, min(_BAR, console.width - cell_len(seen.title) - cell_len(count) - 4))
    full = bar * seen.reached // seen.members if seen.members else 0
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(f"{seen.title}  ")
    head.append("━" * full, "green").append("╌" * (bar - full), "dim")
    head.append(f"  {count}")
    lines = [Text(f"  {printable(line)}", no_wrap=True, overflow="ellipsis") for line in seen.lines]
    cells = [[printable(cell) for cell in row] for row in seen.rows]
    widths = [min(_WIDEST, max(map(cell_len, column))) for column in zip(*cells, strict=True)]
    return Group(head, *lines, *(_row(row, widths) for row in cells))


def _row(row: Sequence[str], widths: Sequence[int]) -> Text:
    """Returns a row as one line of a terminal; the last cell has what is left of it."""
    from rich.cells import set_cell_size
    from rich.text import Text

    line = Text("  ", no_wrap=True, overflow="ellipsis")
    for cell, width in zip(row[:-1], widths, strict=False):
        if width:
            line.append(f"{set_cell_size(cell, width)}  ", COLOURS.get(cell, ""))
    return line.append(row[-1])
