"""Which secrets every member has released, and what an elected candidate does next. Pure: values in, values out.

A secret's id is retired when it is no longer today's and the newest version does not pin it. It is released when every
member has reached the version that unpinned it, and its sidecar does not use the id. Members that have not, but that
can send nothing with it, do not count: those that left with nothing undelivered, those that are fenced, and forgotten
ones. The last two delay the release while they have undelivered events, for `Settings.release_grace` or until an order.
A member that is merely away blocks the release for ever.

    retired ──> released ──> begun ──> done
                   └── a publish of the id may withdraw it

`released` and `begun` are two swaps of the head, since a view may be older than the head by the time of the first one.
`begun` is decided by the same rule again, on a view that knows every change up to an instant after the first swap was
seen: a member that had joined or come back before it is in that view, and a member that comes later reads the release
before it uses anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from shipper.fleet.records import Head, Lapse, Lost, Release, Report, Undelivered, Version
from shipper.fleet.standings import fenced, is_forgotten
from shipper.fleet.view import View

MOST_DONE = 100
"""Releases that are done, and that no version of the history names, are kept up to this number, for people."""
WITHDRAWABLE = 5.0
"""Seconds for which an elected candidate leaves a release withdrawable."""
_LOOK_AGAIN = 1.0
"""Seconds, while a fence is about to hold."""

Why = Literal[
    "behind",
    "using",
    "joining",
    "not registered",
    "absent",
    "directory lost",
    "undelivered",
    "unauthentic",
    "unknown content",
    "not accepted",
]
"""Why a member delays a release, or the store.

    behind          it has not reached the version that unpinned the id       using           its sidecar uses the id
    joining         it has not yet said what it uses                           not registered  not since the restore
    absent          its lease is over, and nothing proves that it stopped      directory lost  likewise, and replaced
    undelivered     it is fenced or forgotten, with undelivered events         unauthentic     its record is forged

    unknown content   the store has lost the content with a restore: it may be that of a secret in use, and a command
                      would get no name of it; after an order it is given up, and no command runs
    not accepted      no destination has accepted the secret yet that has come in its place, in place of a member's name
"""
THE_STORE = "the store"
"""In place of a member's name."""


class Obstacle(msgspec.Struct, frozen=True):
    """A member that delays a release."""

    member: str
    """Its name, or NAME/DIRECTORY for a lost directory."""
    why: Why
    undelivered: Undelivered = Undelivered()
    seconds: float | None = None
    """After so many seconds it delays the release no longer; None if time alone does not end it."""

    def remedy(self, id: str) -> str:
        """Returns the command that ends the delay of this id; empty if only the member itself does."""
        if self.why == "unknown content":
            return (
                f"shipper fleet secret set {id.rpartition('-')[0]} --file PATH, with that content; if nobody has it, "
                f"shipper fleet release {id} --despite '{THE_STORE}'"
            )
        if self.why in ("absent", "directory lost", "unauthentic"):
            return f"shipper fleet forget {self.member}"
        by_order = self.why in ("undelivered", "not accepted")
        return f"shipper fleet release {id} --despite {self.member}" if by_order else ""


class Retired(msgspec.Struct, frozen=True):
    """An id that nobody needs any more, and who still delays its release."""

    id: str
    name: str
    """Of the secret."""
    since: Version | None
    """The version that every member must have reached; None before the first one."""
    obstacles: list[Obstacle]
    despite: list[str]
    """Members that have not released it and do not count."""

    @property
    def released(self) -> bool:
        return not self.obstacles


def retired(view: View, wall: float) -> list[Retired]:
    """Returns the retired ids that no candidate has begun to release, at `wall` Unix seconds; computed from the view
    alone, so also for a fleet without any `on_release`."""
    return [_retired(view, id, wall) for id in retired_ids(view.head)]


