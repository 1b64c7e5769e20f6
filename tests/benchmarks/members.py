"""Many members of a fleet in one process or a few, each with its own connections to the store and its own state
directory.

`Members` drives them by lines of JSON: `add` so many members, `answer` a version in some manner, tell the `figures`. A
process ends with its standard input. The sidecars are fakes that answer to a version as they are asked to; all else is
real.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import trio

from shipper.fleet.home import Home
from shipper.fleet.membership.membership import Membership
from shipper.fleet.membership.offered import Offered
from shipper.fleet.opening import opened
from shipper.fleet.records import Undelivered, Version
from shipper.fleet.seal import Seals
from shipper.fleet.settings import Cluster, FleetSettings
from shipper.fleet.store import Store, Swapped
from shipper.sdk.units import Duration
from shipper.supervise.answers import Stage
from shipper.values import Revision
from tests.benchmarks.child import cpu_seconds, mib

FLEET = "bench"
PREFIX = f"/shipper/{FLEET}/"
KEY = b"k" * 32
BETWEEN = 0.02
"""Seconds between the starts of two members: hosts are not started together."""
STAGES: tuple[Stage, ...] = ("received", "active", "drained")


def section(name: str, urls: Sequence[str], lease: float) -> FleetSettings:
    """The settings of a member; `urls` are those of etcd, or the path of one kubeconfig."""
    common: dict[str, Any] = {"name": FLEET, "member": name, "keys": (KEY,), "lease": Duration(lease)}
    if "://" in urls[0]:
        return FleetSettings(etcd=tuple(urls), **common)
    return FleetSettings(kubernetes=Cluster(kubeconfig=urls[0]), **common)


class Noting:
    """A store that notes when the last swap began."""

    began = 0.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def swap(self, key: str, value: bytes | None, **how: Any) -> Swapped:
        self.began = time.monotonic()
        return await self._store.swap(key, value, **how)


class Sidecar:
    """A host whose sidecar answers to each version: each stage so many seconds after the one before."""

    def __init__(self, crowd: Crowd, store: Noting) -> None:
        self._crowd, self._store = crowd, store
        self.membership: Membership | None = None
        self.troubles: dict[str, str] = {}
        self._waiting = ""

    async def run(self, membership: Membership) -> None:
        """Answers for ever."""
        self.membership = membership
        while True:
            offered = membership.offered
            if offered is not None:
                await self._answer(membership, offered)
            if membership.offered is offered:
                await membership.changed()

    async def _answer(self, membership: Membership, offered: Offered) -> None:
        self._crowd.offers += 1
        self._waiting = str(offered.version)
        for stage in STAGES:
            if self._crowd.apart:
                await trio.sleep(random.uniform(0.5, 1.5) * self._crowd.apart)
            membership.answered(offered.name, Revision(0, offered.version.number), stage)

    def undelivered(self) -> Undelivered:
        """Called before each step of the membership, so right after the report was written too."""
        if self._waiting and self.membership and self._waiting == self.membership.status()["stages"].get("drained"):
            self._crowd.stored(self._waiting, self._store.began)
            self._waiting = ""
        return Undelivered(12, 3456, 0.5)

    def using(self) -> Sequence[str]:
        return ()

    def accepted(self) -> Sequence[str] | None:
        return None

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    def lease(self, until: float | None) -> None:
        pass

    def withdraw(self, ids: Sequence[str]) -> None:
        pass

    def longest_request(self) -> float:
        return 60.0

    def trouble(self, cause: str, message: str | None) -> None:
        self.troubles.pop(cause, None)
        if message is not None:
            self.troubles[cause] = message

    def joined(self, version: Version | None) -> None:
        """Does nothing."""

    def forget(self, ids: Sequence[str]) -> None:
        pass


class Crowd:
    """All members of this process."""

    def __init__(self, urls: Sequence[str], lease: float, directory: Path, nursery: trio.Nursery) -> None:
        """`directory` names the process, and its members by that."""
        self._urls, self._lease, self._directory, self._nursery = urls, lease, directory, nursery
        self._seals = Seals(FLEET, [KEY])
        self._sidecars: list[Sidecar] = []
        self._begun: dict[str, list[float]] = {}
        self.apart = 0.0
        self.offers = 0

    async def add(self, count: int) -> None:
        """Starts so many members, one after the other; returns when the store has their reports."""
        first = len(self._sidecars)
        for number in range(first, first + count):
            await self._nursery.start(self._run, f"{self._directory.name}-{number}")
            await trio.sleep(BETWEEN)
        await until(lambda: all(self._is_member(each) for each in self._sidecars))

    @staticmethod
    def _is_member(sidecar: Sidecar) -> bool:
        return sidecar.membership is not None and sidecar.membership.status()["state"] == "member"

    async def _run(self, name: str, task_status: trio.TaskStatus[None]) -> None:
        home = self._directory / name
        home.mkdir()
        settings = section(name, self._urls, self._lease)
        async with opened(settings) as fleet:
            store: Any = Noting(fleet.store)
            sidecar = Sidecar(self, store)
            membership = Membership(store, self._seals, settings, Home.open(home, FLEET, name), sidecar)
            self._sidecars.append(sidecar)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(membership.run)
                nursery.start_soon(sidecar.run, membership)
                task_status.started()

    def stored(self, version: str, began: float) -> None:
        """A report with this version as drained was written by a swap that began then."""
        self._begun.setdefault(version, []).append(began)

    async def reports(self, version: str) -> dict[str, Any]:
        """Returns when the first and the last report of a version were sent."""
        await until(lambda: len(self._begun.get(version, ())) == len(self._sidecars))
        return {"first": min(self._begun[version]), "last": max(self._begun[version])}

    async def well(self) -> dict[str, Any]:
        """Returns as soon as no member has a trouble."""
        await until(lambda: not any(each.troubles for each in self._sidecars))
        return {"at": time.monotonic()}

    def figures(self) -> dict[str, Any]:
        troubled = [each.troubles for each in self._sidecars if each.troubles]
        return {"offers": self.offers, "troubled": len(troubled), "example": str(troubled[:1])}


async def until(condition: Callable[[], bool]) -> None:
    """Returns when a condition holds."""
    while not condition():  # noqa: ASYNC110 (only now and then, lest the looks cost as much as what is measured)
        await trio.sleep(0.2)


async def serve(urls: Sequence[str], lease: float, directory: Path) -> None:
    """Obeys the lines of the standard input, until it ends."""
    async with trio.open_nursery() as nursery:
        crowd = Crowd(urls, lease, directory, nursery)
        lines = trio.wrap_file(sys.stdin)
        while line := await lines.readline():
            answer: Any = {}
            match json.loads(line):
                case ["add", int(count)]:
                    await crowd.add(count)
                case ["apart", apart]:
                    crowd.apart = float(apart)
                case ["reports", str(version)]:
                    answer = await crowd.reports(version)
                case ["well"]:
                    answer = await crowd.well()
                case ["figures"]:
                    answer = crowd.figures()
            print(json.dumps(answer), flush=True)
        nursery.cancel_scope.cancel()


class Members:
    """The processes, seen by the driver. Methods block."""

    def __init__(self, processes: Sequence[_Process]) -> None:
        self._processes = processes
        self.count = 0

    def add(self, count: int) -> None:
        """Starts so many more."""
        many = len(self._processes)
        self._ask(*(("add", count // many + (at < count % many)) for at in range(many)))
        self.count += count

    def apart(self, seconds: float) -> None:
        """From now on the sidecars take about so long for each stage."""
        self._ask_all("apart", seconds)

    def reports(self, version: str) -> tuple[float, float]:
        """Waits for all reports of `drained`; returns when (time.monotonic) the first and the last one were sent."""
        answers = self._ask_all("reports", version)
        return min(one["first"] for one in answers), max(one["last"] for one in answers)

    def well(self) -> float:
        """Returns when no member had a trouble with the store any more."""
        return max(float(one["at"]) for one in self._ask_all("well"))

    def figures(self) -> dict[str, Any]:
        answers = self._ask_all("figures")
        sums = {name: sum(one[name] for one in answers) for name in ("offers", "troubled")}
        return {**sums, "example": next((one["example"] for one in answers if one["troubled"]), "")}

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(one.pid) for one in self._processes)

    def resident_mib(self) -> float:
        return sum(mib(one.pid, "VmRSS") for one in self._processes)

    def _ask_all(self, *question: Any) -> list[dict[str, Any]]:
        return self._ask(*(question for _ in self._processes))

    def _ask(self, *questions: Sequence[Any]) -> list[dict[str, Any]]:
        for process, question in zip(self._processes, questions, strict=True):
            process.send(question)
        return [process.answer() for process in self._processes]


class _Process:
    """One process."""

    def __init__(self, urls: Sequence[str], lease: float, directory: Path) -> None:
        directory.mkdir()
        command = [sys.executable, "-m", "tests.benchmarks.members", str(lease), str(directory), *urls]
        self._log = (directory / "log").open("w+b")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, question: Sequence[Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"the members ended: {self._log.read().decode(errors='replace')[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Kills it."""
        with self._process, self._log:
            self._process.kill()


@contextmanager
def members(urls: Sequence[str], lease: float, directory: Path, processes: int = 1) -> Iterator[Members]:
    """Processes without members yet; killed at the end."""
    directory.mkdir()
    with ExitStack() as stack:
        some = []
        for number in range(processes):
            some.append(_Process(urls, lease, directory / f"m{number}"))
            stack.callback(some[-1].close)
        yield Members(some)


if __name__ == "__main__":
    trio.run(serve, sys.argv[3:], float(sys.argv[1]), Path(sys.argv[2]))
