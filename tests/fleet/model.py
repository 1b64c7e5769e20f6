"""A model of a fleet for `explore`: the store, two members with their sidecars, a publisher and a candidate.

The judge and the rules of release are the product's; members follow the protocol in the smallest steps: between any
two of them others may act, the member may crash, its lease may end, and the answer to its swap may be lost. Nothing
has a duration: whatever may come later may come now. A member that is cut off or stopped is one that does nothing for
a while. The laws read what each sidecar does, and what was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from shipper.fleet import judge, release, standings
from shipper.fleet.judge import Verdict
from shipper.fleet.records import Alive, Fence, Head, Line, Release, Report, Settings, Undelivered, Version
from shipper.fleet.view import View
from shipper.supervise.answers import Stage
from tests.fleet.explore import Step

NOW = 1_000_000.0
Ids = frozenset[str]
Releases = tuple[tuple[str, str, tuple[str, ...]], ...]
"""Id, state, despite."""
Phase = Literal["out", "alive", "reported", "read", "member"]
STAGES: tuple[Stage, ...] = ("active", "drained")


class Host(NamedTuple):
    """A member and its sidecar. All but `up`, `phase`, `seen` and `lease` outlives a crash."""

    hold: bool
    up: bool = False
    phase: Phase = "out"
    seen: int = 0
    """The newest version that it has read."""
    active: int = 0
    drained: int = 0
    ids: Ids = frozenset()
    """The fleet's secrets that the sidecar uses or may use."""
    lease: bool = False
    wrote: int = 0
    """The revision of its record as it wrote it last."""
    behind: int = 0
    """The newest version for which an answer was given that named it as fenced."""

    def may_use(self, id: str) -> bool:
        return id in self.ids and self.up and (self.lease or not self.hold)


class Record(NamedTuple):
    """`members/NAME`; the revision counts changes of this record alone."""

    revision: int
    begun: int = -1
    active: int = 0
    drained: int = 0
    using: Ids = frozenset()


class Kept(NamedTuple):
    """What is in the store."""

    versions: tuple[Ids, ...] = ()
    """The pins of each version."""
    released: Releases = ()
    records: tuple[Record | None, ...] = (None, None)
    alive: tuple[bool, ...] = (False, False)

    @property
    def head(self) -> tuple[object, object]:
        return self.versions, self.released


class Left(NamedTuple):
    """What may still go wrong."""

    crashes: int = 0
    lapses: int = 0
    lost: int = 0


class World(NamedTuple):
    hosts: tuple[Host, ...]
    kept: Kept = Kept()
    fenced: tuple[bool, ...] = (False, False)
    """Members whose fence holds by the clock of every observer."""
    publishing: Kept | None = None
    """The store as the publisher has read it."""
    releasing: tuple[Kept, tuple[bool, ...]] | None = None
    """What the candidate has decided upon, and who was fenced."""
    listed: tuple[Kept, tuple[bool, ...]] | None = None
    """What an observer has listed before it reads the head, and who was fenced then."""
    left: Left = Left()


class Rules(NamedTuple):
    """What the model does; a mutant changes one."""

    plan: tuple[Ids, ...]
    """What the publisher pins, version by version."""
    look_again: bool = True
    """Whoever has registered its lease anew reads the head after that."""
    create_first: bool = True
    """A joiner reads the head after it has created its record."""
    head_first: bool = True
    """An observer reads the head before it lists leases and reports."""
    compare: bool = True
    """A swap of the head fails if the head has changed since it was read."""


# -- What the product sees ---------------------------------------------------------------------------------------------


def version(number: int) -> Version:
    return Version(0, number, f"v{number}")


@cache
def head(versions: tuple[Ids, ...], released: Releases) -> Head:
    pins = [{id[0]: id for id in ids} for ids in versions]
    return Head(
        "fleet",
        number=len(versions),
        history=[Line(version(place), 0.0, "", pin, "") for place, pin in enumerate(pins, 1)],
        secrets=pins[-1] if pins else {},
        fingerprints={id: id for ids in versions for id in ids},
        released={id: Release(id[0], 0.0, state, despite=list(despite)) for id, state, despite in released},  # type: ignore[arg-type]
        settings=Settings(release_grace=0.0),
    )