def retired_ids(head: Head) -> list[str]:
    """Returns the ids that are not today's, that the newest version does not pin and that were not begun."""
    pinned = [id for line in head.history for id in line.secrets.values()]
    needed = {*head.secrets.values(), *(head.history[-1].secrets.values() if head.history else ())}
    begun = {id for id, release in head.released.items() if release.state != "released"}
    known = dict.fromkeys([*head.fingerprints, *pinned, *head.released])
    return [id for id in known if id not in needed and id not in begun]


def live_ids(head: Head) -> list[str]:
    """Returns the ids that a member may use, or that a publish may still take back into use."""
    pinned = [id for line in head.history for id in line.secrets.values()]
    known = dict.fromkeys([*head.secrets.values(), *head.fingerprints, *pinned])
    return [id for id in known if id not in head.released or head.released[id].state == "released"]


def _retired(view: View, id: str, wall: float) -> Retired:
    since = unpinned(view.head, id)
    given_up = is_given_up(view.head, id)
    obstacles = [Obstacle(THE_STORE, "unknown content")] if is_unknown(view.head, id) and not given_up else []
    if newer := _unaccepted(view, id):
        obstacles.append(Obstacle(newer, "not accepted"))
    despite = [THE_STORE] if given_up else []
    forgotten: list[tuple[str, Lost]] = []
    """Lost directories that a person has forgotten."""
    for name in sorted({*view.reports, *view.alive, *view.unauthentic}):
        report = view.reports.get(name)
        if report is None or name in view.unauthentic:
            obstacles.append(Obstacle(name, "unauthentic" if name in view.unauthentic else "joining"))
            continue
        lost = list(_behind(view, report.lost, since))
        obstacles += (
            Obstacle(_full(name, one), "directory lost", one.undelivered)
            for one in lost
            if not is_forgotten(view, name, one)
        )
        forgotten += ((_full(name, one), one) for one in lost if is_forgotten(view, name, one))
        if has_released(view, report, id, since) or _has_left(report):
            continue
        obstacle = _obstacle(view, report, id, wall)
        if obstacle is None:
            despite.append(name)
        else:
            obstacles.append(obstacle)
    forgotten += (
        (_full(name, one), one) for name, each in view.forgotten.items() for one in _behind(view, each, since)
    )
    for full, one in forgotten:
        seconds = _grace(view.head, full, one, id, wall)
        if seconds > 0:
            obstacles.append(Obstacle(full, "undelivered", one.undelivered, seconds))
        else:
            despite.append(full)
    version = view.head.history[since].version if since >= 0 else None
    return Retired(id, name_of(view.head, id), version, obstacles, despite)


def is_unknown(head: Head, id: str) -> bool:
    """Whether the store has lost the content of an id."""
    return head.fingerprints.get(id) == ""


def is_given_up(head: Head, id: str) -> bool:
    """Whether a person has ordered that the lost content of an id is not looked for."""
    noted, release = head.lapses.get(THE_STORE), head.released.get(id)
    return (noted is not None and id in noted.ordered) or (release is not None and THE_STORE in release.despite)


def _unaccepted(view: View, id: str) -> str:
    """Returns the id that the newest version has in place of this one, if members use it, and no destination has
    accepted it from any of them; empty otherwise, or after an order.

    Else a wrong one would destroy the way back.
    """
    head = view.head
    newer = head.history[-1].secrets.get(name_of(head, id), "") if head.history else ""
    noted = head.lapses.get(newer)
    if head.settings.release_when == "at_once" or (noted is not None and id in noted.ordered):
        return ""
    users = [report for report in view.reports.values() if newer in report.using and report.state != "forgotten"]
    return newer if users and all(newer in report.unaccepted for report in users) else ""


def unpinned(head: Head, id: str) -> int:
    """Returns the place in the history of the version that no longer pins an id; -1 without any version.

    If the history no longer has a version that pins it, that is its oldest one.
    """
    if not head.history:
        return -1
    return 1 + max((place for place, line in enumerate(head.history) if id in line.secrets.values()), default=-1)


