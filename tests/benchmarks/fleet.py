"""What a fleet costs its members and its etcd, how soon it answers, and how it comes back after the store was away.

    python -m tests.benchmarks.fleet [--members 1000] [--nodes 1,3] [--only rest,version,wait,outage,growth,memory]

rest      writes of a member in a third of its lease, its CPU, that of etcd; while nothing happens
memory    resident memory of a member: of all but the first tenth, after each has registered
version   writes of a member for a version, renewals meanwhile included: all stages answered at once, and each stage so
          late that it is a write of its own
wait      from the instant at which the slowest member sends its report until a `wait` of another process opens
outage    each node is killed (kill -9) while members answer a version, which takes them half of the time, and started
          again later: from there until the version is drained everywhere and no member has a trouble with the store.
          A few of the members are real supervisors whose logs grow all the time: their lines, and their restarts
growth    of etcd's database in an hour at rest, without compaction and with
supervise a real `shipper supervise` with its sidecar at rest, in a fleet of its own and in none

The others are real, of one process or a few, with real connections and state directories; only their sidecars are
fakes. etcd syncs its files. The aims: a write a member and third; five writes a version; 0.2 % of a core and 3 MB; a
second; a lease. CPU is that of a whole process, system time included.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.observer import observing, wait
from shipper.fleet.publisher import Publisher
from shipper.fleet.seal import Seals
from tests.backends import etcd
from tests.benchmarks import supervised
from tests.benchmarks.busy import POLICY, Hosts, Traffic, busy
from tests.benchmarks.child import cpu_seconds, mib
from tests.benchmarks.figures import Table, progress, spread
from tests.benchmarks.members import FLEET, KEY, PREFIX, Members, members
from tests.benchmarks.pipeline import workplace

PATIENCE = 300.0
AIM_WRITES, AIM_VERSION = 1, 5
AIM_SHARE = 0.002
AIM_MIB = 3e6 / (1 << 20)
AIM_WAIT = 1.0
COMPACTED = ("--auto-compaction-mode=periodic", "--auto-compaction-retention=10s")


@dataclass(frozen=True)
class Rest:
    """Of a while without news."""

    writes: float
    """Of a member, in a third of its lease."""
    share: float
    """Of a core, of a member."""
    etcd_share: float
    """Of a core, of all nodes."""
    grown: int
    """Bytes of the database."""
    seconds: float


@dataclass(frozen=True)
class Published:
    """Of a version; seconds from its publish on, but for `opened`."""

    writes: float
    """Of a member."""
    first: float
    last: float
    """The first and the last report of `drained`."""
    opened: float
    """The `wait`, after the last report."""
    asker_cpu: float
    """CPU seconds of the process that waits, and of its publish."""


@dataclass(frozen=True)
class Outage:
    """Seconds after the store was back."""

    drained: float
    well: float
    offers: int
    """What a member was offered beyond the version itself."""
    grown_mib: float
    milliseconds: float
    """CPU of a member, from there until it was well."""
    share: float
    """Of a core, which all members together had meanwhile."""
    traffic: Traffic


@dataclass
class Fleet:
    """A running fleet; what is asked of it blocks."""

    etcd: etcd.Etcd
    members: Members
    lease: float
    place: Path
    published: int = 0
    resident: list[tuple[int, float]] = field(default_factory=list)
    """By number of members, the MiB of their process."""

    # -- at rest

    def rest(self, seconds: float) -> Rest:
        """A while of nothing."""
        since, cpu, of_etcd = time.monotonic(), self.members.cpu_seconds(), self._cpu_of_etcd()
        revision, size = self.etcd.revision, self.database()
        time.sleep(seconds)
        cpu, of_etcd = self.members.cpu_seconds() - cpu, self._cpu_of_etcd() - of_etcd
        taken = time.monotonic() - since
        writes = (self.etcd.revision - revision) / self.members.count / (taken / (self.lease / 3))
        grown = self.database() - size
        return Rest(writes, cpu / taken / self.members.count, of_etcd / taken, grown, taken)

    def database(self) -> int:
        """Bytes of the database of the first node."""
        status = json.loads(self.etcd.ctl("endpoint", "status", "-w", "json"))
        return int(status[0]["Status"]["dbSize"])

    def _cpu_of_etcd(self) -> float:
        return sum(cpu_seconds(node.process.pid) for node in self.etcd.nodes if node.process)

    @property
    def member_mib(self) -> float:
        """What a member costs, of all but the first ones."""
        (few, before), (all_of_them, after) = self.resident
        return (after - before) / (all_of_them - few)

    # -- versions

    def publish(self, apart: float) -> Published:
        """A version, until it is drained everywhere."""
        self.members.apart(apart)
        revision, cpu = self.etcd.revision, time.process_time()
        since, opened = trio.run(self._publish, lambda: None)
        cpu, writes = time.process_time() - cpu, (self.etcd.revision - revision) / self.members.count
        first, last = self.members.reports(str(self.published))
        return Published(writes, first - since, last - since, opened - last, cpu)

    def outage(self, seconds: float, hosts: int, rate: int) -> Outage:
        """The store away for so long, while the members, which have all got a version, answer to it, and some ship."""
        with busy(self.place / "busy", self.etcd.urls, self.lease, hosts, rate) as running:
            self.members.apart(0.0)
            trio.run(self._publish, lambda: None)  # with all hosts
            return self._outage(seconds, running)

    def _outage(self, seconds: float, hosts: Hosts) -> Outage:
        self.members.apart(seconds / 6)
        offers, before = self.members.figures()["offers"], self.members.resident_mib()
        back, cpu, meanwhile = 0.0, 0.0, 0

        def away() -> None:
            nonlocal back, cpu, meanwhile
            while self.members.figures()["offers"] < offers + self.members.count:
                time.sleep(0.1)
            self.etcd.kill()
            meanwhile = -hosts.arrived()
            time.sleep(seconds)
            meanwhile += hosts.arrived()
            self.etcd.start()
            back, cpu = time.monotonic(), self.members.cpu_seconds()

        _, opened = trio.run(self._publish, away)
        well = self.members.well()
        taken, cpu = time.monotonic() - back, self.members.cpu_seconds() - cpu
        extra = self.members.figures()["offers"] - offers - self.members.count
        grown = self.members.resident_mib() - before
        each, share = cpu / self.members.count * 1000, cpu / taken
        return Outage(opened - back, max(0.0, well - back), extra, grown, each, share, hosts.end(meanwhile))

    async def _publish(self, meanwhile: Callable[[], None]) -> tuple[float, float]:
        """Returns when a version was published, and when a `wait` for it opened."""
        seals = Seals(FLEET, [KEY])
        async with open_etcd(self.etcd.urls, PREFIX) as store:
            version = await Publisher(store, seals, "bench@here").publish(policy(self.published + 1))
            since = time.monotonic()
            self.published = version.number
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, meanwhile)
                async with observing(store, seals) as observer:
                    verdict = await wait(observer, version, "drained", PATIENCE, 10.0)
                opened = time.monotonic()
        if verdict.state != "open":
            left = [(one.name, one.why) for one in verdict.members[:5]]
            raise SystemExit(f"version {version} is {verdict.state}: {left}; {self.members.figures()}")
        return since, opened


def policy(number: int) -> str:
    """A policy of some length, another one for each number."""
    fields = {"labels.number": str(number)}
    return json.dumps({"version": 1, "processors": [{"type": "add_fields", "fields": fields}]} | POLICY)


@contextmanager
def fleet(nodes: int, count: int, lease: float, *arguments: str, processes: int = 1) -> Iterator[Fleet]:
    """A fleet whose members have registered, and drained a first version."""
    with (
        workplace() as place,
        etcd.cluster(nodes, arguments=arguments) as cluster,
        members(cluster.urls, lease, place / "members", processes) as process,
    ):
        found = Fleet(cluster, process, lease, place)
        few = max(1, count // 10)
        for more in (few, count - few):
            progress(f"{nodes} nodes: {process.count + more} members register")
            process.add(more)
            time.sleep(min(lease, 2.0))
            found.resident.append((process.count, process.resident_mib()))
        found.publish(0.0)
        yield found


# -- the tables --------------------------------------------------------------------------------------------------------


class Report:
    """What is measured of the fleets of each size of etcd, in rows by part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.only = options.only.split(",")
        self.rows: dict[str, list[list[str]]] = {}

    def add(self, part: str, *cells: str) -> None:
        self.rows.setdefault(part, []).append(list(cells))

    def of_fleet(self, nodes: int) -> None:
        """All parts of one fleet."""
        options, name = self.options, f"{nodes} × etcd"
        with fleet(nodes, options.members, options.lease, processes=options.processes) as found:
            if "memory" in self.only:
                self.add("memory", name, f"{found.members.count:,}", f"{found.member_mib:.2f}")
            if "rest" in self.only:
                time.sleep(options.lease / 3)
                progress(f"{name}: at rest")
                rest = found.rest(options.seconds)
                cells = f"{rest.writes:.2f}", f"{rest.share:.3%}", f"{rest.etcd_share:.1%}"
                self.add("rest", name, *cells, f"{mib(found.etcd.nodes[0].process.pid, 'VmRSS'):.0f}")
            if {"version", "wait"} & {*self.only}:
                for how, apart in (("at once", 0.0), ("each apart", options.apart)):
                    progress(f"{name}: versions")
                    self._versions(name, how, [found.publish(apart) for _ in range(options.runs)])
            if "outage" in self.only:
                progress(f"{name}: without a store")
                self._outage(name, found.outage(options.outage, options.busy, options.rate))

    def _versions(self, name: str, how: str, runs: list[Published]) -> None:
        if "version" in self.only:
            writes = spread([one.writes for one in runs], ".2f")
            times = [spread([getattr(one, part) for one in runs], ".2f") for part in ("first", "last")]
            self.add("version", f"{name}, {how}", writes, *times)
        if "wait" in self.only:
            opened = spread([one.opened * 1000 for one in runs])
            self.add("wait", f"{name}, {how}", opened, spread([one.asker_cpu for one in runs], ".2f"))

    def _outage(self, name: str, one: Outage) -> None:
        cells = f"{one.drained:.1f}", f"{one.well:.1f}", f"{one.offers}", f"{one.grown_mib:.1f}"
        cells += f"{one.milliseconds:.0f}", f"{one.share:.0%}"
        self.add("outage", name, f"{self.options.outage:.0f}", *cells)
        lines = one.traffic
        cells = f"{lines.meanwhile:,}", f"{lines.lost}", f"{lines.twice}", f"{lines.restarts}"
        self.add("traffic", f"{self.options.busy} hosts", f"{lines.written:,}", *cells)

    def growth(self) -> None:
        """Two fleets at rest, which differ by the compaction of their etcd."""
        for name, arguments in (("not compacted", ()), ("compacted every 10 s", COMPACTED)):
            with fleet(1, self.options.members, self.options.lease, *arguments) as found:
                progress(f"the database of etcd: {name}")
                time.sleep(min(30.0, self.options.seconds))  # what registering has left is compacted by then
                rest = found.rest(self.options.seconds)
                cells = f"{found.database() / 1e6:.1f}", f"{rest.grown / rest.seconds * 3600 / 1e6:,.0f}"
                self.add("growth", name, *cells)

    def supervise(self) -> None:
        for name, cost in supervised.measure(self.options.seconds).items():
            self.add("supervise", name, f"{cost.share:.3%}", f"{cost.mib:.1f}")

    def tables(self) -> Iterator[Table]:
        lease = self.options.lease
        heads = {
            "memory": ["memory", "members", f"MiB a member (aim {AIM_MIB:.2f})"],
            "rest": [
                "at rest",
                f"writes a member and third (aim {AIM_WRITES})",
                f"of a core a member (aim {AIM_SHARE:.1%})",
                "etcd, of a core",
                "MiB of a node",
            ],
            "version": [
                "a version",
                f"writes a member (aim {AIM_VERSION})",
                "first drained after s",
                "last drained after s",
            ],
            "wait": ["wait", f"ms after the last report (aim {AIM_WAIT * 1000:.0f})", "CPU seconds of the asker"],
            "outage": [
                "without a store",
                "for s",
                f"drained s after it was back (aim {lease:g})",
                "without trouble after s",
                "extra offers",
                "MiB more",
                "CPU ms a member until then",
                "of a core, all members",
            ],
            "traffic": [
                "lines over an outage",
                "written",
                "arrived while it lasted",
                "lost (aim 0)",
                "twice",
                "extra restarts (aim 0)",
            ],
            "growth": ["etcd's database", "MB", "MB more in an hour"],
            "supervise": ["shipper supervise", "of a core", "MiB"],
        }
        for part in heads:
            if part in self.rows:
                yield Table(heads[part], self.rows[part])


