"""A fleet as lines for a terminal: how far its members are with each version, and who is behind and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from shipper.commands.top.rows import Row, indented, right, table, text, title, wrapped
from shipper.status.fleet import Cell, Fleet, Member, Version
from shipper.status.words import counted

_BAR = 30
_MOST_VERSIONS = 6
_MOST_MEMBERS = 12
_CELLS: tuple[tuple[Cell, str, str], ...] = (
    ("drained", "█", "green"),
    ("active", "▓", "cyan"),
    ("received", "▒", "yellow"),
    ("none", "░", "dim"),
)
"""In the order of the bar: its sign, and its style."""
_BAD = ("refused", "unauthentic", "absent")


def lines(fleet: Fleet, width: int) -> list[Text]:
    """Returns the lines of a fleet."""
    head = title("fleet ").append(text(fleet.name)).append(text(f"  {', '.join(_state(fleet))}", "not bold"))
    versions = [_version(one) for one in fleet.versions[:_MOST_VERSIONS]]
    warned = [indented(text(warning, "yellow")) for warning in fleet.warnings]
    found = [head, *warned, *table("  versions", ("", "members", "by", "why"), versions, width)]
    found += table("  behind", ("", "", "versions", "events", "why"), [_member(one) for one in _shown(fleet)], width)
    if more := len(fleet.behind) - _MOST_MEMBERS:
        found += [indented(Text(f"{more:,} more members are behind", "dim"))] if more > 0 else []
    return [piece for line in found for piece in wrapped(line, width)]


def _state(fleet: Fleet) -> Iterator[str]:
    yield fleet.state
    yield counted(len(fleet.present), "member")
    if fleet.newest is not None:
        yield f"newest version {fleet.newest}"
    if fleet.leader:
        yield f"led by {fleet.leader}"


def _shown(fleet: Fleet) -> tuple[Member, ...]:
    return fleet.behind[:_MOST_MEMBERS]


def _version(one: Version) -> Row:
    bar = _bar(one)
    counts = [f"{one.count(cell):,} {cell if cell != 'none' else 'without it'}" for cell, _, _ in _CELLS]
    told = [words for words in counts if not words.startswith("0 ")]
    return Row((text(one.name, "bold"), bar.append(f" {', '.join(told)}"), text(one.by), text(one.why, "dim")))


def _bar(one: Version) -> Text:
    """Returns a bar of all members, in which even one that is behind has a place."""
    bar, left = Text(), _BAR
    members = max(1, len(one.cells))
    for cell, sign, style in reversed(_CELLS[1:]):
        if count := one.count(cell):
            wide = min(left, max(1, round(count / members * _BAR)))
            left -= wide
            bar = Text(sign * wide, style).append(bar)
    sign, style = _CELLS[0][1:]
    return Text(sign * left if one.count("drained") or not one.cells else "", style).append(bar)


def _member(one: Member) -> Row:
    style = "bold red" if one.kind in _BAD else "yellow"
    cells = (text(one.name), text(one.kind, style), right(f"{one.behind:,}"), right(f"{one.events:,}"), text(one.why))
    return Row(cells)