def name_of(head: Head, id: str) -> str:
    """Returns the name under which an id was pinned last, or else the one with which the id begins."""
    for line in reversed(head.history):
        for name, pin in line.secrets.items():
            if pin == id:
                return name
    return head.released[id].name if id in head.released else id.rpartition("-")[0]


def has_released(view: View, report: Report, id: str, since: int) -> bool:
    """Whether a member says of itself that it will never again use an id: it has reached, or begun at, the version at
    place `since`, and does not have the id in use. This stays true when its lease is over."""
    if id in report.using or report.epoch != view.head.epoch or (report.state == "joining" and report.begun is None):
        return False
    reached = (report.stages.get("active"), report.stages.get("drained"), report.begun)
    return max(_place(view, version) for version in reached) >= since


def _place(view: View, version: Version | None) -> int:
    """Returns the place of a version in the history; -1 for one that is not there, and so counts for nothing."""
    return -1 if version is None else view.places.get(version, -1)


def _has_left(report: Report) -> bool:
    return report.state == "left" and not report.undelivered.events


def _obstacle(view: View, report: Report, id: str, wall: float) -> Obstacle | None:
    """Returns why a member that has not released an id delays it; None if it does not count."""
    name, head, undelivered = report.name, view.head, report.undelivered
    if report.state == "forgotten" or _is_fenced(view, report):
        if not undelivered.events or id in _ordered(head, report):
            return None
        seconds = head.settings.release_grace - away(view, report, wall)
        return Obstacle(name, "undelivered", undelivered, seconds) if seconds > 0 else None
    if report.state == "left" or name not in view.alive:
        return Obstacle(name, "absent", undelivered)
    if report.epoch != head.epoch:
        return Obstacle(name, "not registered", undelivered)
    if id in report.using:
        return Obstacle(name, "using", undelivered)
    return Obstacle(name, "joining" if report.state == "joining" else "behind", undelivered)


def _is_fenced(view: View, report: Report) -> bool:
    """A record of an earlier epoch proves no fence: the member may have loosened it after that snapshot."""
    return report.state != "left" and report.epoch == view.head.epoch and fenced(view, report.name)


def _will_be_fenced(view: View, obstacle: Obstacle) -> bool:
    report = view.reports.get(obstacle.member)
    if obstacle.why != "absent" or report is None or report.fence is None or report.state == "left":
        return False
    return report.epoch == view.head.epoch and report.name in view.gone


def _full(name: str, lost: Lost) -> str:
    return f"{name}/{lost.directory}"


def _grace(head: Head, full: str, lost: Lost, id: str, wall: float) -> float:
    """Returns for how many seconds a directory that was forgotten still delays the release of an id, as a forgotten
    member does; 0 for one with nothing undelivered, or after an order."""
    noted = head.lapses.get(full)
    if not lost.undelivered.events or (noted is not None and id in noted.ordered):
        return 0.0
    return max(0.0, head.settings.release_grace - max(0.0, wall - lost.at))


def _behind(view: View, lost: Iterable[Lost], since: int) -> Iterator[Lost]:
    """Yields the lost directories that have not drained what came before `since`."""
    return (one for one in lost if _place(view, one.stages.get("drained")) < max(since, 0))


def lapse(head: Head, report: Report) -> Lapse | None:
    """Returns the note that a member is away, if it has written nothing since."""
    noted = head.lapses.get(report.name)
    return noted if noted is not None and noted.report == report.write_id else None


def _ordered(head: Head, report: Report) -> Sequence[str]:
    noted = lapse(head, report)
    return noted.ordered if noted is not None else ()


def away(view: View, report: Report, wall: float) -> float:
    """Returns for how many seconds a member is away: by the note in the head, which outlives candidates, or by what
    the observer saw itself."""
    noted = lapse(view.head, report)
    gone = view.gone.get(report.name)
    return max(0.0, wall - noted.since if noted is not None else 0.0, view.now - gone if gone is not None else 0.0)


