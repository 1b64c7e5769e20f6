"""A fleet of thousands of hosts: only their decisions and the answer, without network, tasks, files and keys.

    python -m tests.simulation.fleets.large --members 10000 --seed 1 --notes

`world` runs the whole code of a fleet, for some hundred hosts. Here each host is a `Member`, the store is a dictionary,
and one heap has what happens next. Clocks of hosts run at rates of their own, calls take time, and some answers are
lost. The story has four versions:

    1  all hosts join, then begin with it
    2  the hosts under `hold`, a tenth, are cut off until they are fenced; a tenth of all hosts is killed
    3  another tenth is cut off for two leases; then the store goes back to a snapshot from before this version
    4  begins the epoch by which a person accepts that

What must be true: an answer that opens names every host that has not said the stage before, with a kind that may open
it; a fenced one sends nothing any more; a closed answer gives a reason; no host is offered an older version of an
epoch after a newer one; in the end every host has drained version 4.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from shipper.fleet.judge import Verdict, judge
from shipper.fleet.member.machine import Member
from shipper.fleet.member.steps import Claim, Facts, Fetch, Look, Mark, Offer, Revoke, Save, Seen, Terms, Write
from shipper.fleet.memory import Memory
from shipper.fleet.records import Accepting, Alive, Head, Line, Report, Restored, Version
from shipper.fleet.standings import OPENING, Standing
from shipper.fleet.store import ABSENT
from shipper.fleet.view import View
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.supervise.answers import Stage
from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Kind, Told, Violation

LEASE = 15.0
REQUEST = 2.0
"""Seconds of the longest request of a host."""
TIMEOUT = 3.0
"""Seconds after which a call without an answer fails."""
LOST = 0.002
"""The share of calls whose answer is lost."""
LONGEST = 600.0
"""Simulated seconds within which all is to be well again."""
ASKED_EVERY = 1.0
STAGES: Mapping[Stage, tuple[float, float]] = {"active": (0.05, 1.0), "drained": (1.0, 6.0)}
"""Seconds from an offer until the sidecar has answered, from and to."""

Call = Look | Claim | Write | Mark | Fetch | Revoke


@dataclass
class Records:
    """What the store has; each record with its revision."""

    revision: int = 1
    head: tuple[Head, int] = (Head("prod"), 1)
    reports: dict[str, tuple[Report, int]] = field(default_factory=dict)
    alive: dict[str, tuple[Alive, int, float]] = field(default_factory=dict)
    """With the instant at which the lease ends."""
    gone: dict[str, float] = field(default_factory=dict)
    """The instant at which the last lease ended."""
    marks: dict[str, tuple[Restored, int]] = field(default_factory=dict)

    def copy(self) -> Records:
        reports, alive, gone, marks = dict(self.reports), dict(self.alive), dict(self.gone), dict(self.marks)
        return Records(self.revision, self.head, reports, alive, gone, marks)

    def next(self) -> int:
        self.revision += 1
        return self.revision

    def end_leases(self, name: str, now: float) -> None:
        if name in self.alive and self.alive[name][2] <= now:
            self.end_lease(name, self.alive[name][2])

    def end_lease(self, name: str, at: float) -> None:
        if self.alive.pop(name, None) is not None:
            self.gone[name] = at
            self.next()

    def revision_of(self, records: Mapping[str, tuple[Any, ...]], name: str) -> int:
        return int(records[name][1]) if name in records else ABSENT

    def seen(self, name: str) -> Seen:
        report, mark, alive = self.reports.get(name), self.marks.get(name), self.alive.get(name)
        return Seen(
            report[0] if report else None,
            self.revision_of(self.reports, name),
            alive[0] if alive else None,
            self.revision_of(self.alive, name),
            self.head[0],
            self.revision,
            mark[0] if mark else None,
            self.revision_of(self.marks, name),
        )

    def renew(self, name: str, instance: str, now: float) -> bool:
        """Renews the lease of a process; returns whether it has one."""
        if name not in self.alive or self.alive[name][0].instance != instance:
            return False
        self.alive[name] = (*self.alive[name][:2], now + LEASE)
        return True

    def swap(self, records: dict[str, tuple[Any, int]], name: str, record: object | None, expected: int) -> int | None:
        """Returns the new revision of a record, 0 if it was removed, None if another one was expected."""
        if self.revision_of(records, name) != expected:
            return None
        revision = self.next()
        if record is None:
            records.pop(name, None)
            return ABSENT
        records[name] = (record, revision)
        return revision

    def view(self, now: float) -> View:
        """Returns all of it, as an observer sees it that has always been there."""
        for name in [*self.alive]:
            self.end_leases(name, now)
        held = {name: one[0] for name, one in self.alive.items()}
        gone = {name: at for name, at in self.gone.items() if name not in held}
        reports = {name: one[0] for name, one in self.reports.items()}
        marks = {name: one[0] for name, one in self.marks.items()}
        return View(self.revision, self.head[0], reports, held, gone, now, apart=marks)


class Host:
    """A host, over all its processes."""

    def __init__(self, name: str, random: Random, *, hold: bool) -> None:
        self.name, self.hold = name, hold
        self.disk = Memory("prod", name, f"{name}-directory")
        self.running: Version | None = None
        self.processes = 0
        self.turn = 0
        """Counts what it began: the end of an earlier wait, or call, comes too late."""
        self.is_cut_off = self.is_calling = False
        self.said: dict[Stage, list[tuple[float, Version]]] = {"active": [], "drained": []}
        self.sends_until = -math.inf
        self.rate = random.uniform(0.99, 1.01)
        self._ahead = random.uniform(0.0, 1000.0)
        self.start()

    def start(self) -> None:
        self.processes += 1
        self.turn += 1
        self.is_calling = False
        instance = f"{self.name}-{self.processes}"
        terms = Terms(self.name, f"{self.name}-boot", instance, f"{instance}-spare", LEASE, self.hold)
        self.member = Member(terms, self.disk, self.running)

    def clock(self, now: float) -> float:
        return now * self.rate + self._ahead

    def when(self, local: float) -> float:
        return (local - self._ahead) / self.rate

    def has_said(self, stage: Stage, version: Version, now: float) -> bool:
        """Returns whether its sidecar has reached this version or a newer one, or implies it, before an instant."""
        later: list[Stage] = ["drained"] if stage == "drained" else ["active", "drained"]
        return any(at <= now and said >= version for one in later for at, said in self.said[one])


class Large:
    """One run."""

    def __init__(self, members: int, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.store = Records()
        self.hosts = {
            name: Host(name, self.random, hold=n % 10 == 0) for n in range(members) for name in [f"web-{n:05}"]
        }
        self.wrong: list[str] = []
        self.calls: Counter[str] = Counter()
        """Calls of the store by their kind."""
        self.verdicts: Counter[str] = Counter()
        self.judging = 0.0
        """Seconds of processor time of the longest answer."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    # -- the heap ------------------------------------------------------------------------------------------------------

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (self.now + seconds, self._order, what))

    def per_member(self) -> str:
        """How many calls of each kind there were."""
        return ", ".join(f"{name} {count / len(self.hosts):.2f}" for name, count in sorted(self.calls.items()))

    def sizes(self) -> str:
        """What an observer reads and keeps, and how long an answer takes."""
        head = len(msgspec.json.encode(self.store.head[0]))
        reports = sum(len(msgspec.json.encode(report)) for report, _ in self.store.reports.values())
        return f"the head has {head} bytes, the reports {reports / 2**20:.1f} MiB; an answer takes {self.judging:.2f} s"

    def run(self, until: Callable[[], bool], longest: float = LONGEST) -> None:
        """Lets time pass until something is true, as looked at each `ASKED_EVERY` seconds."""
        end, look = self.now + longest, self.now
        while not self.wrong:
            if self.now >= look:
                if until():
                    return
                look = self.now + ASKED_EVERY
            if self.now > end:
                self.wrong.append(f"not well {longest:g} s later: {self.picture()}")
                return
            at, _, what = heapq.heappop(self._due)
            self.now = max(self.now, at)
            what()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        self.after(seconds, lambda: None)
        self.run(lambda: self.now >= end, 2 * seconds + 1)

    def picture(self) -> str:
        places = Counter(f"{host.member.place} {host.member.why}"[:70] for host in self.hosts.values())
        return str(places.most_common(5))

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def begin(self, host: Host) -> None:
        """Lets a host act until it rests, or calls the store; does nothing while a call is under way."""
        if host.is_calling:
            return
        host.turn += 1
        while True:
            step = host.member.next(host.clock(self.now), Facts(request=REQUEST, wall=self.now))
            match step:
                case Rest(until):
                    if until is not None:
                        self._in_turn(host, max(0.001, host.when(until) - self.now), lambda: self.begin(host))
                    return
                case Save(memory):
                    host.disk = memory
                    host.member.saved(memory)
                case Offer(version):
                    self._offer(host, version)
                case Withdraw(ids):
                    host.member.withdrew(ids)
                case Forget(ids):
                    host.member.forgot(ids)
                case Grant(until):
                    host.sends_until = math.inf if until is None else host.when(until)
                    host.member.granted(until)
                case _:
                    self._call(host, step)
                    return

    def _in_turn(self, host: Host, seconds: float, what: Callable[[], None]) -> None:
        """Does something later, unless the host has begun something else, or is another process by then."""
        turn = host.turn
        self.after(seconds, lambda: what() if host.turn == turn else None)

    def _offer(self, host: Host, version: Version) -> None:
        if host.running is not None and version < host.running:
            self.wrong.append(f"{host.name} was offered {version} after {host.running}")
        host.running = version
        host.member.offered(version)
        self._run(host, version)

    def _run(self, host: Host, version: Version) -> None:
        """The sidecar runs a version, or goes on with it."""
        for stage, seconds in STAGES.items():
            self.after(self.random.uniform(*seconds), partial(self._answer, host, host.processes, stage, version))

    def _answer(self, host: Host, process: int, stage: Stage, version: Version) -> None:
        """The sidecar answers; that of an earlier process of the host has ended."""
        if host.processes == process:
            host.said[stage].append((self.now, version))
            host.member.answered(version, stage, "", (), wall=self.now)
            self.begin(host)

    def kill(self, host: Host) -> None:
        """Kills the supervisor and the sidecar of a host, and starts them again."""
        host.start()
        self._in_turn(host, self.random.uniform(0.5, 5.0), lambda: self.begin(host))
        if host.running is not None:
            self._run(host, host.running)

    def cut_off(self, hosts: Sequence[Host]) -> None:
        for host in hosts:
            host.is_cut_off = True

    def connect(self, hosts: Sequence[Host]) -> None:
        for host in hosts:
            host.is_cut_off = False
            self._tell(host)

    # -- calls of the store --------------------------------------------------------------------------------------------

    def _call(self, host: Host, step: Call) -> None:
        host.is_calling = True
        self.calls[type(step).__name__] += 1
        began, delay = host.clock(self.now), self.random.uniform(0.001, 0.02)
        is_lost = self.random.random() < LOST

        def arrive() -> None:
            outcome = None if host.is_cut_off else self._perform(host, step, began)
            if outcome is None or is_lost:
                self._in_turn(host, TIMEOUT, lambda: self._failed(host))
            else:
                self._in_turn(host, delay, lambda: self._done(host, outcome))

        self.after(delay, arrive)  # though the process is killed meanwhile

    def _failed(self, host: Host) -> None:
        host.is_calling = False
        host.member.failed(host.clock(self.now) + self.random.uniform(0.1, 2.0))
        self.begin(host)

    def _done(self, host: Host, outcome: Callable[[], None]) -> None:
        host.is_calling = False
        outcome()
        self.begin(host)

    def _perform(self, host: Host, step: Call, began: float) -> Callable[[], None]:
        """Does in the store what a host wants; returns what the answer tells it."""
        member, store = host.member, self.store
        store.end_leases(host.name, self.now)
        match step:
            case Look():
                seen = store.seen(host.name)
                return lambda: member.looked(step, seen, now=host.clock(self.now))
            case Claim(alive, expected):
                is_free = store.revision_of(store.alive, host.name) == expected
                if is_free:
                    store.alive[host.name] = (alive, store.next(), self.now + LEASE)
                return lambda: member.claimed(done=is_free, now=host.clock(self.now))
            case Write(report, expected):
                if not store.renew(host.name, report.instance, self.now):
                    return member.lapsed
                revision = store.swap(store.reports, host.name, report, expected)
                return lambda: member.wrote(step, revision, began=began, now=host.clock(self.now))
            case Mark(mark, expected):
                marked = store.swap(store.marks, host.name, mark, expected)
                return lambda: member.marked(step, marked, now=host.clock(self.now))
            case Fetch(version):
                return lambda: member.fetched(version)
            case Revoke():
                store.end_lease(host.name, self.now)
                return member.revoked

    def _tell(self, host: Host) -> None:
        """The watch of a host shows the head."""
        if not host.is_cut_off:
            (head, _), at, since = self.store.head, self.store.revision, host.member.known.at
            self.after(self.random.uniform(0.001, 0.05), partial(self._saw, host, host.processes, head, at, since))

    def _saw(self, host: Host, process: int, head: Head, at: int, since: int) -> None:
        if host.processes == process and not host.is_cut_off:
            host.member.saw_head(head, at, since)
            self.begin(host)

    # -- people --------------------------------------------------------------------------------------------------------

    def change(self, head: Head) -> None:
        self.store.head = (head.replacing(), self.store.next())
        for host in self.hosts.values():
            self._tell(host)

    def publish(self, epoch: int = 0, **changes: object) -> Version:
        head, _ = self.store.head
        version = Version(epoch, head.number + 1, f"{self.now:.3f}")
        line = Line(version, self.now, "somebody@here", {}, "")
        self.change(replace(head, epoch=epoch, number=version.number, history=[*head.history, line], **changes))
        return version

    def restore(self, snapshot: Records) -> None:
        """Puts an older state of the store in place; its leases begin anew."""
        self.store = snapshot
        self.store.alive = {name: (*one[:2], self.now + LEASE) for name, one in snapshot.alive.items()}
        for host in self.hosts.values():
            self._tell(host)

    def accept(self) -> Version:
        """A person accepts the restored store."""
        head, _ = self.store.head
        self.change(replace(head, accepting=Accepting(head.epoch + 1, self.now, "somebody@here")))
        self.pass_time(LEASE)
        return self.publish(head.epoch + 1, accepting=None)

    # -- answers -------------------------------------------------------------------------------------------------------

    def ask(self, version: Version, stage: Stage = "drained") -> Verdict:
        """Returns the answer, and judges it."""
        began = time.process_time()
        verdict = judge(self.store.view(self.now), version, stage, 10.0)
        self.judging = max(self.judging, time.process_time() - began)
        self.verdicts[verdict.state] += 1
        listed = {standing.name: standing for standing in verdict.members}
        if verdict.state == "open":
            self.wrong += [fault for host in self.hosts.values() for fault in self._early(host, version, stage, listed)]
        closing = [one for one in verdict.members if one.kind not in OPENING]
        if verdict.state == "closed" and not (closing and all(one.why for one in closing)):
            self.wrong.append(f"{version} is closed without a reason")
        return verdict

    def _early(self, host: Host, version: Version, stage: Stage, listed: Mapping[str, Standing]) -> Iterator[str]:
        standing = listed.get(host.name)
        if host.has_said(stage, version, self.now) or host.name not in self.store.reports:
            return
        if standing is None or standing.kind not in OPENING - {"reached"}:
            yield f"{version} {stage} is open at {self.now:.3f}, and {host.name} has not said so"
        elif standing.kind == "fenced" and host.sends_until > self.now:
            yield f"{host.name} counts as fenced at {self.now:.3f}, and sends until {host.sends_until:.3f}"

    def reach(self, version: Version) -> float:
        """Lets time pass until the answer opens; returns the seconds."""
        began = self.now
        self.run(lambda: self.ask(version).state == "open")
        return self.now - began


