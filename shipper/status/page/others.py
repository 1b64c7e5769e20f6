"""The sections about others: the two sides of a relay, and the fleet. Pure.

Of many members and edges those in trouble come first; the others are behind a fold, and beyond a bound only counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from shipper.sdk.units import size_in_words
from shipper.status.fleet import STEPS, Cell, Fleet, Member, Version
from shipper.status.page.markup import Child, Markup, badge, folded, quiet, row, section, strip, table, tag, text
from shipper.status.view import Edge, Principal, View
from shipper.status.words import counted, span

SHOWN = 12
"""Rows that are not behind a fold."""
_TONES: dict[str, str] = {"drained": "good", "active": "busy", "received": "warn", "none": "idle"}
_MARKS: dict[str, str] = {"drained": "●", "active": "◐", "received": "○", "none": "·"}
_KINDS = {
    "reached": "good",
    "refused": "bad",
    "unauthentic": "bad",
    "absent": "bad",
    "left": "idle",
    "forgotten": "idle",
}
_STATES = {"consistent": "good", "behind": "busy", "refused": "bad", "empty": "idle", "store_restored": "bad"}
_LAST = 253402300800.0
"""The end of the year 9999, in Unix seconds."""


def relays(view: View) -> Markup:
    """Returns the principals that this shipper relays to, and the edges that relay to it."""
    headings = ("output", "principal", "state", "unconfirmed", "confirms")
    principals = table(headings, [_principal(one) for one in view.principals]) if view.principals else None
    return Markup(section("principals", "Relays to", principals) + _edges(view))


def _principal(one: Principal) -> Markup:
    oldest = f", oldest {span(one.oldest_seconds)}" if one.oldest_seconds else ""
    waits = f"{counted(one.unconfirmed_events, 'event')}, {counted(one.unconfirmed_keys, 'key')}{oldest}"
    state = _connected(one.connected_seconds, one.tone)
    cells: list[tuple[str, Child]] = [
        ("output", one.output),
        ("principal", one.host or None),
        ("state", [state, " ", quiet(one.reason)]),
        ("unconfirmed", waits),
        ("confirms", one.confirms),
    ]
    return row(cells)


def _edges(view: View) -> Markup:
    if not view.edges:
        return Markup("")
    headings = ("edge", "input", "state", "heard", "waiting there", "keys here")
    away = sum(edge.connected_seconds is None for edge in view.edges)
    behind = sum(edge.tone != "good" for edge in view.edges)
    rows = [_edge(edge) for edge in view.edges]
    total = len(rows) + view.edges_left_out
    note = ", ".join(filter(None, (counted(total, "edge"), f"{away:,} not connected" if away else "")))
    first = SHOWN if total > 2 * SHOWN else len(rows)
    return section(
        "edges",
        "Relayed from",
        folded(rows, partial(table, headings), max(first, min(behind, 4 * SHOWN)), "edges"),
        note=note,
    )


def _edge(edge: Edge) -> Markup:
    heard = edge.heard_seconds
    waits = [
        counted(edge.waiting_events, "event") if edge.waiting_events else "",
        counted(edge.versions_behind, "version") if edge.versions_behind else "",
    ]
    cells: list[tuple[str, Child]] = [
        ("edge", edge.name),
        ("input", edge.input),
        ("state", _connected(edge.connected_seconds, edge.tone)),
        ("heard", "not since the start" if heard is None else f"{span(heard)} ago"),
        ("waiting there", " and ".join(filter(None, waits)) or "nothing"),
        ("keys here", f"{edge.keys:,}, {size_in_words(edge.bytes)}"),
    ]
    return row(cells, id=f"edge-{edge.input}-{edge.name}")


def _connected(seconds: float | None, tone: str) -> Markup:
    return badge("not connected" if seconds is None else f"connected {span(seconds)}", tone)


def fleet(found: Fleet | None, problem: str = "") -> Markup:
    """Returns the fleet: versions, and members by versions; `problem`: why the fleet cannot be asked."""
    trouble = tag("p", problem, class_="warn box") if problem else None
    if found is None:
        return section("fleet", "Fleet", trouble)
    kinds = Counter(member.kind for member in found.members)
    note = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    newest = f"version {found.newest}" if found.newest else "no version"
    warnings = [tag("li", warning) for warning in found.warnings]
    return section(
        "fleet",
        "Fleet",
        trouble,
        tag("p", tag("b", found.name), f": {newest} ", badge(found.state, _STATES.get(found.state, "warn"))),
        tag("ul", warnings, class_="warn box") if warnings else None,
        _versions(found),
        _legend() if found.versions and found.present else None,
        _members(found),
        note=note,
    )


def _versions(found: Fleet) -> Markup:
    """Returns the versions up to the newest one that all have drained; the others are behind a fold."""
    drained = (at for at, one in enumerate(found.versions, 1) if one.count("drained") == len(one.cells))
    first = next(drained, len(found.versions))
    rows = [_version(one) for one in found.versions]
    older = f", and {found.older:,} that `shipper fleet history` has" if found.older else ""
    title = f"{counted(len(rows) - first, 'older version')}{older}"
    fold = tag("details", tag("summary", title), tag("ol", rows[first:], class_="versions")) if rows[first:] else None
    return Markup(tag("ol", rows[:first], class_="versions") + text(fold))


def _version(one: Version) -> Markup:
    total = len(one.cells) or 1
    runs = [(len(list(same)) / total, _TONES[cell]) for cell, same in groupby(sorted(one.cells, key=_order))]
    counts = ", ".join(f"{one.count(cell):,} {_word(cell)}" for cell in (*STEPS, "none") if one.count(cell))
    by = ", ".join(filter(None, (_date(one.at), one.by, one.why)))
    words = tag("div", tag("b", f"version {one.name}"), " ", quiet(by), class_="name")
    return tag("li", words, strip(runs, counts), tag("div", counts), id=f"version-{one.name}")


def _order(cell: Cell) -> int:
    return (*STEPS, "none").index(cell)


def _word(cell: str) -> str:
    return "not yet received" if cell == "none" else cell


def _legend() -> Markup:
    marks = [tag("span", tag("i", _MARKS[cell], class_=_TONES[cell]), f" {_word(cell)}") for cell in (*STEPS, "none")]
    return tag("p", marks, class_="legend")


def _members(found: Fleet) -> Markup:
    """Returns members × versions; each member's row has its way through the versions, and why it is behind."""
    versions = [version.name for version in found.versions]
    columns = list(zip(*(version.cells for version in found.versions), strict=True))
    rows = [_member(member, versions, columns[at] if columns else ()) for at, member in enumerate(found.present)]
    first = SHOWN if len(rows) > 2 * SHOWN else len(rows)
    first = max(first, min(len(found.behind), 4 * SHOWN))
    title = f"versions {versions[0]} … {versions[-1]}" if len(versions) > 1 else "version"
    return folded(rows, partial(table, ("member", title, "state", "undelivered", "why")), first, "members")


def _member(member: Member, versions: Sequence[str], cells: Sequence[Cell]) -> Markup:
    marks = [
        tag("i", _MARKS[cell], class_=_TONES[cell], title=f"version {version}: {_word(cell)}")
        for version, cell in zip(versions, cells, strict=True)
    ]
    behind = f"{counted(member.behind, 'version')} behind" if member.behind else ""
    heard = f"heard {_date(member.seen)}" if member.seen and not member.is_alive else ""
    undelivered = counted(member.events, "event") if member.events else None
    reached = ", ".join(f"{version} {_word(cell)}" for version, cell in zip(versions, cells, strict=True))
    shown: list[tuple[str, Child]] = [
        ("member", member.name),
        ("versions", tag("span", marks, class_="marks", role="img", aria_label=reached) if marks else None),
        ("state", badge(member.kind, _KINDS.get(member.kind, "busy"))),
        ("undelivered", undelivered),
        ("why", ", ".join(filter(None, (behind, member.why, heard))) or None),
    ]
    return row(shown, id=f"member-{member.name}")


def _date(at: float) -> str:
    """Returns an instant by the clock of its writer, which may be any number."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if 0 < at < _LAST else ""