# What an elected candidate does.


def forgettable(view: View, wall: float) -> list[str]:
    """Returns the members that are away for longer than their `forget_after`, with nothing undelivered."""
    return [
        name
        for name, report in sorted(view.reports.items())
        if _may_be_forgotten(view, report) and away(view, report, wall) >= (report.forget_after or 0.0)
    ]


def _may_be_forgotten(view: View, report: Report) -> bool:
    expects = report.forget_after is not None and report.state in ("joining", "member")
    return expects and report.name not in view.alive and not report.undelivered.events


def noted(view: View, found: Sequence[Retired], wall: float) -> Head:
    """Returns the head with a note of each member that is away while time must pass, and without notes that are
    over."""
    waited_for = {obstacle.member for one in found for obstacle in one.obstacles if obstacle.seconds is not None}
    live = live_ids(view.head)
    lasting = {*view.head.forgotten, *live}
    if (order := view.head.lapses.get(THE_STORE)) is not None and not set(order.ordered).isdisjoint(live):
        lasting.add(THE_STORE)
    notes = {name: one for name, one in view.head.lapses.items() if name in lasting and name not in view.reports}
    for name, report in sorted(view.reports.items()):
        before = lapse(view.head, report)
        if name in waited_for or _may_be_forgotten(view, report) or (before is not None and before.ordered):
            notes[name] = before or Lapse(report.write_id, wall - away(view, report, wall))
    return view.head if notes == view.head.lapses else replace(view.head, lapses=notes)


def marked(head: Head, found: Sequence[Retired], wall: float) -> Head:
    """Returns the head in which the ids that every member has released are marked so."""
    new = {
        one.id: Release(one.name, wall, despite=one.despite)
        for one in found
        if one.released and one.id not in head.released
    }
    return replace(head, released=head.released | new) if new else head


def begun(head: Head, ids: Mapping[str, Sequence[str]], token: int) -> Head:
    """Returns the head in which the candidate with this token has begun these ids, each despite the given members."""
    changed = {
        id: replace(
            head.released[id],
            state="begun",
            token=token,
            despite=sorted({*head.released[id].despite, *despite}),
            failing=0.0,
        )
        for id, despite in ids.items()
    }
    return replace(head, released=head.released | changed) if changed else head


def failing(head: Head, ids: Iterable[str], token: int, wall: float) -> Head:
    """Returns the head that says since when the command fails for these ids, which the candidate with this token has
    begun. Otherwise only that host would show it."""
    new = {
        id: replace(release, failing=wall)
        for id in ids
        if (release := head.released.get(id)) and (release.state, release.token) == ("begun", token)
        if not release.failing
    }
    return replace(head, released=head.released | new) if new else head


def finished(head: Head, ids: Sequence[str]) -> Head:
    """Returns the head in which these releases are done, without those that are too many."""
    done = {id: replace(head.released[id], state="done", failing=0.0) for id in ids if id in head.released}
    releases = head.released | done
    pinned = {id for line in head.history for id in line.secrets.values()}
    old = sorted(
        (id for id, release in releases.items() if release.state == "done" and id not in pinned),
        key=lambda id: releases[id].at,
    )
    dropped = set(old[: max(0, len(old) - MOST_DONE)])
    if not done and not dropped:
        return head
    return replace(
        head,
        released={id: release for id, release in releases.items() if id not in dropped},
        fingerprints={id: content for id, content in head.fingerprints.items() if id not in dropped},
    )


