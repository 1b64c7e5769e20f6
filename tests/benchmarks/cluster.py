"""What a fleet whose store is an API server asks of it, by the server's own audit log.

    python -m tests.benchmarks.cluster [--members 200] [--lease 40] [--seconds 120] [--runs 3]

at rest   of a member, in a third of its lease: writes, reads of one key or lease, and watches that begin; then what the
          elected one writes beside that, and how often anybody lists all; while nothing happens
version   writes of a member from the publish until it is drained everywhere, and how many renewals fall due meanwhile,
          of which a report is one; how soon a `wait` opens after the last report: all stages answered at once, and each
          stage so late that it is a write of its own

The members are those of `fleet.py`: real but for their sidecars, in one process, each with connections of its own. The
server is a real one, with its own etcd and one CPU or two. The aims: one write a member and third, and what the elected
one needs; four writes a version; no list of everything.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio

from shipper.fleet.observer import observing, wait
from shipper.fleet.opening import opened
from shipper.fleet.publisher import Publisher
from shipper.fleet.seal import Seals
from tests.backends import kubernetes as server
from tests.backends.kubernetes import Kubernetes
from tests.benchmarks.child import cpu_seconds, mib
from tests.benchmarks.figures import Table, progress, spread
from tests.benchmarks.fleet import PATIENCE, policy
from tests.benchmarks.members import FLEET, KEY, Members, members, section
from tests.benchmarks.pipeline import workplace
from tests.fleet.kubernetes import install

AIM_WRITES, AIM_VERSION = 1, 4
WRITES = {"create", "update", "patch", "delete"}
ASKER = "asker"


@dataclass
class Audit:
    """The audit log from where it was read last."""

    file: Path
    at: int = 0

    def news(self) -> list[dict[str, Any]]:
        """The requests to a fleet's objects since then; watches when they began."""
        with self.file.open("rb") as file:
            file.seek(self.at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.at += len(whole)
        return [one for one in map(json.loads, whole.splitlines()) if _is_of_fleet(one)]


def _is_of_fleet(one: dict[str, Any]) -> bool:
    of = one.get("objectRef", {})
    ends = one["stage"] == ("ResponseStarted" if one["verb"] == "watch" else "ResponseComplete")
    return ends and of.get("resource") in ("shipperfleetrecords", "leases") and of.get("namespace") == "default"


def kind(one: dict[str, Any]) -> str:
    """What a request was: `write`, `keeper`, `read`, `watch`, `version` (a list without items), or `list`."""
    query = parse_qs(urlsplit(one["requestURI"]).query)
    name = one["objectRef"].get("name", "")
    if one["verb"] in WRITES:
        return "keeper" if "-keeper-" in name else "write"
    if one["verb"] == "watch":
        return "watch"
    if one["verb"] == "get" or "metadata.name" in "".join(query.get("fieldSelector", [])):
        return "read"
    return "version" if query.get("limit") == ["1"] else "list"


@dataclass(frozen=True)
class Rest:
    """Of a while without news."""

    counts: Counter[str]
    seconds: float
    thirds: float
    """Of a lease, of all members together."""
    share: float
    """Of a core, of a member."""
    server_share: float
    """Of a core, of the server and its etcd."""

    def of_member(self, *kinds: str) -> float:
        """How many of these kinds a member makes in a third of its lease."""
        return sum(self.counts[one] for one in kinds) / self.thirds


@dataclass(frozen=True)
class Published:
    """Of a version."""

    writes: float
    """Reports of a member."""
    renewals: float
    """Those that fall due meanwhile."""
    last: float
    """Seconds from the publish to the last report of `drained`."""
    opened: float
    """Seconds from then until the `wait` opened."""
    lists: int
    """Of everything, by who waits."""


@dataclass
class Fleet:
    """A running fleet; what is asked of it blocks."""

    kubernetes: Kubernetes
    kubeconfig: str
    members: Members
    lease: float
    audit: Audit
    published: int = 0
    resident: list[tuple[int, float]] = field(default_factory=list)

    def rest(self, seconds: float) -> Rest:
        """A while of nothing."""
        self.audit.news()
        since, cpu, of_server = time.monotonic(), self.members.cpu_seconds(), self._cpu_of_server()
        time.sleep(seconds)
        cpu, of_server = self.members.cpu_seconds() - cpu, self._cpu_of_server() - of_server
        taken = time.monotonic() - since
        thirds = taken / (self.lease / 3) * self.members.count
        counts = Counter(map(kind, self.audit.news()))
        return Rest(counts, taken, thirds, cpu / taken / self.members.count, of_server / taken)

    def _cpu_of_server(self) -> float:
        programs = (self.kubernetes.apiserver, self.kubernetes.etcd)
        return sum(cpu_seconds(one.process.pid) for one in programs if one.process)

    def publish(self, apart: float) -> Published:
        """A version, until it is drained everywhere."""
        self.members.apart(apart)
        self.audit.news()
        began = time.monotonic()
        since, opened = trio.run(self._publish)
        _, last = self.members.reports(str(self.published))
        found = [one for one in self.audit.news() if kind(one) in ("write", "list")]
        reports = sum(one["objectRef"]["resource"] == "shipperfleetrecords" for one in found if kind(one) == "write")
        renewals = (time.monotonic() - began) / (self.lease / 3)
        lists = sum(kind(one) == "list" for one in found)
        return Published(reports / self.members.count, renewals, last - since, opened - last, lists)

    async def _publish(self) -> tuple[float, float]:
        seals = Seals(FLEET, [KEY])
        async with opened(section(ASKER, [self.kubeconfig], self.lease)) as fleet:
            version = await Publisher(fleet.store, seals, "bench@here").publish(policy(self.published + 1))
            since = time.monotonic()
            self.published = version.number
            async with observing(fleet.store, seals) as observer:
                verdict = await wait(observer, version, "drained", PATIENCE, 10.0)
            at = time.monotonic()
        if verdict.state != "open":
            left = [(one.name, one.why) for one in verdict.members[:5]]
            raise SystemExit(f"version {version} is {verdict.state}: {left}; {self.members.figures()}")
        return since, at


@contextmanager
def fleet(count: int, lease: float) -> Iterator[Fleet]:
    """A fleet whose members have registered, and drained a first version."""
    with workplace() as place, server.running(audit=True) as kubernetes:
        install(kubernetes)
        kubeconfig = str(kubernetes.kubeconfig(place / "kubeconfig"))
        with members([kubeconfig], lease, place / "members") as process:
            found = Fleet(kubernetes, kubeconfig, process, lease, Audit(kubernetes.directory / "audit.log"))
            few = max(1, count // 10)
            for more in (few, count - few):
                progress(f"{process.count + more} members register")
                process.add(more)
                time.sleep(min(lease, 2.0))
                found.resident.append((process.count, process.resident_mib()))
            found.publish(0.0)
            yield found


def measure(options: argparse.Namespace) -> list[Table]:
    """All of it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with fleet(options.members, options.lease) as found:
        time.sleep(options.lease / 3)
        progress("at rest")
        tables = [_at_rest(found, found.rest(options.seconds))]
        rows = []
        for how, apart in (("at once", 0.0), ("each apart", options.apart)):
            progress(f"versions, {how}")
            rows.append(_versions(how, [found.publish(apart) for _ in range(options.runs)]))
    progress()
    head = [f"a version, {options.members} members", f"writes a member (aim {AIM_VERSION} and renewals)"]
    return [*tables, Table([*head, "renewals due", "last drained after s", "wait opens ms later", "lists"], rows)]


def _at_rest(found: Fleet, rest: Rest) -> Table:
    (few, before), (count, after) = found.resident
    server_mib = sum(
        mib(one.process.pid, "VmRSS")
        for one in (found.kubernetes.apiserver, found.kubernetes.etcd)
        if one.process is not None
    )
    rows = [
        [f"writes a member and third of {found.lease:g} s (aim {AIM_WRITES})", f"{rest.of_member('write'):.3f}"],
        ["reads of one object, a member and third", f"{rest.of_member('read'):.2f}"],
        [
            "watches begun, and their versions asked for, a member and third",
            f"{rest.of_member('watch', 'version'):.2f}",
        ],
        ["writes a minute of the elected one beside that", f"{rest.counts['keeper'] / rest.seconds * 60:.1f}"],
        [f"lists of everything in {rest.seconds:.0f} s", f"{rest.counts['list']}"],
        ["of a core a member", f"{rest.share:.3%}"],
        ["of a core, API server and etcd", f"{rest.server_share:.1%}"],
        ["MiB a member", f"{(after - before) / (count - few) if count > few else 0:.2f}"],
        ["MiB of API server and etcd", f"{server_mib:.0f}"],
    ]
    return Table([f"at rest, {count} members", ""], rows)


def _versions(how: str, runs: Sequence[Published]) -> list[str]:
    return [
        how,
        spread([one.writes for one in runs], ".2f"),
        spread([one.renewals for one in runs], ".2f"),
        spread([one.last for one in runs], ".2f"),
        spread([one.opened * 1000 for one in runs]),
        spread([one.lists for one in runs]),
    ]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--lease", type=float, default=40.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=120.0, help="for which nothing happens")
    parser.add_argument("--runs", type=int, default=3, help="versions of each kind")
    parser.add_argument("--apart", type=float, default=2.0, help="seconds of a stage, where each is a write of its own")
    return parser


if __name__ == "__main__":
    print(*measure(parser().parse_args()), sep="\n\n")
