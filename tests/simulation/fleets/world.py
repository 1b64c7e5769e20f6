"""A world with a fleet: one scenario, run from the first member to the last answer."""

from __future__ import annotations

import random as random_module
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

import trio

from shipper.fleet import operations
from shipper.fleet.observer import observing
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import HEAD, MEMBERS, Head, Report, Settings, Version
from shipper.fleet.release import retired, retired_ids
from shipper.fleet.seal import Seals
from shipper.fleet.store import Swapped
from shipper.sdk.errors import ShipperError
from shipper.supervise.ledger import Kept
from tests.fleet.memory import MemoryStore, Snapshot
from tests.march.kind import Kind, Violation
from tests.simulation.clock import Clock
from tests.simulation.fleets.machine import FLEET, KEY, Machine
from tests.simulation.fleets.oracle import judge
from tests.simulation.fleets.people import SECRETS, People
from tests.simulation.fleets.scenario import Fleets, Step
from tests.simulation.fleets.sidecar import Directory
from tests.simulation.fleets.transcript import Ran, Transcript, Written
from tests.simulation.world import scheduled

LEASE = 15.0
GRACE = 60.0
"""`release_grace`."""
HEALING_SECONDS = 900.0
"""Within which, after the last fault, the newest version must have drained everywhere."""
RELEASING_SECONDS = 300.0
MOST_TURNS = 3_000_000
KEEPING = 10.0
"""Seconds between the copies of directories and of the store that are restored later."""


class Recorded(MemoryStore):
    """The store, with a record of what was written into it."""

    def __init__(self, seals: Seals, transcript: Transcript) -> None:
        super().__init__()
        self._seals, self._transcript = seals, transcript

    def swap(
        self, key: str, value: bytes | None, expected: int, lease: int | None, renews: int | None = None
    ) -> Swapped:
        swapped = super().swap(key, value, expected, lease, renews)
        if swapped.done and value is not None:
            if key == HEAD:
                record: Head | Report = self._seals.open(key, value, Head)
                self._transcript.heads.append(Written(trio.current_time(), swapped.at, record))
            elif key.startswith(MEMBERS):
                record = self._seals.open(key, value, Report)
                self._transcript.reports.append(Written(trio.current_time(), swapped.at, record))
        return swapped


@dataclass(frozen=True)
class Outcome:
    """What became of a world."""

    scenario: Fleets
    violations: list[Violation]
    transcript: Transcript

    @property
    def faults(self) -> Counter[str]:
        """What the scenario did to it."""
        return Counter(step.kind for step in self.scenario.steps)

    @property
    def figures(self) -> Counter[str]:
        """What there was."""
        of = self.transcript
        answers = Counter(answer.verdict.state for answer in of.answers)
        return Counter(
            {
                "members": self.scenario.members,
                "versions": len(of.published),
                "answers that open": answers["open"],
                "answers in all": answers.total(),
                "releases": len({ran.id for ran in of.ran}),
            }
        )

    @property
    def trace(self) -> str:
        """All that was seen of it."""
        return repr(self.transcript)

    def told(self) -> Sequence[str]:
        """What was done."""
        return self.transcript.log


