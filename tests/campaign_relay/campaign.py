"""A long run of two edges and their principals, whose links and processes fail at random; at the end all adds up.

    python -m tests.campaign_relay --harm 600 --seed 7 --rounds 1
    python -m tests.campaign_relay --harm 30 --rounds 48

Each edge ships a growing log through links of its own, the documents of a directory, and what a program puts at its
door; another program puts keys at the door of a principal. The principals deliver to a backend that revokes keys. While
that goes on, links are cut, slowed, torn and doubled, old requests are said again, processes are killed, frozen and
started again, the backend errs, and the keys of the edges and of the backend are replaced, each revoked in the instant
in which it is released. Then everything is well. What must be true:

- every line is at the backend once;
- the backend has the last word of every key, deletions too, and never wrote an older version behind a newer one;
- when `drained` is said without `confirms: stored`, it has what a door had taken before that revision was offered;
- a sender tells that its principal went back after that has happened, and never else;
- each ledger adds up, and nothing is a dead letter, dropped or damaged: the backend refuses nothing for ever.

Where `back` says so, state directories of edges, principals, or both are lost and replaced by older copies; those of
edges are run twice, and a second principal becomes a copy of the first one. Then lines of an edge whose directory went
back may be there more than once, since its input reads them again; lines and deletions that a principal had stored may
be lost with its directory, unless it waits for delivery; and of a key that was put at a door whose memory went back the
last word is the next one. A document that is removed while the edge does not remember it, as after a loss, is deleted
if its one principal remembers it; where principals go back too, or there are two, it is not judged before another one
has passed.

The seed says what is done and in which order. What meets what is up to the machine: a failure may need several runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, Document, Reply, Request, open_destination
from shipper_demo.ports import free_port
from tests.campaign_relay.link import Link
from tests.campaign_relay.party import PATIENCE, Party
from tests.campaign_relay.things import Thing, Things
from tests.campaign_relay.writers import Directory, Program
from tests.canary import EVENT
from tests.story.driver import policy
from tests.story.world import key

LINES = 15
"""Of each edge, every `STEP` seconds on average."""
STEP = 0.05
MOST_AHEAD = 20_000
"""Lines that are not at the backend yet; more are not written."""
SETTLED_SECONDS = 90.0
LONGER_SECONDS = 60.0
"""The most that a campaign goes on until a process was killed."""
PACE = "backoff: {first: 50ms, longest: 500ms}"
EDGES = ("berlin", "paris")
MIDDLE = "middle"
"""What a principal is called at a further one, and its credential there."""
LOCAL, PROGRAMS = "local", "programs"
"""Who puts keys at the doors of edges, and at that of the first principal; each has the credential of this name."""

Fault = Callable[[], Awaitable[None]]


class Failed(Exception):
    """The ledger does not add up, or something has not come to its end."""


class Options(NamedTuple):
    """What kind of campaign it is."""

    delivers: bool = False
    """Whether principals confirm what is delivered, not what is stored."""
    principals: int = 1
    far: bool = False
    """Whether the one principal relays to another one, which delivers."""
    back: Literal["none", "edges", "principals", "both"] = "none"
    """Whose state directories go back, are lost, and are run twice."""

    @property
    def remembers(self) -> bool:
        """Whether the principal knows all documents that an edge may have forgotten."""
        return self.principals == 1 and self.back == "edges"


class Edge:
    """An edge: its process, its links, its log, what it says of things, and its keys."""

    def __init__(
        self, name: str, directory: Path, links: Sequence[Link], party: Party, things: Things, owner: str
    ) -> None:
        self.name, self.links, self.party = name, links, party
        self.log = directory / f"{name}.log"
        self.log.touch()
        self.lines = 0
        self.keys = 1
        self.door = free_port()
        self.directory = Directory(things, owner, directory / f"{name}-documents")
        self.program = Program(things, f"{owner}/{LOCAL}", self.door, key(LOCAL))
        self.went_back = False
        """Whether its inputs may have read a line twice."""
        self.may_be_lost = 0
        """Lines from the first on that a principal had perhaps stored, and whose directory is lost."""

    @property
    def key(self) -> str:
        return f"{self.name}-{self.keys}"

    def write(self, count: int) -> None:
        """Append numbered lines to its log."""
        with self.log.open("a") as file:
            file.writelines(f"{EVENT} {self.name} {n}\n" for n in range(self.lines, self.lines + count))
        self.lines += count

    def text(self, door: int | None = None) -> str:
        """Its policy; with another port for its own door, if given."""
        hosts = json.dumps([f"http://127.0.0.1:{link.port}" for link in self.links])
        output = f"  up: {{type: relay, name: {self.name}, hosts: {hosts}, credential: {self.key}, {PACE}}}\n"
        who = f"{LOCAL}: {{credentials: [{LOCAL}], collections: [{self.program.collection}]}}"
        inputs = (
            f'  access: {{type: file, paths: ["{self.log}"]}}\n'
            f'  documents: {{type: state, paths: ["{self.directory.paths}"], collection: inventory}}\n'
            f'  door: {{type: relay, address: "127.0.0.1:{door or self.door}", edges: {{{who}}}}}\n'
        )
        return policy(inputs=inputs, outputs=output)

    async def offer(self) -> int:
        """Give it its policy; returns the revision."""
        return await self.party.offer(self.text(), self.key, LOCAL)

    def doubt(self, *, remembers: bool) -> None:
        """Its state directory is not the one that it was; `remembers`: its principal knows its documents."""
        self.went_back = True
        self.program.doubt()
        if not remembers:
            self.directory.doubt()


class Campaign:
    """Everything that runs; made by `opened`."""

    def __init__(self, directory: Path, seed: int, backend: BulkDestination, options: Options) -> None:
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self.things = Things()
        """At the end, what became of all lines, and the sums of the ledgers."""
        self._options = options
        self._random = Random(seed)
        self._backend = backend
        self._backend_key = 1
        self._errs = 0.0
        self._ports = [free_port() for _ in range(options.principals)]
        names = ["principal", *(f"principal {n + 1}" for n in range(1, options.principals))]
        self.principals = [Party(name, directory / name, self._pause, lambda: self.arrived) for name in names]
        self.far = Party("far principal", directory / "far", self._pause, lambda: self.arrived) if options.far else None
        self._far_port = free_port()
        self._far_link = Link(self._drawn(), self._far_port)
        self._above = f"{MIDDLE}/" if options.far else ""
        """What is before the name of each owner at the backend."""
        self.edges = [self._edge(name, directory) for name in EDGES]
        self._doors = {edge.name: [edge.key] for edge in self.edges}
        self._program = Program(self.things, f"{self._above}{PROGRAMS}", self._ports[0], key(PROGRAMS))
        self._have_gone_back = False
        """Whether the directory of a principal is an older one than before."""
        self._of_keys = trio.Lock()
        """A directory goes back to a copy in which no key is revoked, and no key is replaced meanwhile."""
        backend.script = self._err

    def _edge(self, name: str, directory: Path) -> Edge:
        links = [Link(self._drawn(), port) for port in self._ports]
        party = Party(name, directory / name, self._pause, lambda: self.arrived)
        return Edge(name, directory, links, party, self.things, self._above + name)

    def _drawn(self) -> Random:
        return Random(self._random.random())

    def _pause(self) -> float:
        return self._random.choice((0.0, 0.2, 1.0))

    @property
    def parties(self) -> list[Party]:
        return [*self.receivers, *(edge.party for edge in self.edges)]

    @property
    def receivers(self) -> list[Party]:
        """The principals, in the order of the way."""
        return [*self.principals, *([self.far] if self.far else [])]

    @property
    def _delivering(self) -> list[Party]:
        """Those that deliver to the backend."""
        return [self.far] if self.far else self.principals

    @property
    def links(self) -> list[Link]:
        return [*(link for edge in self.edges for link in edge.links), *([self._far_link] if self.far else [])]

    @property
    def lines(self) -> int:
        return sum(edge.lines for edge in self.edges)

    @property
    def figures(self) -> Counter[str]:
        """What there was."""
        return Counter({"lines written": self.lines, "lines at the backend": self.arrived})

    def summary(self) -> str:
        """How far it is, in one line."""
        return f"{self.lines} lines written, {self.arrived} at the backend; {self._said()}"

    @property
    def arrived(self) -> int:
        """Lines at the backend."""
        return sum(len(index) for name, index in list(self._backend.documents.items()) if name.startswith("logs"))

    def _said(self) -> str:
        done = self.done + self.things.seen
        return ", ".join(f"{name} {count}" for name, count in sorted(done.items()))

    # -- the run -------------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """Do harm for so long, then see that all is well; raises Failed."""
        async with trio.open_nursery() as nursery:
            for link in self.links:
                await nursery.start(link.serve)
            for party in self.parties:
                nursery.start_soon(party.run)
            if self.far:
                await self._offer_far(self.far)
            await self._offer_principals()
            for edge in self.edges:
                await edge.offer()
            await self._harm(seconds)
            await self._settle()
            if self._options.principals == 1 and self._options.back in ("principals", "both"):
                await self._go_back_at_rest()
                await self._settle()
                if self.far and not self._options.delivers:
                    await self._lose_deletions()
                    await self._settle()
            await self._close()
            nursery.cancel_scope.cancel("the campaign is over")

    async def _harm(self, seconds: float) -> None:
        """A rotation that is under way at the end comes to its end, over links that are whole again."""
        async with trio.open_nursery() as nursery:
            over = trio.Event()
            nursery.start_soon(self._again_and_again, self._of_links(), 0.5, over)
            nursery.start_soon(self._again_and_again, self._of_processes(), 3.0, over)
            nursery.start_soon(self._again_and_again, self._rotations(), 2.0, over)
            if self._options.back != "none":
                nursery.start_soon(self._again_and_again, self._of_directories(), 5.0, over)
            nursery.start_soon(self._put, self._program, over)
            for edge in self.edges:
                nursery.start_soon(self._write, edge, over)
                nursery.start_soon(self._put, edge.program, over)
            await trio.sleep(seconds)
            with trio.move_on_after(LONGER_SECONDS):
                while all(party.lives == 1 for party in self.parties):  # noqa: ASYNC110 (a draw may take long to kill one)
                    await trio.sleep(0.1)
            over.set()
            self._heal()

    def _heal(self) -> None:
        for link in self.links:
            link.heal()
        self._errs = 0.0

    async def _again_and_again(self, faults: dict[str, Fault], longest: float, over: trio.Event) -> None:
        random, names = self._drawn(), sorted(faults)
        while not over.is_set():
            name = random.choice(names)
            await faults[name]()
            self.done[name] += 1
            await trio.sleep(random.random() * longest)
        self._heal()

    async def _write(self, edge: Edge, over: trio.Event) -> None:
        random = self._drawn()
        while not over.is_set():
            if self.lines - self.arrived < MOST_AHEAD:
                edge.write(random.randrange(2 * LINES))
            edge.directory.change(random)
            await trio.sleep(STEP)

    async def _put(self, program: Program, over: trio.Event) -> None:
        random = self._drawn()
        while not over.is_set():
            await program.change(random)
            await trio.sleep(STEP)

    async def _settle(self) -> None:
        """All is well: everything must arrive, and nothing be left; while lines arrive, a slow machine has time."""
        before = -1
        while before != (before := self.arrived):
            with trio.move_on_after(SETTLED_SECONDS):
                await self._all_arrived()
                break
        for edge in self.edges:
            self._check(edge)
        self._check_things()
        for party in self.parties:
            await self._check_observed(party)
        self._check_told()

    async def _all_arrived(self) -> None:
        await self._backend.wait_until(self.things.settled)
        for party in (*(edge.party for edge in self.edges), *self.receivers):
            while (await party.observe())["queue"]["events"]:  # noqa: ASYNC110 (it is another process)
                await trio.sleep(0.05)
        await self._backend.wait_until(lambda: all(not self._lost(edge) for edge in self.edges))

    async def _close(self) -> None:
        """A last revision of each closes its ledger."""
        for edge in self.edges:
            await edge.party.reached("drained", await edge.offer())
        for principal, revision in zip(self.principals, await self._offer_principals(), strict=True):
            await principal.reached("drained", revision)
        if self.far:
            await self.far.reached("drained", await self._offer_far(self.far))
        for party in self.parties:
            self._check_ledgers(party)

    def _check_ledgers(self, party: Party) -> None:
        """Raises Failed."""
        for revision, ledger in party.ledgers.items():
            answers = {name: count for name, count in ledger.items() if name != "accepted"}
            refused = {name: answers.get(name) for name in ("dead_letter", "dropped", "damaged") if answers.get(name)}
            if ledger.get("accepted") != sum(answers.values()) or refused:
                raise Failed(f"{party.name}: the ledger of revision {revision} is wrong: {dict(ledger)}")

    def _came(self, edge: Edge) -> Counter[int]:
        lines = [event["message"].split() for event in self._backend.events if "message" in event]
        return Counter(int(number) for _, name, number in lines if name == edge.name)

    def _lost(self, edge: Edge) -> list[int]:
        came = self._came(edge)
        return [n for n in range(edge.may_be_lost, edge.lines) if not came[n]]

    def _check(self, edge: Edge) -> None:
        came = self._came(edge)
        lost, more = self._lost(edge), [n for n in came if came[n] > 1]
        self.done[f"lines of {edge.name} that were lost with a principal"] = edge.lines - len(came) - len(lost)
        self.done[f"lines of {edge.name} that were read again"] = len(more)
        if lost or (more and not edge.went_back):
            raise Failed(f"{edge.name}: {len(lost)} lines lost ({lost[:5]}…), {len(more)} more than once ({more[:5]}…)")

    def _check_things(self) -> None:
        """Raises Failed."""
        found = {
            "written in a wrong order": self.things.wrong(),
            "not the last word": self.things.open(),
            "not what was written last": self.things.differing(self._backend.documents),
        }
        for what, things in found.items():
            if things:
                raise Failed(f"{len(things)} keys are {what}: {things}"[:2000])

    def _check_told(self) -> None:
        """Raises Failed."""
        for party in self.parties:
            self.done[f"{party.name} told that its principal went back"] = party.told
            if party.told and not self._have_gone_back:
                raise Failed(f"{party.name} told {party.told} times that its principal went back, which has not")

    def _check_drained(self, party: Party, revision: int, standing: Mapping[Thing, int]) -> None:
        """Raises Failed if something that stood before a revision was offered, and confirmed, is not at the backend."""
        confirms = party.drained.get(revision, "unknown")
        self.done[f"drained that confirms {confirms}"] += 1
        early = {} if confirms in ("stored", "unknown") else self.things.early(standing)
        if early:
            raise Failed(f"{party.name}: revision {revision} was drained too early ({confirms}): {early}"[:2000])

    async def _check_observed(self, party: Party) -> None:
        observed = await party.observe()
        is_well = observed["state"] == "HEALTHY"
        is_told = self._have_gone_back and observed.get("code") == "principal_went_back"
        if observed["queue"]["events"] or observed["dead_letters"]["events"] or not (is_well or is_told):
            facts = {name: observed[name] for name in ("state", "message", "queue", "dead_letters")}
            raise Failed(f"{party.name} is not at rest: {json.dumps(facts)}")
        for unit in observed["units"]:
            if unit["type"] == "relay" and unit["kind"] == "input":
                figures = unit.get("figures", {})
                self.done |= {name: figures[name] for name in ("parts_again", "identity_conflicts") if name in figures}
        self.done[f"lives of {party.name}"] = party.lives

    # -- links ---------------------------------------------------------------------------------------------------------

    def _of_links(self) -> dict[str, Fault]:
        random = self._drawn()

        async def cut() -> None:
            random.choice(self.links).cut()

        async def down() -> None:
            link = random.choice(self.links)
            link.is_down = True
            link.cut()
            await trio.sleep(random.random() * 2)
            link.heal()

        async def weather(**bad: float) -> None:
            link = random.choice(self.links)
            for name, value in bad.items():
                setattr(link, name, value)
            if "mirrored" in bad:
                link.cut()
            await trio.sleep(random.random() * 2)
            link.heal()

        async def repeat() -> None:
            for _ in range(random.randrange(1, 6)):
                await random.choice(self.links).repeat()

        async def backend_errs() -> None:
            self._errs = 0.4
            await trio.sleep(random.random() * 2)
            self._errs = 0.0

        return {
            "cut": cut,
            "down": down,
            "slow": lambda: weather(hold_seconds=0.3),
            "torn": lambda: weather(torn=0.1, hold_seconds=0.02),
            "doubled": lambda: weather(mirrored=0.8),
            "said again": repeat,
            "backend errs": backend_errs,
        }

    def _err(self, request: Request, documents: list[Document]) -> Reply | None:
        """In the backend's thread."""
        reply = None
        if self._random.random() < self._errs:
            reply = self._random.choice(
                (Reply(status=503), Reply(status=429), Reply(cut="before"), Reply(cut="middle"), Reply(delay=0.3))
            )
        if reply is None or reply.status is None:
            self.things.note(documents)
        return reply

    # -- processes -----------------------------------------------------------------------------------------------------

    def _of_processes(self) -> dict[str, Fault]:
        random = self._drawn()

        async def kill_edge() -> None:
            random.choice(self.edges).party.kill()

        async def kill_principal() -> None:
            random.choice(self.receivers).kill()

        async def kill_all() -> None:
            for party in self.parties:
                party.kill()

        async def freeze() -> None:
            await random.choice(self.parties).freeze(random.random() * 2)

        async def work() -> None:
            await trio.sleep(random.random() * 3)

        return {
            "kill an edge": kill_edge,
            "kill the principal": kill_principal,
            "kill all": kill_all,
            "freeze": freeze,
            "left alone": work,
        }

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _rotations(self) -> dict[str, Fault]:
        random = self._drawn()

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._rotate_edge, random.choice(self.edges))
                nursery.start_soon(self._rotate_backend)

        return {
            "key of an edge": lambda: self._rotate_edge(random.choice(self.edges)),
            "key of the backend": self._rotate_backend,
            "keys of both": both,
        }

    async def _rotate_edge(self, edge: Edge) -> None:
        """The doors take both, the edge changes, the old one is revoked when it is released."""
        async with self._of_keys:
            old = edge.key
            edge.keys += 1
            self._doors[edge.name].append(edge.key)
            await self._active(await self._offer_principals())
            standing = edge.program.standing()
            revision = await edge.offer()
            await edge.party.reached("drained", revision)
            self._check_drained(edge.party, revision, standing)
            await edge.party.released(old)
            self._doors[edge.name].remove(old)
            await self._active(await self._offer_principals())
            for principal in self.principals:
                await principal.released(old)
            self._forget_copies()

    async def _rotate_backend(self) -> None:
        async with self._of_keys:
            old, self._backend_key = f"backend-{self._backend_key}", self._backend_key + 1
            standing = self._program.standing()
            if self.far:
                await self._offer_far(self.far)
            else:
                first = self.principals[0]
                revision, *_ = await self._offer_principals()
                await first.reached("drained", revision)
                self._check_drained(first, revision, standing)
            for principal in self._delivering:
                await principal.released(old)
            assert self._backend.keys is not None
            self._backend.keys.discard(key(old))
            self._forget_copies()

    def _forget_copies(self) -> None:
        for party in self.parties:
            party.forget_copy()

    async def _active(self, revisions: Sequence[int]) -> None:
        for principal, revision in zip(self.principals, revisions, strict=True):
            await principal.reached("active", revision)

    async def _offer_principals(self) -> list[int]:
        """Give them the policy of now; returns the revision of each."""
        doors = self._doors | {PROGRAMS: [PROGRAMS]}
        ids = [id for keys in doors.values() for id in keys]
        outputs, credential = self._to_far() if self.far else self._to_backend()
        revisions = []
        for principal, port in zip(self.principals, self._ports, strict=True):
            text = policy(inputs=self._door(port, doors), outputs=outputs)
            revisions.append(await principal.offer(text, *ids, credential))
        return revisions

    async def _offer_far(self, far: Party) -> int:
        outputs, credential = self._to_backend()
        text = policy(inputs=self._door(self._far_port, {MIDDLE: [MIDDLE]}), outputs=outputs)
        return await far.offer(text, MIDDLE, credential)

    def _door(self, port: int, doors: Mapping[str, Sequence[str]]) -> str:
        allowed = ["inventory", "things"]
        edges = {
            name: {"credentials": list(keys), "collections": allowed, "relays": name == MIDDLE}
            for name, keys in doors.items()
        }
        mode = "delivered" if self._options.delivers else "stored"
        where = f'address: "127.0.0.1:{port}", acknowledge: {mode}'
        return f"  edges: {{type: relay, {where}, edges: {json.dumps(edges)}}}\n"

    def _to_backend(self) -> tuple[str, str]:
        """Of a policy, its outputs, and the credential that they name, which the backend knows."""
        credential = f"backend-{self._backend_key}"
        assert self._backend.keys is not None
        self._backend.keys.add(key(credential))
        hosts = f'["{self._backend.url}"]'
        return f"  main: {{type: elasticsearch, hosts: {hosts}, {PACE}, credential: {credential}}}\n", credential

    def _to_far(self) -> tuple[str, str]:
        hosts = f'["http://127.0.0.1:{self._far_link.port}"]'
        return f"  on: {{type: relay, name: {MIDDLE}, hosts: {hosts}, {PACE}, credential: {MIDDLE}}}\n", MIDDLE

    # -- directories ---------------------------------------------------------------------------------------------------

    def _of_directories(self) -> dict[str, Fault]:
        random = self._drawn()

        def doubt(edge: Edge) -> None:
            edge.doubt(remembers=self._options.remembers)

        async def copy() -> None:
            await random.choice(self.parties).copy()

        async def edge_goes_back() -> None:
            edge = random.choice(self.edges)
            async with self._of_keys:
                await self._have_copy(edge.party)
                doubt(edge)
                await edge.party.go_back()
                doubt(edge)

        async def edge_is_lost() -> None:
            edge = random.choice(self.edges)
            doubt(edge)
            await edge.party.lose()
            doubt(edge)

        async def edge_is_cloned() -> None:
            edge = random.choice(self.edges)
            async with self._of_keys, edge.party.cloned(edge.text(free_port())):
                doubt(edge)
                await trio.sleep(random.random() * 4)
            doubt(edge)

        async def principal_goes_back() -> None:
            principal = random.choice(self.receivers)
            async with self._of_keys:
                await self._have_copy(principal)
                self._have_gone_back = True
                await self._lose(principal, principal.go_back)

        async def principal_is_lost() -> None:
            principal = random.choice(self.receivers)
            await self._lose(principal, principal.lose)

        async def principal_is_cloned() -> None:
            first, second = self.principals
            async with self._of_keys:
                self._have_gone_back = True
                await self._lose(second, lambda: second.become(first))

        of_edges = {
            "copied": copy,
            "edge goes back": edge_goes_back,
            "edge is lost": edge_is_lost,
            "edge is cloned": edge_is_cloned,
        }
        of_principals = {
            "copied": copy,
            "principal goes back": principal_goes_back,
            "principal is lost": principal_is_lost,
        }
        if len(self.principals) == 2:
            of_principals["principal is cloned"] = principal_is_cloned
        return {"edges": of_edges, "principals": of_principals, "both": of_edges | of_principals}[self._options.back]

    async def _go_back_at_rest(self) -> None:
        """Each that relays to a principal has something confirmed since a copy: all of them tell when it goes back."""
        principal, senders = self.receivers[-1], [edge.party for edge in self.edges]
        if self.far:
            senders = self.principals
        await principal.copy()
        for edge in self.edges:
            edge.write(1)
            edge.directory.write("k0")
        await self._settle()
        before = [party.told for party in senders]
        self._have_gone_back = True
        await principal.go_back()
        for edge in self.edges:
            edge.write(1)
        with trio.move_on_after(PATIENCE):
            while any(party.told == told for party, told in zip(senders, before, strict=True)):  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        silent = [party.name for party, told in zip(senders, before, strict=True) if party.told == told]
        raise Failed(f"the principal of {silent} went back, and they do not tell")

    async def _lose_deletions(self) -> None:
        """The principal confirms deletions, and is lost before it can relay them; it hears first of its edges again."""
        self._far_link.is_down = True
        self._far_link.cut()
        principal = self.principals[0]
        gone = 0
        for edge in self.edges:
            for name in self.things.present(edge.directory.owner, edge.directory.collection)[:5]:
                edge.directory.remove(name)
                gone += 1
        while (await principal.observe())["queue"]["events"] < gone:  # noqa: ASYNC110
            await trio.sleep(0.05)
        for edge in self.edges:
            while (await edge.party.observe())["queue"]["events"]:  # noqa: ASYNC110
                await trio.sleep(0.05)
        self._program.doubt()
        await principal.lose()
        for edge in self.edges:
            edge.write(1)
        await trio.sleep(2.0)
        self._heal()

    async def _have_copy(self, party: Party) -> None:
        while not party.has_copy:
            await party.observe()  # a process that is killed early has no directory
            await party.copy()
            await trio.sleep(self._random.random() * 2)

    async def _lose(self, principal: Party, fault: Fault) -> None:
        is_last = principal in self._delivering and not self._options.delivers
        self._doubt(is_last=is_last)
        await fault()
        self._doubt(is_last=is_last)
        if not self._options.delivers:
            for edge in self.edges:
                edge.may_be_lost = edge.lines

    def _doubt(self, *, is_last: bool) -> None:
        """A principal loses what it has stored; `is_last`: what it had confirmed, and nobody else knows."""
        self._program.doubt()
        for edge in self.edges if is_last else ():
            edge.directory.doubt()
            edge.program.doubt(deletions_only=True)


@asynccontextmanager
async def opened(directory: Path, seed: int, options: Options = Options()) -> AsyncIterator[Campaign]:  # noqa: B008
    """A campaign in this directory; nothing runs before `Campaign.run`."""
    async with open_asyncio() as aio, open_destination(aio, keys=()) as backend:
        yield Campaign(directory, seed, backend, options)