@cache
def report(place: int, record: Record, hold: bool) -> Report:
    stages = {"received": record.active, "active": record.active, "drained": record.drained}
    return Report(
        name=NAMES[place],
        directory=NAMES[place],
        boot="",
        instance="",
        write=record.revision,
        epoch=0,
        state="joining" if record.begun < 0 else "member",
        begun=version(record.begun) if record.begun > 0 else None,
        stages={stage: version(number) for stage, number in stages.items() if number},  # type: ignore[misc]
        using=sorted(record.using),
        undelivered=Undelivered(events=int(record.drained < record.active)),
        fence=Fence(15.0, 1.0) if hold else None,
    )


NAMES = ("a", "b")


@cache
def view(kept: Kept, fenced: tuple[bool, ...], hold: tuple[bool, ...]) -> View:
    """Returns what a new observer sees."""
    reports = {NAMES[at]: report(at, record, hold[at]) for at, record in enumerate(kept.records) if record}
    return View(
        at=0,
        head=head(*kept.head),  # type: ignore[arg-type]
        reports=reports,
        alive={name: Alive(name, "", "") for name, alive in zip(NAMES, kept.alive, strict=True) if alive},
        gone={
            name: 0.0 if fenced[at] else NOW for at, name in enumerate(NAMES) if name in reports and not kept.alive[at]
        },
        now=NOW,
    )


@cache
def answers(kept: Kept, fenced: tuple[bool, ...], hold: tuple[bool, ...]) -> tuple[tuple[int, Stage, Verdict], ...]:
    """Returns the open answers that are given now."""
    seen = view(kept, fenced, hold)
    verdicts = [
        (n, stage, judge.judge(seen, n, stage, 0.0)) for n in range(1, 1 + len(kept.versions)) for stage in STAGES
    ]
    return tuple(each for each in verdicts if each[2].state == "open")


def given(world: World) -> Iterator[tuple[int, Stage, Verdict]]:
    """Yields the open answers that anybody may give now."""
    yield from answers(world.kept, world.fenced, holding(world))
    if world.listed is not None:
        kept, fenced = world.listed
        mixed = kept._replace(versions=world.kept.versions, released=world.kept.released)
        yield from answers(mixed, fenced, holding(world))


@cache
def released(kept: Kept, fenced: tuple[bool, ...], hold: tuple[bool, ...]) -> Releases:
    """Returns the releases that a candidate writes next."""
    seen = view(kept, fenced, hold)
    found = release.retired(seen, NOW)
    ready = {one.id: one.despite for one in found if one.released and one.id in seen.head.released}
    after = release.begun(seen.head, ready, 1)
    if after == seen.head:
        after = release.marked(seen.head, found, NOW)
    return tuple(sorted((id, one.state, tuple(one.despite)) for id, one in after.released.items()))


def holding(world: World) -> tuple[bool, ...]:
    return tuple(host.hold for host in world.hosts)


# -- What may happen ---------------------------------------------------------------------------------------------------


def start(*hold: bool, left: Left) -> World:
    return World(tuple(Host(each) for each in hold), left=left)


def steps(rules: Rules) -> Callable[[World], Iterator[Step[World]]]:
    def possible(world: World) -> Iterator[Step[World]]:
        for at in range(len(world.hosts)):
            for what, after in _member(world, at, rules):
                yield f"{NAMES[at]} {what}", _answered(after)
        if not rules.head_first and world.listed is None:
            yield "an observer lists the members", _answered(world._replace(listed=(world.kept, world.fenced)))
        for what, after in (*_publisher(world, rules), *_candidate(world, rules), *_store(world)):
            yield what, _answered(after)

    return possible