def story(members: int, seed: int, say: Callable[[str], None] = print) -> Large:
    """Plays the story; see the module."""
    large = Large(members, seed)
    hosts, random = list(large.hosts.values()), large.random
    first = large.publish()
    for host in hosts:
        large.after(random.uniform(0.0, 2.0), partial(large.begin, host))
    large.run(lambda: len(large.store.reports) == members)
    large.reach(first)
    say(f"all have joined, and drained version 1 after {large.now:.0f} s")
    large.pass_time(LEASE)
    large.calls.clear()
    large.pass_time(4 * LEASE)
    say(f"at rest: {large.calls['Write'] / members / 12:.2f} writes a member and third of a lease")
    holding = [host for host in hosts if host.hold]
    large.cut_off(holding)
    for host in random.sample(hosts, members // 10):
        large.after(random.uniform(0.0, 2 * LEASE), partial(large.kill, host))
    large.calls.clear()
    second = large.publish()
    say(f"version 2 is drained, or fenced, after {large.reach(second):.0f} s; calls a member: {large.per_member()}")
    large.connect(holding)
    snapshot = large.store.copy()
    away = random.sample(hosts, members // 10)
    large.cut_off(away)
    third = large.publish()
    large.pass_time(2 * LEASE)
    say(f"with a tenth cut off version 3 is {large.ask(third).state}")
    large.connect(away)
    say(f"version 3 is drained {large.reach(third):.0f} s after they are back")
    large.restore(snapshot)
    large.pass_time(2 * LEASE)
    say(f"after the restore: {large.ask(second).state}")
    fourth = large.accept()
    say(f"version {fourth} is drained {large.reach(fourth):.0f} s after the epoch began")
    say(large.sizes())
    return large


@dataclass(frozen=True)
class Story(Drawn):
    """One that is told."""

    members: int
    seed: int


def draw(members: int | None, seed: int) -> Story:
    """With so many members, or as many as the seed draws."""
    return Story(Random(seed).randint(50, 300) if members is None else members, seed)


def run(drawn: Story) -> Told:
    """Plays a story, and judges it."""
    said: list[str] = []
    large = story(drawn.members, drawn.seed, said.append)
    figures = Counter({f"answers {state}": times for state, times in large.verdicts.items()})
    figures |= Counter({"members": drawn.members, "simulated seconds": round(large.now)})
    violations = [Violation("L", fault) for fault in large.wrong]
    calls = Counter({f"calls of the store to {name.lower()}": times for name, times in large.calls.items()})
    return Told(violations, calls, figures, tuple(said))


def stories(members: int | None) -> Kind:
    """The kind of this campaign."""
    command = f"python -m tests.simulation.fleets.large{'' if members is None else f' --members {members}'}"
    return Kind(command, partial(draw, members), run, unit="stories", slice=1, twice_every=0)


def main() -> int:
    options = parser("tests.simulation.fleets.large", __doc__)
    options.add_argument("--members", type=int, help="(default: as many as the seed draws, 50 to 300)")
    told = options.parse_args()
    return campaign(stories(told.members), told, usual=1)


if __name__ == "__main__":
    sys.exit(main())