class World:
    """All that is in it."""

    def __init__(self, scenario: Fleets, clock: Clock) -> None:
        self.scenario, self.clock = scenario, clock
        self.random = Random(f"world {scenario.seed}")
        self.transcript = Transcript()
        self.seals = Seals(FLEET, [KEY])
        self.server = Recorded(self.seals, self.transcript)
        self.people = People(self.server.client, self.seals, self.transcript, self._stream("people"))
        self.operator = self.server.client("operator")
        self.machines: dict[str, Machine] = {}
        """By place; a clone has the name of another member."""
        self.copies: dict[str, list[Directory]] = defaultdict(list)
        self.snapshots: list[Snapshot] = []
        self.token = 0
        """The object into which `on_release` writes its token before it acts."""

    def _stream(self, name: str) -> Random:
        return Random(f"{name} {self.scenario.seed}")

    async def live(self) -> list[Violation]:
        raw = self.seals.seal(HEAD, Head(FLEET, settings=Settings(self.scenario.history, GRACE)))
        await self.operator.swap(HEAD, raw, expected=0)
        publisher = Publisher(self.operator, self.seals, "operator")
        for name in SECRETS:
            await publisher.set_secret(name, f"{name}-content-0".encode())
        await self.people.publish_one(publisher, SECRETS)
        async with trio.open_nursery() as self.nursery:
            for number in range(self.scenario.members):
                self._join(f"web-{number + 1}", hold=number < self.scenario.holding)
            with trio.move_on_after(self.scenario.seconds):
                async with trio.open_nursery() as people:
                    for name in ("anna", "bert"):
                        people.start_soon(self.people.publish, name)
                        people.start_soon(self.people.ask, f"{name}-asks")
                    people.start_soon(self._keep_copies)
                    for step in self.scenario.steps:
                        await trio.sleep(max(0.0, step.at - trio.current_time()))
                        self.nursery.start_soon(self._do, step)
            violations = await self._heal()
            self.nursery.cancel_scope.cancel("the world is over")
        return violations

    def _join(self, name: str, place: str = "", *, hold: bool, releases: bool | None = None) -> Machine:
        random = self._stream(f"machine {place or name}")
        number = len(self.machines)
        machine = Machine(
            name,
            self.server,
            self.seals,
            self.transcript,
            random,
            hold=hold,
            releases=number < self.scenario.releasing if releases is None else releases,
            lease=LEASE,
            rate=random.choice((1.0, self.scenario.slow)),
            delay=random.uniform(0.0, self.scenario.delay),
            pace=self.scenario.pace,
            refuses=self.scenario.refuses,
        )
        self.machines[place or name] = machine
        self.nursery.start_soon(machine.keep_alive)
        return machine

    async def _keep_copies(self) -> None:
        while True:
            await trio.sleep(KEEPING)
            self.snapshots.append(self.server.snapshot())
            for machine in self.machines.values():
                self.copies[machine.id].append(machine.directory.copy())

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _do(self, step: Step) -> None:
        random = Random(step.draw)
        members = [machine for machine in self.machines.values() if not machine.gone]
        if not members:
            return
        machine = random.choice(members)
        if random.random() < 0.2:
            leading = [one for one in members if one.name == self._leader()]
            machine = leading[0] if leading else machine
        self.people.log(f"{step.kind} {machine.id}")
        await getattr(self, f"_{step.kind}")(machine, random)

    def _leader(self) -> str:
        return self.transcript.heads[-1].record.leader  # type: ignore[union-attr]

    async def _kill(self, machine: Machine, random: Random) -> None:
        machine.kill()

    async def _kill_soon(self, machine: Machine, random: Random) -> None:
        machine.kill_in = random.randint(1, 12)

    async def _stop(self, machine: Machine, random: Random) -> None:
        self._for_a_while(machine, random, stopped=True)

    async def _stop_both(self, machine: Machine, random: Random) -> None:
        self._for_a_while(machine, random, stopped=True, sidecar_stopped=True)

    async def _stop_sidecar(self, machine: Machine, random: Random) -> None:
        self._for_a_while(machine, random, sidecar_stopped=True)

    async def _cut(self, machine: Machine, random: Random) -> None:
        self._for_a_while(machine, random, cut=True)

    def _for_a_while(self, machine: Machine, random: Random, **faults: bool) -> None:
        seconds = random.choice((1.0, 5.0, 20.0, 60.0)) * random.uniform(0.5, 1.5)
        machine.set(**faults)

        async def end() -> None:
            await trio.sleep(seconds)
            machine.set(**dict.fromkeys(faults, False))

        self.nursery.start_soon(end)

    async def _slow_watch(self, machine: Machine, random: Random) -> None:
        if machine.link is not None:
            machine.link.set(watch_delay=random.choice((1.0, 10.0, 60.0)))

    async def _lose(self, machine: Machine, random: Random) -> None:
        if machine.link is not None:
            machine.link.lose(random.choice(("before", "after", "late")), random.choice((MEMBERS, "alive/", HEAD, "")))

    async def _compact(self, machine: Machine, random: Random) -> None:
        self.server.compact()

    async def _outage(self, machine: Machine, random: Random) -> None:
        self.server.stop()
        await trio.sleep(random.choice((1.0, 12.0, 40.0)))
        self.server.start()

    async def _another(self, machine: Machine, random: Random) -> None:
        self._join(f"web-{len(self.machines) + 1}", hold=random.random() < 0.5)

    async def _leave(self, machine: Machine, random: Random) -> None:
        self.nursery.start_soon(machine.leave)

    async def _forget(self, machine: Machine, random: Random) -> None:
        """A host goes for good, and a person forgets it, mostly after it has gone."""
        if random.random() < 0.3:
            await self.people.forget(self.operator, machine.name, force=True)
            return
        machine.gone = True
        machine.kill()
        if random.random() < 0.5:
            await trio.sleep(2 * LEASE)
            await self.people.forget(self.operator, machine.name)

    async def _wipe(self, machine: Machine, random: Random) -> None:
        self._replace(machine, Directory())

    async def _older(self, machine: Machine, random: Random) -> None:
        """Puts back a directory that is older than its own report, as the store can tell."""
        reports = [written.record for written in self.transcript.reports]
        writes = [each.write for each in reports if isinstance(each, Report) and each.name == machine.name]
        known = [copy for copy in self.copies[machine.id] if copy.memory is not None]
        copies = [copy for copy in known if writes and copy.memory.write < writes[-1]]  # type: ignore[union-attr]
        if copies:
            self._replace(machine, random.choice(copies).copy())
            if not machine.hold:
                self.transcript.older[machine.id] = trio.current_time()

    def _replace(self, machine: Machine, directory: Directory) -> None:
        machine.kill()
        machine.life += 1
        machine.directory = directory

    async def _clone(self, machine: Machine, random: Random) -> None:
        now = trio.current_time()
        self.transcript.doubtful.setdefault(machine.name, now)
        clone = self._join(machine.name, f"{machine.name} clone {now}", hold=machine.hold, releases=machine.releases)
        clone.directory, clone.life = machine.directory.copy(), machine.life + 100

        async def end() -> None:
            await trio.sleep(random.uniform(5.0, 60.0))
            clone.gone = True
            clone.kill()

        self.nursery.start_soon(end)

    async def _restore(self, machine: Machine, random: Random) -> None:
        if self.snapshots:
            self.transcript.restored.append(trio.current_time())
            self.server.restore(random.choice(self.snapshots))

    # -- healing -------------------------------------------------------------------------------------------------------

    async def _heal(self) -> list[Violation]:
        self.people.log("healing")
        self.server.start()
        for place, machine in self.machines.items():
            machine.kill_in, machine.refuses, machine.delay = None, 0.0, 0.01
            if "clone" in place:
                machine.gone = True
                machine.kill()
            machine.set(cut=False, stopped=False, sidecar_stopped=False)
            if machine.link is not None:
                machine.link.set(watch_delay=0.0)
        await trio.sleep(2 * LEASE)
        for machine in self.machines.values():
            copied = machine.name in self.transcript.doubtful
            if machine.troubles.keys() & ({"fleet_left", "store_restored"} if copied else {"fleet_left"}):
                machine.kill()
        with trio.move_on_after(HEALING_SECONDS):
            version = await self._last()
            if version is None:
                return [Violation("L5", "no version could be published")]
            if violations := await self._drained(version):
                return violations
            return await self._released()
        return [Violation("L5", f"the newest version had not drained {HEALING_SECONDS:g} s after the last fault")]

    async def _last(self) -> Version | None:
        """Returns a last version, with new secrets; accepts a restored store before."""
        publisher = Publisher(self.operator, self.seals, "operator")
        for turn in range(10):
            try:
                for name in SECRETS:
                    await publisher.set_secret(name, f"{name}-last-{turn}".encode())
                version = await self.people.publish_one(publisher, SECRETS)
                if not self.transcript.restored or await self._accept():
                    return version if not self.transcript.restored else (await publisher.head())[0].newest
            except ShipperError as error:
                self.people.log(f"operator: {error}")
        return None

    async def _accept(self) -> bool:
        return await self.people.order(
            lambda: operations.accept_restore(self.operator, self.seals, "operator", force=True, wall=trio.current_time)
        )

    async def _drained(self, version: Version) -> list[Violation]:
        for _ in range(20):
            verdict = await self.people.answer(self.operator, version, "drained", 30.0)
            if verdict.state == "open":
                break
            for standing in verdict.members:
                await self._mend(standing.name, standing.kind)
        else:
            members = [(one.name, one.kind, one.why) for one in verdict.members]
            return [Violation("L5", f"{version} is {verdict.state}: {members}, {verdict.warnings}")]
        here = {one.name for one in self.machines.values() if not one.gone}
        behind = [one for one in self.machines.values() if not one.gone and not self._runs(one, version)]
        listed = {standing.name for standing in verdict.members}
        return [
            Violation("L5", f"{one.id} does not run {version}, {one.membership and one.membership.status()}")
            for one in behind
            if one.name in here - listed
        ]

    def _runs(self, machine: Machine, version: Version) -> bool:
        stage = machine.directory.stages.get("drained")
        return stage is not None and stage[0] == version

    async def _mend(self, name: str, kind: str) -> None:
        """Does what the answer asks a person to do."""
        here = {machine.name for machine in self.machines.values() if not machine.gone}
        if kind in ("absent", "joining") and ("/" in name or name not in here):
            await self.people.forget(self.operator, name)

    async def _released(self) -> list[Violation]:
        """L5: `on_release` has run for each secret that nobody needs."""
        if not any(machine.releases and not machine.gone for machine in self.machines.values()):
            return []
        waiting: list[str] = []
        with trio.move_on_after(RELEASING_SECONDS):
            async with observing(self.operator, self.seals) as observer:
                while waiting := self._waiting():
                    await trio.sleep(2 * LEASE)
                    found = retired(await observer.fresh(), trio.current_time())
                    remedies = {one.member: one.remedy(each.id) for each in found for one in each.obstacles}
                    for name, remedy in remedies.items():
                        if "forget" in remedy:
                            await self._mend(name, "absent")
            return []
        obstacles = [(one.id, one.obstacles) for one in found]
        return [Violation("L5", f"on_release has not run for {waiting}: {obstacles}")]

    def _waiting(self) -> list[str]:
        entry = self.server.read(HEAD).entry
        head = self.seals.open(HEAD, entry.value, Head) if entry else Head(FLEET)
        return retired_ids(head) + [id for id, one in head.released.items() if one.state == "begun"]