def _answered(world: World) -> World:
    """Remembers who was named as fenced: somebody asks at every moment."""
    hosts = world.hosts
    for number, _, verdict in given(world):
        for standing in verdict.members:
            at = NAMES.index(standing.name)
            if standing.kind == "fenced" and hosts[at].behind < number:
                hosts = _put(hosts, at, hosts[at]._replace(behind=number))
    return world._replace(hosts=hosts)


def _put(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


def _host(world: World, at: int, **changes: object) -> World:
    return world._replace(hosts=_put(world.hosts, at, world.hosts[at]._replace(**changes)))  # type: ignore[arg-type]


def _pins(kept: Kept, number: int) -> Ids:
    return kept.versions[number - 1] if 0 < number <= len(kept.versions) else frozenset()


def _alive(world: World, at: int, alive: bool) -> World:
    fenced = _put(world.fenced, at, False)
    return world._replace(kept=world.kept._replace(alive=_put(world.kept.alive, at, alive)), fenced=fenced)


def _member(world: World, at: int, rules: Rules) -> Iterator[Step[World]]:
    host, kept = world.hosts[at], world.kept
    record = kept.records[at]
    pins = _pins(kept, host.seen)
    if not host.up:
        yield "starts", _host(world, at, up=True)
        return
    if world.left.crashes:
        down = _host(world, at, up=False, phase="out", lease=False, seen=0)
        yield "crashes", down._replace(left=world.left._replace(crashes=world.left.crashes - 1))
    if host.lease:
        yield "lets its lease end", _host(world, at, lease=False)
    yield from _registration(world, at, rules)
    if host.phase != "member":
        return
    if host.seen < len(kept.versions):
        yield "sees the head", _host(world, at, seen=len(kept.versions))
    if pins and host.active < host.seen:
        yield "makes it active", _host(world, at, active=host.seen, ids=host.ids | pins)
    if host.drained < host.active == host.seen and (host.lease or not host.hold):
        yield "drains", _host(world, at, drained=host.active, ids=pins)
    if record is not None:
        new = record._replace(active=host.active, drained=host.drained, using=host.ids)
        if new != record:
            yield from _write(world, at, new, "reports")
        gone = {id for id, _, _ in kept.released}
        current = host.active == host.seen > 0 and record.revision == host.wrote
        if host.hold and not host.lease and kept.alive[at] and current and host.seen:
            yield "gets a lease", _host(world, at, lease=True, ids=host.ids - (gone - pins))


def _registration(world: World, at: int, rules: Rules) -> Iterator[Step[World]]:
    host, kept = world.hosts[at], world.kept
    record = kept.records[at]
    if host.phase == "member" and not kept.alive[at]:
        yield "notices that its lease is over", _host(world, at, phase="out")
    if host.phase == "out":
        if host.seen < len(kept.versions) and not (rules.create_first if record is None else rules.look_again):
            yield "reads the head", _host(world, at, seen=len(kept.versions))
        yield "registers its lease", _host(_alive(world, at, True), at, phase="alive")
    if host.phase == "alive":
        if record is None and host.wrote == 0:
            yield from _write(world, at, Record(0), "creates its record", phase="reported")
        elif record is not None and record.revision == host.wrote + 1:
            yield "recognises its write", _host(world, at, wrote=record.revision)
        else:
            yield "writes its record", _host(world, at, phase="reported")
    if host.phase == "reported":
        again = rules.create_first if record is None or record.begun < 0 else rules.look_again
        seen = max(host.seen, len(kept.versions)) if again else host.seen
        yield "reads the head" if again else "does not look", _host(world, at, phase="read", seen=seen)
    if host.phase == "read" and record is not None:
        if record.begun >= 0:
            yield "goes on", _host(world, at, phase="member")
        else:
            begun = record._replace(begun=host.seen, using=host.ids | _pins(kept, host.seen))
            yield from _write(world, at, begun, "begins", phase="member")


def _write(world: World, at: int, new: Record, what: str, **then: object) -> Iterator[Step[World]]:
    """Swaps the member's record; a swap that loses its answer is found again, or made again."""
    host, record = world.hosts[at], world.kept.records[at]
    if (record.revision if record else 0) != host.wrote:
        yield "recognises its write", _host(world, at, wrote=host.wrote + 1)
        return
    new = new._replace(revision=host.wrote + 1)
    done = world._replace(kept=world.kept._replace(records=_put(world.kept.records, at, new)))
    yield what, _host(done, at, wrote=new.revision, **then)
    if world.left.lost:
        yield f"{what}, and the answer is lost", done._replace(left=world.left._replace(lost=world.left.lost - 1))


def _publisher(world: World, rules: Rules) -> Iterator[Step[World]]:
    kept, read = world.kept, world.publishing
    if read is None:
        if len(kept.versions) < len(rules.plan):
            yield "the publisher reads the head", world._replace(publishing=kept)
        return
    if rules.compare and read.head != kept.head:
        yield "the publisher is too late", world._replace(publishing=None)
        return
    pins = rules.plan[len(read.versions)]
    if any(id in pins and state != "released" for id, state, _ in read.released):
        yield "the publisher is refused", world._replace(publishing=None)
        return
    kept = kept._replace(
        versions=(*read.versions, pins), released=tuple(each for each in read.released if each[0] not in pins)
    )
    yield f"version {len(kept.versions)} is published", world._replace(kept=kept, publishing=None)


def _candidate(world: World, rules: Rules) -> Iterator[Step[World]]:
    kept, hold = world.kept, holding(world)
    if world.releasing is None:
        if kept.versions and released(kept, world.fenced, hold) != kept.released:
            yield "the candidate decides", world._replace(releasing=(kept, world.fenced))
        return
    read, fenced = world.releasing
    if rules.compare and read.head != kept.head:
        yield "the candidate is too late", world._replace(releasing=None)
        return
    after = released(read, fenced, hold)
    kept = kept._replace(versions=read.versions, released=after)
    yield (
        f"the candidate writes {', '.join(f'{id} {state}' for id, state, _ in after)}",
        world._replace(kept=kept, releasing=None),
    )


def _store(world: World) -> Iterator[Step[World]]:
    kept, left = world.kept, world.left
    for at, host in enumerate(world.hosts):
        if kept.alive[at] and not host.lease and left.lapses:
            after = _alive(world, at, False)._replace(left=left._replace(lapses=left.lapses - 1))
            yield f"the lease of {NAMES[at]} is over", after
        if host.hold and not kept.alive[at] and kept.records[at] and not host.lease and not world.fenced[at]:
            yield f"{NAMES[at]} is fenced", world._replace(fenced=_put(world.fenced, at, True))


# -- The laws ----------------------------------------------------------------------------------------------------------


def laws(world: World) -> Iterator[str]:
    """Yields what is broken."""
    yield from _answers(world)
    yield from _secrets(world)
    yield from _fences(world)


def _answers(world: World) -> Iterator[str]:
    for number, stage, verdict in given(world):
        named = {each.name for each in verdict.members if each.kind in ("fenced", "left", "forgotten")}
        for at, host in enumerate(world.hosts):
            record = world.kept.records[at]
            counts = bool(host.wrote) or record is not None
            if counts and NAMES[at] not in named and (host.active if stage == "active" else host.drained) < number:
                yield f"{number} {stage} is open, and {NAMES[at]} has not reached it"


def _secrets(world: World) -> Iterator[str]:
    for id, state, despite in world.kept.released:
        for at, host in enumerate(world.hosts):
            if state == "begun" and host.may_use(id) and (NAMES[at] not in despite or host.hold):
                yield f"{id} is released, and {NAMES[at]} uses it"


def _fences(world: World) -> Iterator[str]:
    seen = view(world.kept, world.fenced, holding(world))
    for at, host in enumerate(world.hosts):
        if host.lease and standings.fenced(seen, NAMES[at]):
            yield f"{NAMES[at]} is fenced, and may send"
        if host.lease and host.active < host.behind:
            yield f"{NAMES[at]} may send under {host.active}, and an answer for {host.behind} named it as fenced"