OF_FLEET = {"rest", "memory", "version", "wait", "outage"}
PARTS = (*sorted(OF_FLEET), "growth", "supervise")


def measure(options: argparse.Namespace) -> list[Table]:
    """All that was asked for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report(options)
    if OF_FLEET & {*report.only}:
        for nodes in options.nodes:
            report.of_fleet(nodes)
    if "growth" in report.only:
        report.growth()
    if "supervise" in report.only:
        report.supervise()
    progress()
    return list(report.tables())


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts of it, with commas between")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1, help="of the members: a loaded machine gives each a share")
    parser.add_argument("--nodes", type=lambda text: [*map(int, text.split(","))], default=[1, 3], help="of etcd")
    parser.add_argument("--lease", type=float, default=15.0, help="seconds")
    parser.add_argument("--runs", type=int, default=3, help="versions of each kind")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which nothing happens")
    parser.add_argument("--apart", type=float, default=2.0, help="seconds of a stage, where each is a write of its own")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds")
    parser.add_argument("--busy", type=int, default=3, help="real supervisors that ship over an outage")
    parser.add_argument("--rate", type=int, default=200, help="lines a second of each of them")
    return parser


def main() -> None:
    options = parser().parse_args()
    if unknown := {*options.only.split(",")} - {*PARTS}:
        parser().error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for table in measure(options):
        print(table, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
