"""The answers to `shipper status` and `shipper order dead-letters`, as tables for people; in colour on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeAlias

from shipper.supervise.report import printable
from shipper.units import Size, events_in_words

Row: TypeAlias = tuple[str, ...]
Table: TypeAlias = tuple[str, list[Row]]
_COLOURS = {"HEALTHY": "green", "DEGRADED": "yellow", "FAILED": "red", "STOPPED": "dim"}


def show(tables: Iterable[Table], stream: TextIO) -> None:
    """Write tables, each a title and rows of as many cells; what backends say in them cannot steer the terminal."""
    safe = [(printable(title), [tuple(map(printable, row)) for row in rows]) for title, rows in tables]
    if stream.isatty():
        _with_rich(safe, stream)
        return
    for title, rows in safe:
        print(title, file=stream)
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(f"  {'  '.join(cells)}".rstrip(), file=stream)


def of_letters(letters: Sequence[Mapping[str, Any]]) -> list[Table]:
    """A page of dead letters, without their events."""
    return [(f"dead letters: {_count(letters)}", [_letter(letter) for letter in letters])]


def _count(letters: Sequence[Mapping[str, Any]]) -> str:
    if not letters:
        return "none"
    return f"{len(letters)} from the oldest; for more, --after {letters[-1]['id']}"


def _letter(letter: Mapping[str, Any]) -> Row:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter["at"]))
    reason = "its bytes are damaged" if letter.get("damaged") else letter["reason"]
    return str(letter["id"]), at, f"revision {_revision(letter['revision'])}", letter["output"], reason


def of_status(status: Mapping[str, Any]) -> list[Table]:
    """What runs, without the tables that have no rows."""
    observed = status["observed"] or {}
    candidates: list[Table] = [
        (_headline(status), list(_overview(status, observed))),
        ("troubles", [(one["cause"], one["message"]) for one in status["troubles"]]),
        ("units", [_unit(unit) for unit in observed.get("units", ())]),
        ("draining", [row for lane in observed.get("draining", ()) for row in _draining(lane)]),
        ("credentials", [_credential(one, observed) for one in status["credentials"]]),
    ]
    return [(title, rows) for title, rows in candidates if rows]


def _headline(status: Mapping[str, Any]) -> str:
    return f"shipper: {status['state']}" + (f", {status['message']}" if status["message"] else "")


def _overview(status: Mapping[str, Any], observed: Mapping[str, Any]) -> Iterator[Row]:
    sidecar = status["sidecar"]
    pid = f", pid {sidecar['pid']}" if sidecar["pid"] else ""
    yield "supervisor", f"version {status['supervisor']['version']}, pid {status['supervisor']['pid']}"
    yield "sidecar", f"{sidecar['state']}{pid}" + (f", http://{sidecar['http']}" if sidecar["http"] else "")
    revisions = observed.get("revisions", {})
    stages = ", ".join(f"{stage} {_revision(at)}" for stage, at in revisions.items() if at)
    yield "revision", f"wanted {_revision(status['wanted'])}" + (f", {stages}" if stages else "")
    if queue := observed.get("queue"):
        oldest = f", oldest {queue['oldest_seconds']:.1f} s" if queue["events"] else ""
        size, limit = _size(queue["bytes"]), _size(queue["limit_bytes"])
        yield (
            "queue",
            f"{events_in_words(queue['events'])}, {size} of {limit}{oldest}; {_size(queue['disk_bytes'])} on disk",
        )
    if (letters := observed.get("dead_letters")) and letters["events"]:
        yield "dead letters", f"{events_in_words(letters['events'])}, {_size(letters['bytes'])}"


def _unit(unit: Mapping[str, Any]) -> Row:
    return unit["id"], unit["type"], unit["state"], unit["message"]


def _draining(lane: Mapping[str, Any]) -> Iterator[Row]:
    at = f"revision {_revision((lane['epoch'], lane['revision']))}"
    for name, output in lane["outputs"].items():
        yield at, name, events_in_words(output["events"]), f"oldest {lane['oldest_seconds']:.1f} s", output["reason"]


def _credential(one: Mapping[str, Any], observed: Mapping[str, Any]) -> Row:
    if one["released"]:
        use = "released, on_release pending"
    elif one["id"] in observed.get("credentials_wanted", ()):
        use = "wanted"
    else:
        in_use = one["id"] in observed.get("credentials_in_use", ())
        use = ("in use" if one.get("current", True) else "needed by a drain") if in_use else "held"
    return one["id"], one["name"], use, ", ".join(one["units"]), ", ".join(one["sources"])


def _revision(at: Sequence[int]) -> str:
    return f"{at[0]}:{at[1]}" if at[0] else str(at[1])


def _size(count: int) -> str:
    """A size as people read it: exact where it has a round unit, else with three digits."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return str(Size(count)) if count % factor == 0 else f"{count / factor:.1f}{unit}"
    return f"{count}B"


def _with_rich(tables: Iterable[Table], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream)
    for title, rows in tables:
        console.print(Text(title, style="italic"))
        table = Table(show_header=False, box=None, padding=(0, 2))
        for row in rows:
            table.add_row(*(Text(cell, style=_COLOURS.get(cell, ""), overflow="fold") for cell in row))
        if rows:
            console.print(table)
