"""Real hosts of a fleet under random faults, on an etcd of three nodes; at the end a judge looks at everything.

    python -m tests.campaign_fleet --hosts 8 --harm 300 --seed 7

Two publishers publish, set secrets and roll back, in bursts. A backend revokes each key in the instant in which
`on_release` begins for it, or in which somebody has the answer that all have drained. Meanwhile supervisors, sidecars,
whole hosts, publishers and nodes of etcd are killed, stopped and started again, hosts are cut off from the store, and
the backend is slow for some. Every third host has `on_lapse: hold`. Then everything is well. What must be true:

- a number is of one version, and what a publisher was answered is in the history;
- when an answer opens, every member's sidecar has said so before, by its own transcript, or the answer lists why not;
- an answer that stays closed lists why; in the end all answers open, and all keys but the newest are revoked;
- what is revoked is not used, and not given to a sidecar, but by members that the release named;
- hosts under `continue` ship all the time, whatever happens to the store;
- every line is at the backend once.

The seed says what is done and in which order. What meets what is up to the machine: a failure may need several runs.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import trio

from shipper.fleet.judge import Verdict
from shipper.fleet.observer import observing, wait
from shipper.fleet.opening import Opened, opened
from shipper.fleet.publisher import OutcomeUnknown, Publisher
from shipper.fleet.publishing import Refused
from shipper.fleet.records import HEAD, Head, Line, Version
from shipper.fleet.standings import OPENING
from shipper.fleet.store import StoreError
from shipper.supervise import questions
from shipper.supervise.answers import Stage
from shipper.testing import Reply
from shipper.testing.destination import digest
from tests.backends.etcd import Etcd
from tests.campaign_fleet.member import Member
from tests.campaign_fleet.oracle import Answer, Published, Revoked, Seen, Use, faults
from tests.campaign_fleet.transcript import What, mark, marked
from tests.campaign_relay.link import Link
from tests.canary import EVENT
from tests.story.fleet import GRACE, Fleet, ask, content, key, open_fleet

LEASE = 3.0
STEP = 0.1
"""Seconds between two lines of a host."""
MOST_AHEAD = 2000
"""Lines of a host that are not at the backend yet; more are not written."""
SETTLED = 90.0
"""Seconds without any progress after which the end is not waited for any more."""
STALL = 30.0
"""Seconds for which nothing of a host arrives although nothing keeps its events."""
SLOW = Reply(delay=1.5)
SLOW_DRAIN = 2.0
"""Seconds for which events gather at a slow backend before a key is replaced; the answer comes later than that."""
ANSWERS = 5
"""Questions at a time."""
NEVER_ANSWERED = 90.0
"""Seconds after its own time for which a question goes on."""

Fault = Callable[[], Awaitable[None]]


class Failed(Exception):
    """Something is not as it must be."""


class Campaign:
    """Made by `opened_campaign`."""

    def __init__(self, fleet: Fleet, publishers: Sequence[Publisher], eyes: Opened, hosts: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self.seen = Seen()
        self.members: list[Member] = []
        self._fleet, self._publishers, self._eyes, self._hosts = fleet, publishers, eyes, hosts
        self._random = Random(seed)
        self._head = Head("")
        self._texts: dict[Version, What | None] = {}
        self._keys: dict[str, str] = {}
        """The names of keys by the ids of secrets."""
        self._names: list[str] = []
        self._spare: set[str] = set()
        """Keys that are revoked by `on_release` alone, and may be set again before."""
        self._have_continued: set[str] = set()
        """Members of `on_lapse: continue`. The others send nothing when they are cut off, so they are no exceptions."""
        self._excepted: dict[str, list[str]] = {}
        """By id, the members in spite of which it was released."""
        self._marks = self._asking = self._token = 0
        self._slow: Mapping[str, Reply] = {}
        self._wrong: list[str] = []
        """What was seen to be wrong meanwhile."""
        self._boot = time.time() - time.monotonic()
        self._of_etcd = trio.Lock()
        fleet.destination.script = self._answer

    @property
    def figures(self) -> Counter[str]:
        """What there was."""
        answers = Counter(answer.verdict.state for answer in self.seen.answers)
        figures = {"versions": len(self.seen.history), "keys revoked": len(self.seen.revoked)}
        return Counter(figures | {"answers": answers.total(), "answers that open": answers["open"]})

    def summary(self) -> str:
        """How far it is, in one line."""
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))
        states = dict(Counter(answer.verdict.state for answer in self.seen.answers))
        written = sum(one.lines for one in self.members)
        return (
            f"{len(self.seen.history)} versions, {len(self.seen.revoked)} keys revoked, answers {states}, "
            f"{self._fleet.destination.total} of {written} lines; {done}"
        )

    # -- the run -------------------------------------------------------------------------------------------------------

    async def run(self, seconds: float, versions: int = 0) -> None:
        """Does harm for so long, and until there are so many versions, then sees that all is well; raises Failed."""
        async with trio.open_nursery() as nursery:
            for n in range(self._hosts):
                await self._add(n, nursery)
            nursery.start_soon(self._watch_head)
            nursery.start_soon(self._revoke)
            await self._rotate(self._publishers[0])
            first = await self._publish(self._publishers[0])
            if self._random.random() < 0.5:
                await self._publishers[0].configure(release_grace=1.0)
            for member in self.members[:-1]:
                self._begin(member)
            await self._all_reach(first, self.members[:-1])
            nursery.start_soon(self._write)
            nursery.start_soon(self._watch_arrivals)
            await self._harm(seconds, versions)
            began = trio.current_time()
            try:
                await self._settle()
            except Failed as failure:  # a fault before may be the reason
                raise Failed("\n".join([*self._found()[:20], str(failure)])) from None
            self.done["seconds until all was well"] = round(trio.current_time() - began)
            nursery.cancel_scope.cancel("the campaign is over")
        self._judge()

    async def _add(self, n: int, nursery: trio.Nursery) -> None:
        name = f"web-{n + 1}"
        links = [Link(Random(self._random.random()), node.port) for node in self._fleet.etcd.nodes]
        for link in links:
            await nursery.start(link.serve)
        section = self._fleet.section(name) | {"lease": f"{LEASE:g}s"}
        if n % 2 == 0:
            what = f"{name} $SHIPPER_FENCING_TOKEN $SHIPPER_CREDENTIAL_NAME $SHIPPER_CREDENTIAL_ID"
            section["on_release"] = {"command": ["sh", "-c", f"echo {what} >> {self._fleet.begun}; sleep 0.2"]}
        if n % 3 == 2:
            section |= {"on_lapse": "hold", "rebind_revoked": True}
        member = Member(self._fleet.directory / name, name, section, links)
        member.variables |= {"EVEN": "yes"} if n % 2 == 0 else {}
        self.members.append(member)
        self._have_continued |= set() if member.holds else {name}
        self.seen.transcripts[name] = member.transcript

    def _begin(self, member: Member) -> None:
        member.begin()
        member.is_busy, member.unwell = True, time.monotonic()
        self._fleet.hosts[member.name] = member

    async def _harm(self, seconds: float, versions: int) -> None:
        """Storms, and calm in between, in which answers open and keys are released."""
        storm = self._calm + self._storm
        async with trio.open_nursery() as nursery:
            end = trio.current_time() + seconds
            while trio.current_time() < end or len(self.seen.history) < versions:
                for kinds, rate in ((storm, 1.5), (self._calm, 0.7)):
                    until = trio.current_time() + self._random.uniform(3, 12)
                    until = min(end, until) if trio.current_time() < end else until
                    while trio.current_time() < until:
                        (fault,) = self._random.choices([one for _, one in kinds], [weight for weight, _ in kinds])
                        nursery.start_soon(fault)
                        await trio.sleep(self._random.expovariate(rate))

    @property
    def _calm(self) -> list[tuple[int, Fault]]:
        """What is done all the time, with weights."""
        publishing: list[tuple[int, Fault]] = [(6, self._burst), (2, self._kill_publisher)]
        return [*publishing, (8, self._ask), (1, self._ask_in_a_shell), (2, self._drain_slowly)]

    @property
    def _storm(self) -> list[tuple[int, Fault]]:
        return [
            (3, self._kill_host),
            (2, self._kill_supervisor),
            (2, self._kill_sidecar),
            (2, self._stop_host),
            (2, self._stop_supervisor),
            (1, self._stop_sidecar),
            (3, self._harm_leader),
            (1, self._restart),
            (1, self._leave),
            (1, self._change_lapse),
            (1, self._forget),
            (3, self._cut_off),
            (2, self._slow_backend),
            (3, self._harm_node),
            (1, self._lose_etcd),
            (1, self._join),
        ]

    # -- what the world does -------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            for member in self.members:
                if member.is_busy and member.lines - self._arrived(member) < MOST_AHEAD:
                    member.write(self._random.randrange(1, 4))
            await trio.sleep(STEP)

    def _answer(self, request: Any, documents: Any) -> Reply | None:
        return self._slow.get(_member(request.path))

    def _arrived(self, member: Member) -> int:
        return len(self._fleet.destination.documents.get(f"logs-{member.name}", ()))

    async def _watch_arrivals(self) -> None:
        """Notes hosts under `continue` of which nothing arrives although nothing keeps their events."""
        looked = time.monotonic()
        while True:
            await trio.sleep(0.2)
            late, looked = time.monotonic() - looked - 0.2, time.monotonic()
            for member in self.members:
                arrived = self._arrived(member)
                came = arrived != member.arrived
                if came or arrived >= member.lines:
                    member.arrived, member.shipped = arrived, looked
                member.shipped += late
                if came and member.shipped > member.unwell:
                    member.needs_store = False  # not as long as it has nothing to ship
                if member.holds or member.needs_store or not member.is_busy or member.transcript.again().needs_lease():
                    continue
                if looked - max(member.shipped, member.unwell) > STALL:
                    self._wrong.append(f"nothing of {member.name} arrives for {STALL:g} s\n{member.picture()}")
                    member.shipped = looked

    async def _revoke(self) -> None:
        """Revokes each key as soon as an `on_release` begins for it, unless its token is an old one; for ever."""
        read = 0
        while True:
            lines = self._fleet.begun.read_text().splitlines() if self._fleet.begun.exists() else []
            for line in lines[read:]:
                host, token, name, id = line.split()
                self._keys[id] = name
                if int(token) < self._token:
                    self.done["commands with an old token"] += 1
                else:
                    self._token = int(token)
                    self._revoke_key(name, id, f"on_release at {host} with token {token}")
            read = len(lines)
            await trio.sleep(0.005)

    def _revoke_key(self, name: str, id: str, why: str) -> None:
        assert self._fleet.destination.keys is not None
        if name not in self.seen.revoked:
            self._fleet.destination.keys.discard(key(name))
            excepted = self._excepted.setdefault(id, [])
            self.seen.revoked[name] = Revoked(time.monotonic(), why, id, excepted)

    async def _watch_head(self) -> None:
        """Follows the head; for ever."""
        while True:
            try:
                found = await self._eyes.store.read(HEAD)
                if found.entry is not None:
                    await self._take(found.entry.value)
                async with self._eyes.store.watch(HEAD, found.at) as batches:
                    async for changes in batches:
                        for change in changes:
                            assert change.entry is not None, "the head was removed"
                            await self._take(change.entry.value)
            except StoreError:
                await trio.sleep(0.1)

    async def _take(self, raw: bytes) -> None:
        before, head = self._head, self._eyes.seals.open(HEAD, raw, Head)
        if head.number < before.number or head.token < before.token:
            self._wrong.append(
                f"the head went back: from {before.number}, {before.token} to {head.number}, {head.token}"
            )
        self._head = head
        for id, release in head.released.items():
            excepted = self._excepted.setdefault(id, [])
            excepted += [name for name in release.despite if name not in excepted and name in self._have_continued]
        for line in head.history:
            if line.version not in self._texts:
                self._texts[line.version] = what = await self._what(line)
                self.seen.history.append(Published(line.version, line.at - self._boot, what))

    async def _what(self, line: Line) -> What | None:
        publisher = Publisher(self._eyes.store, self._eyes.seals, "eyes")
        try:
            text = await publisher.text(line.version)
        except (StoreError, Refused):
            return None
        return What(marked(text.policy), frozenset(line.secrets.values()))

    # -- publishers ----------------------------------------------------------------------------------------------------

    def _policy(self, tag: str = "") -> str:
        """A policy with a mark of its own; some change how it is sent, so that what is queued must be delivered."""
        self._marks += 1
        output = {"type": "elasticsearch", "hosts": [self._fleet.destination.url], "credential": {"fleet": "es"}}
        output |= {"index": "logs-${MEMBER}", "backoff": {"first": "50ms", "longest": "500ms"}}
        output |= {"timeout": f"{2000 + self._random.randrange(3)}ms"}
        fields = {"labels.mark": mark(str(self._marks)) + tag}
        parts = {"inputs": {"app": {"type": "file", "paths": ["${LOG}"]}}, "outputs": {"main": output}}
        return json.dumps({"version": 1, "processors": [{"type": "add_fields", "fields": fields}]} | parts)

    async def _promised(self, publish: Callable[[], Awaitable[Version | None]]) -> Version | None:
        """What a publisher is answered; None if it is refused, or never knows."""
        try:
            version = await publish()
        except Refused:
            self.done["refusals"] += 1
            return None
        except OutcomeUnknown:
            self.done["unknown outcomes"] += 1
            return None
        except StoreError:
            self.done["publishers without a store"] += 1
            return None
        if version is not None:
            self.seen.promised.append(version)
        return version

    async def _publish(self, publisher: Publisher) -> Version | None:
        policy = self._policy()
        return await self._promised(lambda: publisher.publish(policy))

    async def _publish_bad(self, publisher: Publisher) -> Version | None:
        """Publishes what every other host refuses, for it lacks a variable."""
        self.done["bad versions"] += 1
        policy = self._policy("${EVEN}")
        return await self._promised(lambda: publisher.publish(policy))

    async def _roll_back(self, publisher: Publisher) -> Version | None:
        history = self._head.history
        number = self._random.choice(history).version.number if history else 1
        return await self._promised(lambda: publisher.rollback(number))

    async def _rotate(self, publisher: Publisher) -> Version | None:
        """Sets the secret to a new key, again until that is answered; or to an earlier one that is not yet released."""
        if self._spare and self._random.random() < 0.2:
            name = self._random.choice(sorted(self._spare))
            self.done["keys set again"] += 1
        else:
            name = f"k{self.done['keys']}"
            self.done["keys"] += 1
            if self._random.random() < 0.4:
                self._spare.add(name)
            assert self._fleet.destination.keys is not None
            self._fleet.destination.keys.add(key(name))
            self._names.append(name)
            if len(self._names) == 1:
                self._fleet._names.add(name)  # to look for all of them in all files would take minutes

        async def set_secret() -> Version | None:
            id, version = await publisher.set_secret("es", content(name))
            self._keys[id] = name
            return version

        return await self._promised(set_secret)

    async def _burst(self) -> None:
        """Both publishers publish at the same time."""
        self.done["bursts"] += 1
        async with trio.open_nursery() as nursery:
            for publisher in self._publishers:
                steps = self._random.choices(
                    [self._publish, self._rotate, self._roll_back, self._publish_bad],
                    [6, 4, 2, 1],
                    k=self._random.randrange(1, 4),
                )
                nursery.start_soon(self._one_after_the_other, publisher, steps)

    async def _one_after_the_other(
        self, publisher: Publisher, steps: Sequence[Callable[[Publisher], Awaitable[object]]]
    ) -> None:
        for step in steps:
            await step(publisher)

    async def _kill_publisher(self) -> None:
        """A publisher that ends anywhere in its work."""
        self.done["publishers killed"] += 1
        step = self._random.choice([self._publish, self._rotate, self._roll_back])
        with trio.move_on_after(self._random.expovariate(50)):
            await step(self._publishers[0])

    # -- questions -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Waits for the newest version, or for another one, in one of the two ways."""
        if self._asking >= ANSWERS or not self._head.history:
            return
        history = self._head.history
        line = history[-1] if self._random.random() < 0.7 else self._random.choice(history)
        stage: Stage = self._random.choice(("active", "drained", "drained", "drained"))
        member = self._random.choice(self.members)
        seconds = self._random.uniform(0, 25)
        self._asking += 1
        try:
            if self._random.random() < 0.5:
                await self._ask_store(line.version, stage, seconds)
            else:
                await self._ask_member(member, line.version, stage, seconds)
        finally:
            self._asking -= 1

    async def _ask_store(self, version: Version, stage: Stage, seconds: float) -> Verdict | None:
        with trio.move_on_after(seconds + NEVER_ANSWERED):
            try:
                async with observing(self._eyes.store, self._eyes.seals) as observer:
                    verdict = await wait(observer, version, stage, seconds, GRACE)
            except StoreError:
                self.done["answers without a store"] += 1
                return None
            return self._heard(verdict, "an observer")
        raise Failed(f"a question about {version} for {seconds:.1f} s is not answered\n{self.picture()}")

    async def _ask_member(self, member: Member, version: Version, stage: Stage, seconds: float) -> None:
        try:
            report = await self._fleet.report(member.name)
            if report is None or not report.http:
                return
            path = f"/fleet/versions/{version}?stage={stage}&wait={int(seconds)}s"
            status, said = await ask(report.http, path)
        except (StoreError, OSError, ValueError):
            self.done["questions without an answer"] += 1
            return
        if status == 503:
            assert said["code"], said
            self.done[f"answers {said['code']}"] += 1
        else:
            self._heard(msgspec.convert(said, Verdict), member.name)

    async def _ask_in_a_shell(self) -> None:
        """`shipper fleet wait`."""
        if self._asking >= ANSWERS or not self._head.history:
            return
        self._asking += 1
        try:
            said = await self._command("wait", str(self._head.history[-1].version), "--timeout", "10s", "--json")
        finally:
            self._asking -= 1
        if said.returncode in (0, 3, 4, 5):
            self._heard(msgspec.json.decode(said.stdout, type=Verdict), "a shell")
        elif said.returncode != 69:
            self._wrong.append(f"shipper fleet wait ended with {said.returncode}: {said.stderr.decode()}")

    async def _command(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        section = {"name": self._fleet.settings.name, "etcd": self._fleet.etcd.urls}
        section |= {"keys": [{"file": str(self._fleet.directory / "fleet.key")}]}
        config = self._fleet.directory / "publisher.yaml"
        config.write_text(json.dumps({"fleet": section}))
        return await _shipper("fleet", "--config", str(config), *arguments)

    def _heard(self, verdict: Verdict, asked: str) -> Verdict:
        answer = Answer(time.monotonic(), verdict, asked)
        self.seen.answers.append(answer)
        is_drained = verdict.state == "open" and verdict.stage == "drained" and verdict.triple is not None
        if is_drained and not any(one.kind in OPENING for one in verdict.members):
            assert verdict.triple is not None
            self._revoke_older(verdict.triple)
        return verdict

    def _revoke_older(self, version: Version) -> None:
        """Revokes the keys of older versions: every member has drained them."""
        older = [line for line in self._head.history if line.version[:2] < version[:2]]
        newer = {id for line in self._head.history if line.version[:2] >= version[:2] for id in line.secrets.values()}
        if not newer:
            return
        for id in {id for line in older for id in line.secrets.values()} - newer:
            if (name := self._keys.get(id)) is not None and name not in self._spare:
                self._revoke_key(name, id, f"the answer that {version} is drained")

    # -- harm ----------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _holding(self, what: str, member: Member | None = None) -> AsyncIterator[Member]:
        """A member to which nothing else is done, and whose events may be kept meanwhile; raises _Nobody."""
        free = [one for one in self.members if one.is_running() and not one.lock.locked()]
        one = member if member in free else self._random.choice(free) if free and member is None else None
        if one is None:
            raise _Nobody
        async with one.lock:
            self.done[what] += 1
            one.doing = what
            one.is_shipping = one.shipped > one.unwell
            one.unwell = float("inf")
            try:
                yield one
            finally:
                one.unwell = time.monotonic() if one.unwell == float("inf") else one.unwell
                one.doing = f"runs, after: {what}"

    async def _pause(self, longest: float = 3 * LEASE) -> None:
        await trio.sleep(self._random.choice((0.0, self._random.uniform(0, 1), self._random.uniform(0, longest))))

    async def _kill_host(self, which: Member | None = None) -> None:
        with suppress(_Nobody):
            async with self._holding("hosts killed", which) as member:
                member.kill()
                await self._pause()
                member.begin()

    async def _kill_supervisor(self, which: Member | None = None) -> None:
        with suppress(_Nobody):
            async with self._holding("supervisors killed", which) as member:
                member.kill_supervisor()
                await self._pause()
                member.begin()

    async def _kill_sidecar(self) -> None:
        with suppress(_Nobody):
            async with self._holding("sidecars killed") as member:
                member.signal_sidecar(signal.SIGKILL)

    async def _stop_host(self, which: Member | None = None) -> None:
        with suppress(_Nobody):
            async with self._holding("hosts stopped", which) as member:
                member.pause()
                await self._pause()
                member.go_on()

    async def _stop_supervisor(self, which: Member | None = None) -> None:
        with suppress(_Nobody):
            async with self._holding("supervisors stopped", which) as member:
                if member.is_shipping:
                    member.unwell = time.monotonic()
                member.signal_supervisor(signal.SIGSTOP)
                await self._pause()
                member.signal_supervisor(signal.SIGCONT)

    async def _stop_sidecar(self) -> None:
        with suppress(_Nobody):
            async with self._holding("sidecars stopped") as member:
                member.signal_sidecar(signal.SIGSTOP)
                await self._pause()
                member.signal_sidecar(signal.SIGCONT)

    async def _harm_leader(self) -> None:
        leader = next((one for one in self.members if one.name == self._head.leader), None)
        if leader is not None:
            self.done["leaders harmed"] += 1
            await self._random.choice([self._kill_host, self._stop_host, self._stop_supervisor])(leader)

    async def _restart(self) -> None:
        with suppress(_Nobody):
            async with self._holding("hosts restarted") as member:
                member.end()
                status = await trio.to_thread.run_sync(member.ended)
                if status not in (0, -signal.SIGTERM):  # it may not have heeded signals yet
                    self._wrong.append(f"{member.name} ended with {status}\n{member.picture()}")
                await self._pause(1.0)
                member.begin()

    async def _change_lapse(self) -> None:
        """A host is killed, and is started with the other `on_lapse`."""
        with suppress(_Nobody):
            async with self._holding("on_lapse changed") as member:
                member.kill()
                member.change_lapse()
                self._have_continued |= set() if member.holds else {member.name}
                member.begin()

    async def _leave(self) -> None:
        """`shipper fleet leave` on a host, which then comes back."""
        with suppress(_Nobody):
            async with self._holding("hosts left") as member:
                said = await _shipper("fleet", "leave", "--state", str(member.state))
                if said.returncode:
                    self.done["hosts that could not leave"] += 1
                if said.returncode and b"has stopped" not in said.stderr:
                    return
                await trio.to_thread.run_sync(member.ended)
                member.needs_store = True
                await self._pause()
                member.begin()

    async def _forget(self) -> None:
        """`shipper fleet forget` for a host that is dead, and then comes back."""
        with suppress(_Nobody):
            async with self._holding("hosts forgotten") as member:
                member.kill()
                await self._pause()
                said = await self._command("forget", member.name, "--force")
                if said.returncode:
                    self.done["hosts that nobody could forget"] += 1
                member.needs_store = True
                member.begin()

    async def _cut_off(self) -> None:
        with suppress(_Nobody):
            async with self._holding("hosts cut off") as member:
                member.unwell = time.monotonic()
                how = self._random.choice(("refused", "silent", "slow", "torn"))
                links = self._random.choice((member.links, member.links[:2], member.links[1:]))
                for link in links:
                    link.is_down, link.hold_seconds = how == "refused", {"silent": 60.0, "slow": 0.5}.get(how, 0.0)
                    link.torn = 0.2 if how == "torn" else 0.0
                    if how == "refused":
                        link.cut()
                await self._pause()
                self._heal(member)

    def _heal(self, member: Member) -> None:
        for link in member.links:
            link.heal()
            link.cut()

    async def _slow_backend(self) -> None:
        member = self._random.choice(self.members)
        if member.name not in self._slow:
            self.done["slow backends"] += 1
            async with self._slowed(member, self._random.choice((Reply(delay=0.3), SLOW, Reply(status=503)))):
                await self._pause()

    async def _drain_slowly(self) -> None:
        """A key is replaced, and asked for, while the backend is slow for a member: where it is not, all stages of a
        version come within milliseconds, and nobody sees an answer that did not wait for the last one."""
        member = self._random.choice(self.members)
        if member.name in self._slow or self._asking >= ANSWERS or not self._head.history:
            return
        self.done["slow drains"] += 1
        self._asking += 1
        try:
            async with self._slowed(member, SLOW):
                await trio.sleep(SLOW_DRAIN)
                version = await self._rotate(self._publishers[1])
                if version is not None:
                    await self._ask_store(version, "drained", 2 * SLOW_DRAIN)
        finally:
            self._asking -= 1

    @asynccontextmanager
    async def _slowed(self, member: Member, reply: Reply) -> AsyncIterator[None]:
        """The backend answers a member so, within."""
        member.unwell = max(member.unwell, time.monotonic() + 3 * LEASE)
        self._slow = {**self._slow, member.name: reply}
        try:
            yield
        finally:
            self._slow = {name: reply for name, reply in self._slow.items() if name != member.name}

    async def _harm_node(self) -> None:
        if self._of_etcd.locked():
            return
        async with self._of_etcd:
            node = self._random.choice(self._fleet.etcd.nodes)
            if self._random.random() < 0.5:
                self.done["nodes killed"] += 1
                await trio.to_thread.run_sync(node.kill)
                await self._pause()
                await trio.to_thread.run_sync(self._fleet.etcd.start, node)
            else:
                self.done["nodes stopped"] += 1
                node.stop()
                await self._pause()
                node.go_on()

    async def _lose_etcd(self) -> None:
        if self._of_etcd.locked():
            return
        async with self._of_etcd:
            self.done["all nodes killed"] += 1
            await trio.to_thread.run_sync(self._fleet.etcd.kill)
            await self._pause(4 * LEASE)
            await trio.to_thread.run_sync(self._fleet.etcd.start)

    async def _join(self) -> None:
        """The last host joins."""
        last = self.members[-1]
        if last.process is None and not last.launches:
            self.done["hosts joined"] += 1
            self._begin(last)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Everything is well: all answers open, all is delivered, and all keys but the newest are released."""
        await self._join()
        self._slow = {}
        for member in self.members:
            self._heal(member)
            member.is_busy = False
        await self._progress(self._newest_opens, "the answer for the newest version")
        await self._progress(self._all_delivered, "that all lines are delivered")
        await self._progress(self._all_released, "the release of all former keys")
        for line in self._head.history:
            verdict = await self._ask_store(line.version, "drained", 0)
            if verdict is None or verdict.state not in ("open", "gone"):
                raise Failed(f"version {line.version} is not drained in the end: {verdict}")

    async def _progress(self, step: Callable[[], Awaitable[tuple[bool, object]]], what: str) -> None:
        """Waits until a step is done, as long as what it shows changes."""
        shown: object = None
        since = trio.current_time()
        while True:
            done, now = await step()
            if done:
                return
            if now != shown:
                shown, since = now, trio.current_time()
            if trio.current_time() - since > SETTLED:
                raise Failed(f"{what} has not come, and nothing has changed for {SETTLED:g} s: {now}\n{self.picture()}")
            await trio.sleep(0.1)

    async def _newest_opens(self) -> tuple[bool, object]:
        if self.seen.history and self.done["last version"] == 0:
            for last in (self._rotate, self._publish):  # a former key is left to be released, whatever was done before
                if await last(self._publishers[1]) is None:
                    return False, self.done["publishers without a store"]
            self.done["last version"] += 1
        newest = (await self._fleet.head()).newest
        assert newest is not None
        verdict = await self._ask_store(newest, "drained", 5)
        if verdict is None:
            return False, None
        reached = verdict.counts.get("reached", 0) == len(self.members)
        return verdict.state == "open" and reached, (verdict.state, _standings(verdict))

    async def _all_delivered(self) -> tuple[bool, object]:
        wanted = sum(member.lines for member in self.members)
        return self._fleet.destination.total >= wanted, (self._fleet.destination.total, wanted)

    async def _all_released(self) -> tuple[bool, object]:
        head = await self._fleet.head()
        today = {*head.secrets.values(), *(head.history[-1].secrets.values())}
        states = {id: one.state for id, one in head.released.items()}
        left = {id: states.get(id, "not released") for id in head.fingerprints if id not in today}
        return all(state == "done" for state in left.values()), left

    def _unheard(self) -> list[str]:
        """Released ids for which no command has run."""
        lines = self._fleet.begun.read_text().splitlines() if self._fleet.begun.exists() else []
        ran = {line.split()[3] for line in lines}
        done = {id for id, release in self._head.released.items() if release.state == "done"}
        return [f"on_release has never run for {id}, which is done" for id in sorted(done - ran)]

    async def _all_reach(self, version: Version | None, members: Collection[Member]) -> None:
        assert version is not None

        async def step() -> tuple[bool, object]:
            verdict = await self._ask_store(version, "drained", 5)
            assert verdict is not None
            return verdict.counts == {"reached": len(members)}, _standings(verdict)

        await self._progress(step, "the start of all hosts")

    def _judge(self) -> None:
        if found := [*self._found(), *self._unheard(), *self._wrong_lines()]:
            raise Failed("\n".join([f"{len(found)} faults", *found[:20], self.picture()]))

    def _found(self) -> list[str]:
        """What was wrong until now."""
        names = {digest(key(name)): name for name in self._names}
        for request in self._fleet.destination.log:
            name = names.get(request.key, "unknown")
            self.seen.uses.append(Use(request.arrived, _member(request.path), name, request.status or 0))
        for member in self.members:
            if joined := member.said("fleet_joined"):
                self.seen.joined[member.name] = joined[0]["at"] - self._boot
        return [*self._wrong, *faults(self.seen)]

    def _wrong_lines(self) -> list[str]:
        found = []
        for member in self.members:
            sources = self._fleet.destination.documents.get(f"logs-{member.name}", {}).values()
            counts = Counter(json.loads(source)["message"] for source in sources)
            lost = [n for n in range(member.lines) if not counts[f"{EVENT} {member.name} {n}"]]
            twice = sum(count > 1 for count in counts.values())
            if lost or twice:
                found.append(f"{member.name}: {len(lost)} lines lost ({lost[:5]}…), {twice} more than once")
        return found

    def picture(self) -> str:
        """What everyone is doing."""
        head = self._head
        lines = [self.summary()]
        lines += [f"newest {head.newest}, secrets {head.secrets}, leader {head.leader!r} with token {head.token}"]
        lines += [f"releases { ({id: (one.state, one.token, one.despite) for id, one in head.released.items()}) }"]
        lines += [f"etcd {[None if one.process is None else one.process.poll() for one in self._fleet.etcd.nodes]}"]
        for member in self.members:
            lines.append(member.picture())
            with suppress(Exception):
                status = questions.ask(member.state, questions.Status())
                lines.append(f"    status {json.dumps({key: status.get(key) for key in ('fleet', 'troubles')})[:1500]}")
        return "\n".join(lines)


async def _shipper(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "shipper", *arguments]
    with trio.move_on_after(NEVER_ANSWERED):
        return await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    raise Failed(f"shipper {' '.join(arguments)} has not ended within {NEVER_ANSWERED:g} s")


class _Nobody(Exception):
    """All members are busy."""


def _standings(verdict: Verdict) -> list[tuple[str | None, ...]]:
    """How far members are, without what changes with each of their reports."""
    return [(one.name, one.kind, one.version, *one.problems) for one in verdict.members]


def _member(path: str) -> str:
    """The member that uses a path of the backend."""
    return path.partition("/logs-")[2].partition("/")[0]


@asynccontextmanager
async def opened_campaign(directory: Path, etcd: Etcd, seed: int, hosts: int) -> AsyncIterator[Campaign]:
    """A campaign in this directory; nothing runs before `Campaign.run`."""
    members: list[Member] = []
    try:
        async with AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(open_fleet(directory, etcd, f"campaign-{seed}"))
            anna, ben, eyes = [await stack.enter_async_context(opened(fleet.settings)) for _ in range(3)]
            publishers = [Publisher(anna.store, anna.seals, "anna@here"), Publisher(ben.store, ben.seals, "ben@there")]
            campaign = Campaign(fleet, publishers, eyes, hosts, seed)
            members = campaign.members
            yield campaign
    finally:
        for member in members:
            member.end_at_once()