# -- one world ---------------------------------------------------------------------------------------------------------


def run(scenario: Fleets) -> Outcome:
    """Runs a world and judges it; deterministic."""

    def exhausted() -> None:
        raise RuntimeError(f"seed {scenario.seed} takes more than {MOST_TURNS} turns")

    clock = Clock(MOST_TURNS, exhausted)
    world = World(scenario, clock)
    with scheduled(scenario.seed), _machine(world), clock.at_work():
        violations = trio.run(world.live, clock=clock)
    violations += judge(world.transcript)
    return Outcome(scenario, violations, world.transcript)


@contextmanager
def _machine(world: World) -> Iterator[None]:
    """What the product takes from the machine by itself: time, randomness, and the command of `on_release`."""
    random = world._stream("product")
    random_module.seed(world.scenario.seed)

    class Command:
        """`on_release`: writes its token into an object, and acts if no higher one is there."""

        def __init__(self, config: object, environment: Any, *_: object, **__: object) -> None:
            self._environment = environment

        async def revoke(self, kept: Kept) -> bool:
            variables: Mapping[str, str] = self._environment()
            token = int(variables["SHIPPER_FENCING_TOKEN"])
            world.transcript.ran.append(Ran(trio.current_time(), variables["HOST"], kept.id, token))
            await trio.sleep(random.uniform(0.0, 3.0))
            if token < world.token:
                await trio.sleep_forever()
            world.token = token
            await trio.sleep(random.uniform(0.0, 3.0))
            return True

    with ExitStack() as stack:
        for name, value in {
            "time.time": world.clock.current_time,
            "secrets.token_bytes": random.randbytes,
            "secrets.token_hex": lambda count: random.randbytes(count).hex(),
            "shipper.fleet.releasing.Revoker": Command,
        }.items():
            stack.enter_context(mock.patch(name, value))
        yield


WORLDS = Kind("python -m tests.simulation.fleets", Fleets.draw, run, slice=5)
