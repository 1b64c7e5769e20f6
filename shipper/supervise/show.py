"""Tables for `shipper status` and `shipper order dead-letters`; in colour on a terminal.

External text (names, messages, ids) has no markup, and cannot control a terminal. A row of one cell is a line to be
copied, and is never wrapped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from shipper.process.log import printable
from shipper.sdk.units import events_in_words, size_in_words
from shipper.status import remedies
from shipper.status.remedies import Remedy
from shipper.status.words import span
from shipper.supervise import show_policies

if TYPE_CHECKING:
    from rich.console import Console

Row: TypeAlias = tuple[str, ...]
Table: TypeAlias = tuple[str, list[Row]]
COLOURS = {"not connected": "yellow", "HEALTHY": "green", "DEGRADED": "yellow", "FAILED": "red", "STOPPED": "dim"}
COLOURS |= {"reached": "green", "refused": "red", "unauthentic": "red", "absent": "red"}
COLOURS |= {"joining": "yellow", "waiting": "yellow", "fenced": "yellow", "left": "dim", "forgotten": "dim"}
_LONGEST_CELL = 600
_ANSWERS = {
    "delivered": "delivered",
    "duplicate": "duplicates",
    "dead_letter": "dead letters",
    "dropped": "dropped",
    "damaged": "damaged",
    "superseded": "superseded",
}
"""Fields of a ledger, in words."""
_INDENT = 2
_MOST_EDGES = 20
"""Of which a line each is shown."""
_NARROWEST = 40
"""The width of a last column that is wrapped."""


def show(tables: Iterable[Table], stream: TextIO | None) -> None:
    """Writes tables, each a title and rows with equal numbers of cells; their text cannot control the terminal."""
    Screen(stream).draw(tables)


class Screen:
    """Draws tables on a terminal, or writes them to another stream; None: standard output is closed."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115 - as long as the process
        self._drawn = False

    def draw(self, tables: Iterable[Table]) -> None:
        """Writes the tables once."""
        safe = _clean(tables)
        self._stream.write(_coloured(safe, self._stream)[0] if self._stream.isatty() else _plain(safe))
        self._stream.flush()

    def redraw(self, tables: Iterable[Table]) -> None:
        """Replaces the tables on the screen, truncated to its size; writes them below where the stream is no
        terminal."""
        if not self._stream.isatty():
            self._stream.write("\n" if self._drawn else "")
            self.draw(tables)
        else:
            text, width, height = _coloured(_clean(tables), self._stream)
            lines = _fitting(text.splitlines(), width, height - 1)
            clear = "\033[H" if self._drawn else "\033[H\033[2J"
            self._stream.write(clear + "".join(f"{line}\033[K\n" for line in lines) + "\033[J")
            self._stream.flush()
        self._drawn = True


