"""Members in a cluster whose objects never rest: an hour of changes in some minutes; at the end judges look at all.

    python -m tests.campaign_kubernetes --members 5 --edits 5000 --rotations 200 --restarts 3 --seed 7

Members are real processes of `shipper supervise --kubernetes`, each with a proxy of its own before the real API server,
and with logs that grow. A third party edits policies: in bursts, in the instant between a write of a status and its
echo, with such as nobody can run, with such as name a key that comes later, for other members, and one that conflicts
with an older one; it deletes policies and makes others of the same name. It rotates Secrets, alone and together with
the policies that use them, and the destination forgets a content in the instant in which its release can be read.
Meanwhile members are killed and stopped, watches are delayed, silent, cut and expired, answers are lost, and the API
server and etcd are killed. Then all is well. Judged are

- what objects have said, by the API server's audit log and by etcd's history (`judges`);
- the use of secrets, by what sidecars have heard and said and by the destination's log (`judges_keys`);
- that in the end all policies are drained, all rotations released, and every line is at the destination once;
- that no object, no log and no state shows a secret.

The seed says what is done and in which order. What meets what is up to the machine: a failure may need several runs.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from tests import canary
from tests.backends.kubernetes import Kubernetes
from tests.campaign_kubernetes import audit
from tests.campaign_kubernetes.harm import Harm, _member
from tests.campaign_kubernetes.judges import faults_of_objects
from tests.campaign_kubernetes.judges_keys import faults_of_keys
from tests.campaign_kubernetes.records import Policy, name_of
from tests.campaign_kubernetes.seen import Request, Seen
from tests.campaign_kubernetes.stage import Stage, canaries, open_stage
from tests.campaign_kubernetes.third_party import Deed, ThirdParty
from tests.canary import EVENT

STEP = 0.1
"""Seconds between two lines of a log."""
MOST_AHEAD = 1000
"""Lines of a log that are not at the destination yet; more are not written."""
SETTLES = 60.0
"""Seconds without any change after which the end is not waited for any more."""
AT_REST = 5.0
"""Seconds for which nobody writes a status in the end."""
HARM = 0.3
"""Harms in a second, on average."""
ROUND = 500
"""Edits between two instants of rest."""


class Failed(Exception):
    """Something is not as it must be."""


class Campaign:
    """Made by `open_campaign`."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self.seen = Seen()
        self.wrong: list[str] = []
        chance = Random(seed)
        self._chance = chance
        self.party = ThirdParty(stage, chance, self.done)
        self.harm = Harm(stage, chance, self.done)
        self._is_busy = True
        self._ordered: set[tuple[str, str]] = set()
        self._ends = math.inf

    @property
    def figures(self) -> Counter[str]:
        """What there was."""
        revoked, versions = len(self.stage.revoked), len(self.stage.history.states)
        return Counter({"contents revoked": revoked, "versions of objects": versions})

    def summary(self) -> str:
        """How far it is, in one line."""
        lines = sum(one.written.total() for one in self.stage.members)
        kinds = Counter(kind for kind, _ in [*self.stage.history.newest])
        return (
            f"{self.done['edits']} edits, {self.done['rotations']} rotations, {len(self.stage.revoked)} revoked, "
            f"{self.stage.destination.total} of {lines} lines, {len(self.stage.history.states)} versions, {dict(kinds)}"
        )

    async def run(self, edits: int, rotations: int, restarts: int, limit: float = math.inf) -> None:
        """Does all that, waits until all is well, and judges; raises Failed. Nothing new is begun after `limit` s."""
        began = time.monotonic()
        self._ends = began + limit
        try:
            async with trio.open_nursery() as nursery:
                await self._begin(nursery)
                await self._play(edits, rotations, restarts)
                nursery.cancel_scope.cancel("the campaign is over")
        except* Failed as group:
            self.wrong += [str(one) for one in group.exceptions]
        self.done["seconds"] = round(time.monotonic() - began)
        await self._judge()

    async def _begin(self, nursery: trio.Nursery) -> None:
        await self.party.begin()
        for member in self.stage.members:
            member.start()
        nursery.start_soon(self._write)
        nursery.start_soon(self._watch_members)
        await self._rest("all members drain the first generation")

    async def _play(self, edits: int, rotations: int, restarts: int) -> None:
        rounds = max(1, restarts, edits // ROUND)
        restarting = {one * rounds // restarts for one in range(restarts)}
        for number in range(rounds):
            if time.monotonic() > self._ends:
                break
            share = edits * (number + 1) // rounds - self.done["edits"]
            turns = rotations * (number + 1) // rounds - self.done["rotations"]
            await self._round(share, turns, restart=number in restarting)
        await self._end()

    # -- the rounds ----------------------------------------------------------------------------------------------------

    async def _round(self, edits: int, rotations: int, *, restart: bool) -> None:
        self.party.edits_left, self.party.rotations_left = edits, rotations
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until, self._edits_left, self.party.deeds, 4.0)
            nursery.start_soon(self._until, self._edits_left, self.party.deeds, 4.0)
            nursery.start_soon(self._until, self._edits_left, self.party.bursts, 0.7)
            nursery.start_soon(self._until, self._rotations_left, self.party.rotating, 4.0)
            if restart:
                nursery.start_soon(self.harm.restart_server)
                nursery.start_soon(self.harm.restart_etcd)
            nursery.start_soon(self._do_harm)
        await self.party.mend()
        await self._rest("all policies are drained after a round")

    def _edits_left(self) -> bool:
        return self.party.edits_left > 0 and time.monotonic() < self._ends

    def _rotations_left(self) -> bool:
        return self.party.rotations_left > 0 and time.monotonic() < self._ends

    async def _until(self, left: Callable[[], bool], deeds: Sequence[tuple[int, Deed]], rate: float) -> None:
        while left():
            await self._any(deeds)()
            await trio.sleep(self._chance.expovariate(rate))

    async def _do_harm(self) -> None:
        async with trio.open_nursery() as nursery:
            while self._edits_left() or self._rotations_left():
                nursery.start_soon(self._any(self.harm.kinds))
                await trio.sleep(self._chance.expovariate(HARM))

    def _any(self, deeds: Sequence[tuple[int, Deed]]) -> Deed:
        (deed,) = self._chance.choices([one for _, one in deeds], [weight for weight, _ in deeds])
        return deed

    async def _write(self) -> None:
        """Has the logs of all members grow."""
        while True:
            for member in self.stage.members if self._is_busy else ():
                for policy in self.party.drafts:
                    if member.written[policy] - self.stage.arrived(policy, member.name) < MOST_AHEAD:
                        member.write_lines(policy, self._chance.randrange(1, 3))
            await trio.sleep(STEP)

    async def _watch_members(self) -> None:
        """No supervisor ends by itself."""
        while True:
            for member in self.stage.members:
                if not member.lock.locked() and member.process is not None and member.process.poll() is not None:
                    raise Failed(f"{member.name} has ended by itself with {member.process.poll()}")
            await trio.sleep(0.5)

    # -- rest and end --------------------------------------------------------------------------------------------------

    async def _rest(self, what: str) -> None:
        await self._progress(self._not_drained, what)

    def _not_drained(self) -> list[str]:
        """What is not drained at its last generation, and why."""
        found = []
        for name in self.party.drafts:
            policy = self.stage.history.newest.get(("ShipperPolicy", name))
            if not isinstance(policy, Policy) or policy.drained() != policy.generation:
                found.append(f"{name} {policy}")
        return found

    async def _end(self) -> None:
        """All is drained, released and delivered, and then nobody writes any more."""
        self._is_busy = False
        await self._progress(self._not_released, "all rotations are released")
        await self._progress(self._not_delivered, "all lines are delivered")
        await self._progress(self._not_drained, "all policies are drained")
        await self._progress(self._still_written, "nobody writes a status any more")

    def _still_written(self) -> list[str]:
        """The last write, if it was a short while ago: members tell late that nothing is undelivered."""
        last = self.stage.history.states[-1]
        return [f"written at rest: {last}"] if time.monotonic() - last.at < AT_REST else []

    def _not_released(self) -> list[str]:
        """The contents that were replaced, and are neither revoked nor could come back."""
        newest = {name_of(text) for text in self.party.last.values()}
        made = {name_of(text) for texts in self.stage.written.values() for text in texts}
        used = {name for name in made if ".late_" not in name}
        left = used - newest - self.stage.kept - self.stage.revoked.keys()
        said = [str(one) for (kind, _), one in self.stage.history.newest.items() if kind == "ShipperSecret"]
        return [*sorted(left), *said] if left else []

    def _not_delivered(self) -> list[str]:
        return [
            f"{policy}-{member.name}: {self.stage.arrived(policy, member.name)} of {member.written[policy]}"
            for member in self.stage.members
            for policy in self._shipped(member.labels["parity"])
            if self.stage.arrived(policy, member.name) < member.written[policy]
        ]

    def _shipped(self, parity: str) -> tuple[str, str]:
        return "base", parity

    async def _progress(self, left: Callable[[], list[str]], what: str) -> None:
        """Waits until nothing is left, as long as what is left changes."""
        shown: list[str] = []
        since = trio.current_time()
        while found := left():
            if found != shown:
                shown, since = found, trio.current_time()
            if trio.current_time() - since > SETTLES:
                told = "\n".join(found)
                raise Failed(f"waited for {what}; for {SETTLES:g} s nothing has changed:\n{told}")
            await self._rebind()
            await self.stage.until(lambda shown=shown: left() != shown, 1.0)

    async def _rebind(self) -> None:
        """As an operator does for a member that was fenced: its events go with the content that is current now."""
        for member in self.stage.members:
            for lost, to in dict(member.transcript.again().lacks).items() if member.holds else ():
                if member.transcript.name_of(lost) not in self.stage.revoked or (member.name, lost) in self._ordered:
                    continue
                self._ordered.add((member.name, lost))
                self.done["orders to rebind"] += 1
                order = ["order", "rebind", "--from", lost, "--to", to, "--state", str(member.state)]
                command = [sys.executable, "-m", "shipper", *order]
                done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
                if done.returncode:
                    self.done["orders that were refused"] += 1
                    self._ordered.discard((member.name, lost))

    # -- the judges ----------------------------------------------------------------------------------------------------

    async def _judge(self) -> None:
        self.seen = await trio.to_thread.run_sync(self._look)
        found = [*self.wrong, *self.party.wrong, *faults_of_objects(self.seen), *faults_of_keys(self.seen)]
        found += await trio.to_thread.run_sync(self._wrong_lines)
        found += await trio.to_thread.run_sync(self._shown)
        found += [f"{member.name} shows a traceback" for member in self.stage.members if member.shows(b"Traceback (")]
        if self.stage.history.gaps:
            found.append(f"etcd had compacted what was not read, {self.stage.history.gaps} times")
        if found:
            kinds = Counter(" ".join(word for word in one.split() if word.isalpha())[:60] for one in found)
            told = [f"{count} x {kind}" for kind, count in kinds.most_common(12)]
            raise Failed("\n".join([f"{len(found)} faults", *found[:25], *told, self.picture()]))

    def _look(self) -> Seen:
        stage = self.stage
        shutil.copy(stage.kubernetes.directory / "audit.log", stage.directory / "audit.log")
        told = [f"{state.at:.3f} {state.version} {state.record}\n" for state in stage.history.states]
        (stage.directory / "history").write_text("".join(told))
        (stage.directory / "harm").write_text("\n".join(self.harm.story))
        uses = [
            Request(one.arrived, _member(one.path), stage.names.get(one.key, ""), one.status or 0)
            for one in stage.destination.log
        ]
        return Seen(
            sorted(stage.history.states, key=lambda state: state.version),
            [*audit.read(stage.kubernetes.directory / "audit.log", stage.namespace)],
            {member.name: member.user for member in stage.members},
            {member.name: member.transcript.again() for member in stage.members},
            uses,
            dict(stage.revoked),
            time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(),
        )

    def _wrong_lines(self) -> list[str]:
        found = []
        for member in self.stage.members:
            for policy in self.party.drafts:
                sources = self.stage.destination.documents.get(f"{policy}-{member.name}", {}).values()
                counts = Counter(json.loads(source)["message"] for source in sources)
                lost = [n for n in range(member.written[policy]) if not counts[f"{EVENT} {member.name} {policy} {n}"]]
                twice = sum(count > 1 for count in counts.values())
                must = policy in self._shipped(member.labels["parity"])
                if (lost and must) or twice:
                    found.append(f"{member.name} {policy}: {len(lost)} lines lost {lost[:5]}, {twice} more than once")
        return found

    def _shown(self) -> list[str]:
        """Where a secret or a line can be read."""
        kubernetes, found = self.stage.kubernetes, [f"{key!r} in etcd" for key in self.stage.history.shown]
        for member in self.stage.members:
            found += [*canary.left_in(member.out, canaries())]
        secrets = [one for one in canaries() if EVENT.encode() not in (one, one[::-1])]
        found += [*canary.left_in(kubernetes.directory / "audit.log", canaries())]
        for member in self.stage.members:
            found += [*canary.left_in(member.state, {one for one in secrets if b"key" in one or b"yek" in one})]
        return [f"a canary is shown: {one}" for one in found]

    def picture(self) -> str:
        """What everyone is doing."""
        lines = [self.summary(), *(str(one) for one in self.stage.history.newest.values())]
        return "\n".join([*lines, *(member.picture() for member in self.stage.members)])


@asynccontextmanager
async def open_campaign(directory: Path, kubernetes: Kubernetes, seed: int, members: int) -> AsyncIterator[Campaign]:
    """A campaign in this directory; nothing runs before `Campaign.run`."""
    async with open_stage(directory, kubernetes, members, seed) as stage:
        yield Campaign(stage, seed)
