"""Rows in columns, for a terminal of some width. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from shipper.process.log import printable

_LONGEST = 600
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in columns, and notes below them."""

    cells: Sequence[Text]
    notes: Sequence[Text] = ()


def text(said: str, style: str = "") -> Text:
    """Returns the text of others, cut, without power over the terminal."""
    cut = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
    return Text(printable(cut), style)


def right(said: str) -> Text:
    """Returns a cell for a column of numbers."""
    return Text(printable(said), justify="right")


def title(said: str) -> Text:
    return Text(said, "bold")


def indented(line: Text, by: int = 2) -> Text:
    return Text(" " * by, no_wrap=line.no_wrap).append(line)


def table(name: str, heads: Sequence[str], rows: Sequence[Row], width: int) -> list[Text]:
    """Returns a section: its title, with the heads of columns beside it, and its rows; no lines where there is none."""
    if not rows:
        return []
    if not heads:
        return [title(name), *laid_out(rows, width)]
    sides = [cell.justify for cell in rows[0].cells]
    cells = [Text(head, "dim", justify=side) for head, side in zip(heads, sides, strict=True)]
    cells[0] = title(name)
    return laid_out([Row(cells), *rows], width, hanging=True)


def laid_out(rows: Sequence[Row], width: int, *, hanging: bool = False) -> list[Text]:
    """Returns rows in columns, indented, the first one not if it is `hanging`.

    Notes stand below their row, wrapped, and before them the last cells of a row that is wider than `width`; heads of
    columns have none.
    """
    if not rows:
        return []
    columns = zip(*(row.cells for row in rows), strict=True)
    widths = [max(cell_len(cell.plain) for cell in column) for column in columns]
    widths[0] = min(widths[0] + (2 if hanging else 0), width // 3)
    found = []
    for number, row in enumerate(rows):
        indent = 0 if hanging and not number else 2
        cells, left = list(row.cells), Text()
        while cell_len((line := _line(cells, widths, indent=indent, is_hanging=hanging)).plain) > width and cells[1:]:
            if last := cells.pop():
                left = Text.assemble(last, ", " if left else "", left)
        found.append(line)
        is_head = bool(hanging and rows[1:] and not number)
        for note in [*([left] if left and not is_head else []), *row.notes]:
            found += [indented(piece, 4) for piece in wrapped(note, width - 4)]
    return found


def wrapped(line: Text, width: int) -> list[Text]:
    """Returns the pieces of a line, each indented like it; a line that is `no_wrap` as it is."""
    if line.no_wrap or cell_len(line.plain) <= width:
        return [line]
    indent = len(line.plain) - len(line.plain.lstrip())
    body = line[indent:]
    pieces = body.wrap(Console(width=width), width - indent, overflow="fold")
    for piece in pieces:
        piece.rstrip()
    return [indented(piece, indent) for piece in pieces]


def _line(cells: Sequence[Text], widths: Sequence[int], *, indent: int, is_hanging: bool) -> Text:
    line = Text(" " * indent)
    for number, (cell, wide) in enumerate(zip(cells, widths, strict=False)):
        if not wide:
            continue
        room = wide - indent if is_hanging and not number else wide
        cell = cell.copy()
        cell.truncate(room, overflow="ellipsis")
        spaces = " " * (room - cell_len(cell.plain))
        line.append(spaces).append(cell) if cell.justify == "right" else line.append(cell).append(spaces)
        line.append(_GAP)
    line.rstrip()
    return line