def _fitting(lines: Sequence[str], width: int, height: int) -> list[str]:
    """Returns the first lines, as many as the screen shows; the last one has the number of the others."""
    from rich.text import Text

    rows = [max(1, -(-Text.from_ansi(line).cell_len // max(1, width))) for line in lines]
    if sum(rows) <= height:
        return list(lines)
    fit = sum(total < height for total in accumulate(rows))
    return [*lines[:fit], f"… {len(lines) - fit} more lines: use a larger terminal, or no --watch"]


def _plain(tables: Iterable[Table]) -> str:
    lines = []
    for title, rows in tables:
        lines.append(title)
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {'  '.join(cells)}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def _clean(tables: Iterable[Table]) -> list[Table]:
    return [(_safe(title), [tuple(map(_safe, row)) for row in rows]) for title, rows in tables]


def _safe(text: str) -> str:
    return printable(text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…")


def of_letters(letters: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Returns the table of a page of dead letters, without their events."""
    return [(f"dead letters: {_count(letters)}", [_letter(letter) for letter in letters])]


def _count(letters: Sequence[Mapping[str, Any]]) -> str:
    if not letters:
        return "none"
    return f"{len(letters)} from the oldest; for more, --after {letters[-1]['id']}"


def _letter(letter: Mapping[str, Any]) -> Row:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter["at"]))
    reason = "its bytes are damaged" if letter.get("damaged") else letter["reason"]
    return str(letter["id"]), at, f"revision {_revision(letter['revision'])}", letter["output"], reason


def of_status(status: Mapping[str, Any], directory: str = "DIR", orders: Collection[str] = ()) -> list[Table]:
    """Returns the tables of a status; without empty ones, except the headline.

    `directory` and `orders` are for proposed commands: the `--state`, and the supported orders. Without a supervisor
    that answers none is proposed.
    """
    observed, supervisor = status["observed"] or {}, status["supervisor"] or {}
    candidates: list[Table] = [
        (_headline(status), list(_overview(status, observed))),
        ("troubles", [(one["cause"], one["message"]) for one in status["troubles"]]),
        ("policies", list(show_policies.policies(status.get("kubernetes") or {}))),
        ("secrets", list(show_policies.secrets(status.get("kubernetes") or {}))),
        ("units", [_unit(unit) for unit in sorted(observed.get("units", ()), key=_broken_first)]),
        ("principals", [_principal(one) for one in observed.get("principals", ())]),
        ("edges", list(_edges(observed))),
        ("draining", [row for lane in observed.get("draining", ()) for row in _draining(lane)] + _left_out(observed)),
        *_remedies(observed, directory, orders if supervisor else (), supervisor.get("policy") or ()),
        ("credentials", [_credential(one, observed) for one in status["credentials"]]),
    ]
    return [(title, rows) for number, (title, rows) in enumerate(candidates) if rows or not number]


def _remedies(
    observed: Mapping[str, Any], directory: str, orders: Collection[str], policy: Sequence[str]
) -> Iterator[Table]:
    """Yields a table of commands, each with its effect, for each problem that a person can solve."""
    for drain in observed.get("draining", ()):
        for output in drain["outputs"]:
            found = remedies.of_drain(drain, output, directory, orders)
            yield from _ending(
                f"the drain of revision {_revision((drain['epoch'], drain['revision']))} on {output}", found
            )
    for unit in observed.get("units", ()):
        if orders and (refusal := remedies.of_refusal(unit, observed, policy)):
            yield f"to have {unit['id']} accepted again", _lines(refusal)
        if found := remedies.of_batch(unit, directory, orders):
            yield from _ending(f"batch {unit['failing']['batch']}, which holds up {unit['id']}", found)
    if observed.get("dead_letters", {}).get("events") and "dead-letters" in orders:
        yield "what can be done with dead letters", _lines(remedies.all_of_letters(directory))


def _ending(what: str, found: Sequence[Remedy]) -> Iterator[Table]:
    """Yields the table of what ends something."""
    if found:
        choice = ", one of" if len(found) > 1 else ""
        only = f"if nothing else ends {what}" if found[0].gives_up else f"to end {what}"
        yield f"{only}{choice}", _lines(found)


def _lines(found: Sequence[Remedy]) -> list[Row]:
    return [
        row for words, command, _ in found for row in ([(f"{words}:",), (f"  {command}",)] if command else [(words,)])
    ]


def _headline(status: Mapping[str, Any]) -> str:
    if not status.get("running", True):
        return f"shipper: {status['message']}"
    return f"shipper: {status['state']}" + (f", {status['message']}" if status["message"] else "")


def _overview(status: Mapping[str, Any], observed: Mapping[str, Any]) -> Iterator[Row]:
    if supervisor := status["supervisor"]:
        yield "supervisor", f"version {supervisor['version']}, pid {supervisor['pid']}"
    if sidecar := status["sidecar"]:
        pid = f", pid {sidecar['pid']}" if sidecar["pid"] else ""
        again = f", restarts: {sidecar['restarts']:,}" if sidecar.get("restarts") else ""
        http = f", http://{sidecar['http']}" if sidecar["http"] else ""
        yield "sidecar", f"{sidecar['state']}{pid}{http}{again}"
    wanted = {"wanted": status["wanted"]} if status["wanted"] else {}
    stages = {**wanted, **observed.get("revisions", {})}
    if any(stages.values()):
        yield "revision", ", ".join(f"{stage} {_revision(at)}" for stage, at in stages.items() if at)
    if fleet := status.get("fleet"):
        yield "fleet", ", ".join(_fleet(fleet))
        if ledger := fleet["ledger"]:
            yield "fleet drained", f"{fleet['stages']['drained']}: {_settled(ledger)}"
        if fleet["local"]:
            yield "own secrets", fleet["local"]
    if kubernetes := status.get("kubernetes"):
        yield "kubernetes", ", ".join(show_policies.overview(kubernetes))
    if (confirms := observed.get("confirms")) and observed.get("principals"):
        yield (
            "drained means",
            f"{confirms} by the principal" if confirms == "stored" else "delivered at the end of the way",
        )
    if queue := observed.get("queue"):
        oldest = f", oldest {span(queue['oldest_seconds'])}" if queue["events"] else ""
        limit = f" of {size_in_words(queue['limit_bytes'])}" if queue["limit_bytes"] else ""
        waits = f"{events_in_words(queue['events'])}, {size_in_words(queue['bytes'])}{limit}{oldest}"
        yield "queue", f"{waits}; {size_in_words(queue['disk_bytes'])} on disk"
    if (letters := observed.get("dead_letters")) and letters["events"]:
        yield "dead letters", f"{events_in_words(letters['events'])}, {size_in_words(letters['bytes'])}"


def _fleet(fleet: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a host says of its part in its fleet."""
    why = f" ({fleet['reason']})" if fleet["reason"] else ""
    yield f"{fleet['member']} of {fleet['fleet']}: {fleet['state']}{why}"
    yield f"runs version {fleet['running']}" if fleet["running"] else "runs no version"
    if fleet["newest"] not in (None, fleet["running"]):
        yield f"newest {fleet['newest']}"
    if fleet["refused"]:
        yield f"refused {fleet['refused']}"
    yield from (f"{stage} {version}" for stage, version in fleet["stages"].items())
    if fleet["http"]:
        yield f"answers at {fleet['http']}"
    if fleet["lease_seconds"] is not None:
        yield f"lease {fleet['lease_seconds']:,.1f} s"


def _settled(counts: Mapping[str, int]) -> str:
    """Returns what became of the events for which a version waited."""
    found = ", ".join(f"{counts[name]:,} {words}" for name, words in _ANSWERS.items() if counts[name])
    return found or "it waited for no events"


def _broken_first(unit: Mapping[str, Any]) -> int:
    return {"FAILED": 0, "DEGRADED": 1}.get(unit["state"], 2)


def _unit(unit: Mapping[str, Any]) -> Row:
    said = (unit["message"], _passing(unit), _followed(unit))
    return unit["id"], unit["type"], unit["state"], "; ".join(filter(None, said))


def _passing(unit: Mapping[str, Any]) -> str:
    """Returns what ends the problem of an output by itself."""
    return remedies.passing(unit.get("code", "")) if unit["id"].startswith("outputs.") else ""


def _followed(unit: Mapping[str, Any]) -> str:
    """Returns how many files an input follows, how many bytes it has not read, and how many files it has lost."""
    figures = unit.get("figures") or {}
    if "files" not in figures:
        return ""
    files = "1 file" if figures["files"] == 1 else f"{figures['files']:,} files"
    unread = f"{files}, {figures.get('unread_bytes', 0):,} bytes not read"
    lost = figures.get("lost_files", 0)
    return f"{unread}, {lost:,} gone before their end was read" if lost else unread


def _principal(one: Mapping[str, Any]) -> Row:
    oldest = f", oldest {span(one['oldest_seconds'])}" if one["oldest_seconds"] else ""
    open = _amount(one["unconfirmed_events"], _keys(one["unconfirmed_keys"]) if one["unconfirmed_keys"] else "")
    waits = f"{open or 'nothing'} unconfirmed{oldest}"
    confirms = f"confirms {one['confirms']}" if one["confirms"] else ""
    return f"outputs.{one['output']}", one["host"], _connected(one), confirms, waits, one["reason"]


def _edges(observed: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the edges; of many those that are not connected, or are behind, come first and the others are counted."""
    edges = observed.get("edges", ())
    shown = edges if len(edges) <= _MOST_EDGES else sorted(edges, key=_is_well)[:_MOST_EDGES]
    for edge in shown:
        is_heard = edge["heard_seconds"] is not None
        heard = f"heard {span(edge['heard_seconds'])} ago" if is_heard else "not heard of since the start"
        behind = _amount(edge["waiting_events"], _versions(edge["versions_behind"]) if edge["versions_behind"] else "")
        waits = f"waiting there: {behind or 'nothing'}" if is_heard else ""
        has = f"{_keys(edge['keys'])}, {size_in_words(edge['bytes'])}"
        yield f"inputs.{edge['input']}", edge["name"], _connected(edge), heard, has, waits
    if more := len(edges) - len(shown) + observed.get("edges_left_out", 0):
        yield f"{more:,} more edges", "", "", "", "", "--json has them"


def _is_well(edge: Mapping[str, Any]) -> tuple[bool, int]:
    return edge["connected_seconds"] is not None, -edge["versions_behind"] - edge["waiting_events"]


def _connected(one: Mapping[str, Any]) -> str:
    seconds = one["connected_seconds"]
    return "not connected" if seconds is None else f"connected for {span(seconds)}"


def _amount(events: int, versions: str) -> str:
    return " and ".join(filter(None, (events_in_words(events) if events else "", versions)))


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count:,} keys"


def _versions(count: int) -> str:
    return "1 version" if count == 1 else f"{count:,} versions"


def _draining(lane: Mapping[str, Any]) -> Iterator[Row]:
    at = f"revision {_revision((lane['epoch'], lane['revision']))}"
    for name, output in lane["outputs"].items():
        oldest = f"oldest {span(lane['oldest_seconds'])}"
        needs = f"needs {', '.join(output['credentials'])}" if output.get("credentials") else ""
        why = "; ".join(filter(None, (output["reason"], remedies.passing(output.get("code", "")))))
        yield at, name, events_in_words(output["events"]), oldest, needs, why


def _left_out(observed: Mapping[str, Any]) -> list[Row]:
    more = observed.get("draining_left_out") or {}
    if not more.get("revisions"):
        return []
    return [(f"{more['revisions']:,} newer revisions", "", events_in_words(more["events"]), "", "", "")]


def _credential(one: Mapping[str, Any], observed: Mapping[str, Any]) -> Row:
    if one.get("waits_until") == "accepted":
        use = f"released, waits for its successor to be accepted ({one['waits_for']})"
    elif one.get("waits_for"):
        same = f"has the name {one['name']}, too" if one["name"] else "is the same secret"
        use = f"waits: {one['waits_for']}, which is in use, {same}"
    elif one["released"]:
        use = "it can be revoked now" if one.get("revoked") is False else "released, on_release pending"
    elif one["id"] in observed.get("credentials_wanted", ()):
        use = "wanted"
    else:
        in_use = one["id"] in observed.get("credentials_in_use", ())
        use = ("in use" if one.get("current", True) else _needed(one["id"], observed)) if in_use else "held"
    return one["id"], one["name"], use, ", ".join(one["units"]), ", ".join(one["sources"])


def _needed(id: str, observed: Mapping[str, Any]) -> str:
    drains = [
        f"revision {_revision((drain['epoch'], drain['revision']))} of {output}"
        for drain in observed.get("draining", ())
        for output, waiting in drain["outputs"].items()
        if id in waiting.get("credentials", ())
    ]
    return f"needed by {', '.join(drains)}" if drains else "needed by a drain"


def _revision(at: Sequence[int]) -> str:
    return f"{at[0]}:{at[1]}" if at[0] else str(at[1])


def _coloured(tables: Iterable[Table], stream: TextIO) -> tuple[str, int, int]:
    """Returns the text for a terminal, and the terminal's width and height."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)
    with console.capture() as captured:
        for title, rows in tables:
            console.print(Text(title, style="italic"))
            for line in rows if rows and len(rows[0]) == 1 else ():
                console.print(Text(f"  {line[0]}"), soft_wrap=True)
            if rows and len(rows[0]) > 1:
                _print_rows(rows, console)
    return captured.get(), console.width, console.height


def _print_rows(rows: Sequence[Row], console: Console) -> None:
    """Prints rows in columns, the last one wrapped, if all others fit beside it; otherwise each row on several
    lines."""
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.table import Column, Table
    from rich.text import Text

    if not (columns := [column for column in zip(*rows, strict=True) if any(column)]):
        return
    rows = list(zip(*columns, strict=True))
    *widths, last = [max(map(cell_len, column)) for column in columns]
    if sum(widths) + 2 * len(widths) + min(last, _NARROWEST) + 2 > console.width:
        for row in rows:
            _print_row(row, console)
        return
    table = Table.grid(*(Column(no_wrap=True) for _ in widths), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, ""), overflow="fold") for cell in row))
    console.print(Padding(table, (0, 0, 0, 2)))


def _print_row(row: Row, console: Console) -> None:
    """Prints a row without wrapping a cell that fits on a line of its own."""
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.text import Text

    line = Text()
    indent, taken = _INDENT, 0
    for cell in filter(None, row):
        width = cell_len(cell)
        if taken and indent + taken + width + 2 > console.width:
            console.print(Padding(line, (0, 0, 0, indent)))
            line, taken, indent = Text(), 0, 3 * _INDENT
        line.append(cell if not taken else f"  {cell}", style=COLOURS.get(cell, ""))
        taken += width + 2
    line.overflow = "fold"
    console.print(Padding(line, (0, 0, 0, indent)))
