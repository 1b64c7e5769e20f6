"""What people see of a fleet: tables (`supervise/show`) and lines, made of the values of `judge`; pure.

The members that keep an answer closed come first. A long list is cut; its last row has the number of those left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shipper.fleet.changes import Plan
from shipper.fleet.judge import Verdict, in_order
from shipper.fleet.overview import Failing, Fleet, Member, Row, secret_names
from shipper.fleet.records import Head, Release, Settings, Undelivered
from shipper.fleet.release import Obstacle, Retired, Why
from shipper.fleet.standings import NO_MEMBERS, OPENING, Kind, Standing
from shipper.sdk.units import Duration, events_in_words, size_in_words
from shipper.supervise.show import Row as Cells
from shipper.supervise.show import Table

STATES: Mapping[str, str] = {
    "open": "every member has reached it",
    "closed": "not yet",
    "refused": "refused",
    "unknown": "there is no such version",
    "gone": "it is no longer in the history",
    "store_restored": "the store was restored",
}
_ORDER: tuple[Kind, ...] = (
    *("reached", "refused", "unauthentic", "absent", "joining", "waiting"),
    *("fenced", "forgotten", "left"),
)
_CAUSES: Mapping[Why, str] = {
    "using": "its sidecar uses it, or may use it",
    "joining": "it has not said yet what it uses",
    "not registered": "it has not registered since the store was restored",
    "absent": "its lease is over, and it may still send",
    "directory lost": "it was lost, and may have used it",
    "undelivered": "it is fenced or forgotten, with undelivered events",
    "unauthentic": "its record is not sealed by the fleet",
    "not accepted": "it is the successor, and no destination has accepted it yet",
    "unknown content": "it has lost the content, which may be in use under another id",
}
_FEWEST_VERSIONS, _MOST_VERSIONS = 2, 8
_MOST_BEHIND = 20
_MOST_PROBLEMS = 3
_LAST = 253402300800.0
"""The end of the year 9999, in Unix seconds."""
_NAMED = 3
"""Members that one line names."""


def line(verdict: Verdict) -> str:
    """Returns the answer in one line, for logs."""
    text = f"version {verdict.version}, {verdict.stage}: {STATES[verdict.state]}"
    if not verdict.counts:
        return _with_warnings(text, verdict)
    held = _held(verdict)
    named = ", ".join(f"{each.name} ({each.why})" if each.why else each.name for each in held[:_NAMED])
    more = f", and {len(held) - _NAMED:,} more" if len(held) > _NAMED else ""
    return _with_warnings(f"{text}; {counted(verdict.counts)}{f'; {named}{more}' if named else ''}", verdict)


def _with_warnings(text: str, verdict: Verdict) -> str:
    return "; ".join((text, *verdict.warnings))


def counted(counts: Mapping[Kind, int]) -> str:
    """Returns the members by kind: `150 of 200 reached, 6 absent, 44 waiting`."""
    total = members(counts)
    others = [f"{counts[kind]:,} {kind}" for kind in _ORDER[1:] if counts.get(kind)]
    return ", ".join([f"{counts.get('reached', 0):,} of {total:,} reached", *others])


def members(counts: Mapping[Kind, int]) -> int:
    """Returns the number of members, without those that are none any more."""
    return sum(count for kind, count in counts.items() if kind not in NO_MEMBERS)


def verdict_tables(verdict: Verdict, most: int | None = None) -> list[Table]:
    """Returns the tables of an answer, with at most so many members; `None`: all."""
    title = f"version {verdict.version}, {verdict.stage}: {STATES[verdict.state]}"
    rows: list[Cells] = [("members", counted(verdict.counts))] if verdict.counts else []
    rows += [("undelivered", one) for one in _undelivered(verdict.undelivered)]
    rows += [("warning", warning) for warning in verdict.warnings]
    held = _held(verdict)
    others = [each for each in verdict.members if each.kind in OPENING]
    candidates: list[Table] = [
        (title, rows),
        ("these keep it closed", list(_standings(held, most))),
        ("these do not count against it", list(_standings(others, most))),
    ]
    return [(text, cells) for at, (text, cells) in enumerate(candidates) if cells or not at]


class Progress(NamedTuple):
    """A wait on a terminal: the lines to show, and the members that keep the answer closed. Each line and each row of
    cells takes one row of the terminal."""

    title: str
    reached: int
    members: int
    lines: Sequence[str]
    rows: Sequence[Cells]


def progress(verdict: Verdict, height: int) -> Progress:
    """Returns the progress of a wait in at most `height` rows of a terminal."""
    others = ", ".join(f"{verdict.counts[kind]:,} {kind}" for kind in _ORDER[1:] if verdict.counts.get(kind))
    undelivered = [f"undelivered: {one}" for one in _undelivered(verdict.undelivered)]
    lines = [*filter(None, [others]), *undelivered, *(f"warning: {warning}" for warning in verdict.warnings)]
    held = _held(verdict)
    room = max(2, height - len(lines) - 1)
    rows = list(_standings(held, len(held) if len(held) <= room else room - 1))
    title = f"version {verdict.version} {verdict.stage}"
    return Progress(title, verdict.counts.get("reached", 0), members(verdict.counts), lines, rows)


def fleet_tables(fleet: Fleet) -> list[Table]:
    """Returns the tables of `fleet status`: the newest versions, and who is behind."""
    newest = f"version {fleet.newest}" if fleet.newest else "no version"
    rows: list[Cells] = [("members", counted(fleet.counts))] if fleet.counts else []
    rows += [("undelivered", one) for one in _undelivered(fleet.undelivered)]
    rows += [("away", away) for away in _away(fleet.members)]
    rows += [("on_release", f"run by {fleet.leader}")] if fleet.leader else []
    rows += [("warning", _failing(fleet, one)) for one in fleet.failing]
    rows += [("warning", warning) for warning in fleet.warnings]
    held = sorted((each for each in fleet.members if each.kind not in OPENING), key=_worst)
    cut = [each for each in fleet.members if each.kind == "fenced"]
    candidates: list[Table] = [
        (f"fleet {fleet.name}: {newest}, {fleet.state}", rows),
        (_of_versions("versions", fleet), list(_versions(fleet.versions, _unfinished(fleet)))),
        ("behind", list(_behind(held, _MOST_BEHIND))),
        ("fenced", list(_behind(cut, _MOST_BEHIND))),
    ]
    return [(text, cells) for at, (text, cells) in enumerate(candidates) if cells or not at]


def member_tables(fleet: Fleet) -> list[Table]:
    """Returns the table of `fleet members`: all, those that are behind first."""
    title = f"fleet {fleet.name}: {counted(fleet.counts) if fleet.counts else 'no members'}"
    return [(title, [_member(each) for each in sorted(fleet.members, key=_first)])]


def history_tables(fleet: Fleet) -> list[Table]:
    """Returns the table of `fleet history`: the newest version first."""
    title = _of_versions(f"fleet {fleet.name}: {_count(len(fleet.versions), 'version')}", fleet)
    return [(title, list(_versions(fleet.versions, None)))]


def plan_lines(plan: Plan) -> list[str]:
    """Returns what a publish changes, in words."""
    found = plan.changes
    on = _count(plan.members, "member")
    lines = [f"adds {path}" for path in found.added]
    lines += [f"removes {path}" for path in found.removed]
    lines += [f"changes {path}" for path in found.changed]
    lines += [f"drains {path} on {on}" for path in found.drained]
    lines += [f"secret {name} is {id} from now on" for name, id in found.new_secrets.items()]
    lines += [f"{id} is released when every member has drained it" for id in found.dropped_secrets.values()]
    lines += [f"not checked, since it depends on variables: {path}" for path in found.unchecked]
    if found.change is None:
        lines.append(f"which outputs drain on {on} cannot be said here")
    lines = lines or [f"changes nothing against version {plan.newest}, on {on}"]
    return [*lines, *(f"warning: {warning}" for warning in found.warnings)]


def secret_tables(head: Head, found: Sequence[Retired], wall: float) -> list[Table]:
    """Returns the tables of `fleet secret list`: today's ids, those that were released or wait for it, and who delays
    that, at `wall` Unix seconds."""
    names = {**secret_names(head), **{one.id: one.name for one in found}}
    today = set(head.secrets.values())
    ids = sorted(names, key=lambda id: names[id])
    before = [(names[id], id, _release(head.released.get(id), head.leader)) for id in ids]
    candidates: list[Table] = [
        (f"fleet {head.fleet}: {_count(len(head.secrets), 'secret')}", sorted(head.secrets.items())),
        ("earlier contents", [row for row in before if row[1] not in today]),
        ("these delay a release", [row for one in found for row in _delays(one, wall)]),
    ]
    return [(text, cells) for at, (text, cells) in enumerate(candidates) if cells or not at]


def _delays(one: Retired, wall: float) -> Iterator[Cells]:
    """Yields who delays the release of a secret, why, and what ends it; first those for whom a person can do that."""
    for each in sorted(one.obstacles, key=lambda each: not each.remedy(one.id))[:_MOST_BEHIND]:
        until = "" if each.seconds is None else f"until {_date(wall + each.seconds)}"
        remedy = each.remedy(one.id)
        ends = f"{until}, or by: {remedy}" if until else f"by: {remedy}" if remedy else ""
        yield one.id, each.member, each.why, _events(each.undelivered), _cause(one, each), ends
    if len(one.obstacles) > _MOST_BEHIND:
        yield one.id, f"{len(one.obstacles) - _MOST_BEHIND:,} more", "", "", "", "--json has all"


def _cause(one: Retired, each: Obstacle) -> str:
    return f"it has not reached version {one.since}" if each.why == "behind" else _CAUSES[each.why]


def settings_tables(fleet: str, settings: Settings) -> list[Table]:
    """Returns the table of `fleet settings`."""
    rows: list[Cells] = [
        ("history", _count(settings.history, "version")),
        ("release_grace", str(Duration(settings.release_grace))),
        ("release_when", settings.release_when),
    ]
    return [(f"fleet {fleet}: settings", rows)]


def _failing(fleet: Fleet, one: Failing) -> str:
    fails = f"on_release fails on {fleet.leader} for {one.name} {one.id} since {_date(one.since)}"
    return f"{fails}; `shipper status` on that host has the reason"


def _release(release: Release | None, leader: str) -> str:
    if release is None:
        return "not released yet"
    despite = f", despite {', '.join(release.despite)}" if release.despite else ""
    done = {"released": "", "begun": ", on_release has begun", "done": ", on_release is done"}[release.state]
    fails = f"; it fails on {leader} since {_date(release.failing)}" if release.failing else ""
    return f"released {_date(release.at)}{done}{fails}{despite}"


def _held(verdict: Verdict) -> list[Standing]:
    """Returns the members that keep an answer closed, the worst first."""
    return sorted((each for each in verdict.members if each.kind not in OPENING), key=_worst)


def _first(each: Member) -> tuple[bool, int, int, Sequence[str | int]]:
    """The order of all members: those that hold the fleet up, then the others."""
    return each.kind in OPENING, *_worst(each)


def _worst(each: Standing | Member) -> tuple[int, int, Sequence[str | int]]:
    return _ORDER.index(each.kind), -each.undelivered.events, in_order(each.name)


def _standings(found: Sequence[Standing], most: int | None) -> Iterator[Cells]:
    for each in found if most is None else found[:most]:
        version = f"at {each.version}" if each.version else ""
        yield each.name, each.kind, version, _events(each.undelivered), _why(each)
    if most is not None and len(found) > most:
        yield f"{len(found) - most:,} more", "", "", "", "`shipper fleet members` has all"


def _behind(found: Sequence[Member], most: int) -> Iterator[Cells]:
    for each in found[:most]:
        yield (
            each.name,
            each.kind,
            _versions_behind(each),
            _events(each.undelivered),
            _why(each),
        )
    if len(found) > most:
        yield f"{len(found) - most:,} more", "", "", "", "`shipper fleet members` has all"


def _member(each: Member) -> Cells:
    drained = each.stages.get("drained")
    heard = f"heard {_date(each.seen)}" if each.seen and not each.alive else ""
    return (
        each.name,
        each.kind,
        f"drained {drained}" if drained else "",
        _events(each.undelivered),
        "hold" if each.fence else "",
        f"own secrets: {each.local}" if each.local else "",
        heard,
        _why(each) or ("its lease is over" if _is_away(each) else ""),
    )


def _away(found: Sequence[Member]) -> Iterator[str]:
    """Yields the members that keep nothing closed, since they have reached the newest version, but are not there."""
    names = [each.name for each in found if _is_away(each)]
    if names:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"{', '.join(names[:_NAMED])}{more}: reached, and now the lease is over"


def _is_away(each: Member) -> bool:
    return each.kind == "reached" and not each.alive


def _of_versions(title: str, fleet: Fleet) -> str:
    total = members(fleet.counts)
    return f"{title}, and how many of {_count(total, 'member')} have reached each" if total else title


def _unfinished(fleet: Fleet) -> int:
    """Returns how many of the newest versions to show: up to the first one that all members have drained."""
    total = members(fleet.counts)
    drained = (at for at, row in enumerate(fleet.versions, 1) if row.reached.get("drained", 0) >= total)
    return min(_MOST_VERSIONS, max(_FEWEST_VERSIONS, next(drained, _MOST_VERSIONS)))


def _versions(rows: Sequence[Row], most: int | None) -> Iterator[Cells]:
    for row in rows if most is None else rows[:most]:
        reached = (f"{stage} {row.reached.get(stage, 0):,}" for stage in ("received", "active", "drained"))
        yield (f"version {row.version}", *reached, _ledger(row), _date(row.at), row.by, row.why)
    if most is not None and len(rows) > most:
        yield f"{len(rows) - most:,} older", "", "", "", "", "", "", "`shipper fleet history` has all"


def _ledger(row: Row) -> str:
    """Returns what became of the events for which a version waited, as far as members know that."""
    if not row.counted:
        return ""
    found = row.ledger
    others = {"dead letters": found.dead_letter, "dropped": found.dropped, "damaged": found.damaged}
    texts = [f"{count:,} {name}" for name, count in others.items() if count or name != "damaged"]
    return f"{', '.join([f'{found.delivered:,} delivered', *texts])} on {_count(row.counted, 'member')}"


def _versions_behind(each: Member) -> str:
    return f"{_count(each.behind, 'version')} behind"


def _undelivered(by_kind: Mapping[Kind, Undelivered]) -> Iterator[str]:
    """Yields the undelivered events of each kind of member, never one sum that hides a kind."""
    found = ((kind, by_kind[kind]) for kind in _ORDER if kind in by_kind)
    if text := ", ".join(f"{kind}: {events_in_words(one.events)}, {size_in_words(one.bytes)}" for kind, one in found):
        yield text


def _events(undelivered: Undelivered) -> str:
    return events_in_words(undelivered.events) if undelivered.events else ""


def _why(each: Standing | Member) -> str:
    return "; ".join(filter(None, (each.why, *each.problems[:_MOST_PROBLEMS])))


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def _date(at: float) -> str:
    """Returns an instant by the clock of its writer, which may be any number."""
    if not 0 <= at < _LAST:
        return "?"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