@dataclass
class Steps:
    """What the candidate with `token` does, from one view to the next; all that matters is in the head.

    Per view: swap the head of the view for `next`, if that is another one, before anything else; else run the command
    for each id of `due`, then call `succeeded`. A swap that fails, or whose answer was lost, needs nothing: the next
    view shows what there is. Nobody has to ask whether it still leads: a view with another token stops it.
    """

    token: int
    _seen: dict[str, float] = field(default_factory=dict)
    """When this candidate first saw each withdrawable release, by the clock of the view."""
    _writes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The last write of each live member when that release had been withdrawable for long enough."""
    _running: set[str] = field(default_factory=set)
    _succeeded: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)

    def leads(self, view: View) -> bool:
        """Whether the head gives the authority to this candidate; a restored store suspends it."""
        return view.head.token == self.token and view.head.accepting is None and not view.is_restored

    def next(self, view: View, wall: float) -> Head:
        """Returns the head that is to be written; it is that of the view if there is nothing to write."""
        head = view.head
        if not self.leads(view):
            return head
        if (over := finished(head, sorted(self._succeeded & head.released.keys()))) != head:
            return over
        self._succeeded.clear()
        if (new := failing(head, self._failed, self.token, wall)) != head:
            return new
        self._failed.clear()
        found = retired(view, wall)
        if (new := begun(head, self._beginnable(view, found), self.token)) != head:
            return new
        if (new := marked(head, found, wall)) != head:
            return new
        return noted(view, found, wall)

    def due(self, view: View) -> list[str]:
        """Returns the ids for which the command must run now; each is returned once."""
        head = view.head
        if not self.leads(view):
            return []
        own = [id for id, one in head.released.items() if one.state == "begun" and one.token == self.token]
        new = sorted((id for id in own if id not in self._running), key=lambda id: head.released[id].at)
        self._running.update(new)
        return new

    def succeeded(self, id: str) -> None:
        """Records that the command has succeeded."""
        self._succeeded.add(id)
        self._failed.discard(id)

    def failed(self, id: str) -> None:
        """Records that the command has failed, and will run again."""
        self._failed.add(id)

    @property
    def has_news(self) -> bool:
        """Whether a success or a failure is not yet known to be in the head."""
        return bool(self._succeeded or self._failed)

    def wait(self, view: View, wall: float) -> float | None:
        """Returns the seconds after which `next` may return something else although nothing changes; None: never."""
        if not self.leads(view):
            return None
        ends = [seen + WITHDRAWABLE - view.now for seen in self._seen.values()]
        obstacles = [obstacle for one in retired(view, wall) for obstacle in one.obstacles]
        ends += [obstacle.seconds for obstacle in obstacles if obstacle.seconds is not None]
        ends += [_LOOK_AGAIN for obstacle in obstacles if _will_be_fenced(view, obstacle)]
        ends += [
            (report.forget_after or 0.0) - away(view, report, wall)
            for report in view.reports.values()
            if _may_be_forgotten(view, report)
        ]
        return min((end for end in ends if end > 0), default=None)

    def _beginnable(self, view: View, found: Sequence[Retired]) -> dict[str, Sequence[str]]:
        """Returns the ids to begin with the members that do not count: releases that earlier candidates began, and
        those that could be withdrawn for long enough, that still every member has released, and since when every live
        member has written: one that does not, because it found the store to be restored, has no lease soon."""
        releases = view.head.released
        waiting = {id for id, one in releases.items() if one.state == "released"}
        self._seen = {id: self._seen.get(id, view.now) for id in waiting}
        live = {
            name: report.write_id
            for name, report in view.reports.items()
            if name in view.alive and report.state in ("joining", "member")
        }
        old = {id for id, seen in self._seen.items() if view.now - seen >= WITHDRAWABLE}
        self._writes = {id: self._writes.get(id, live) for id in old}
        begun = {id for id, one in releases.items() if one.state == "begun" and one.token != self.token}
        ready = {one.id: one.despite for one in found if one.released and one.id in old}
        ready = {id: despite for id, despite in ready.items() if not live.items() & self._writes[id].items()}
        return ready | dict.fromkeys(sorted(begun), ())
