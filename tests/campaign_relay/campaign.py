"""A long run of two edges and a principal, whose links and processes fail at random; at the end the ledger adds up.

    python -m tests.campaign_relay --minutes 10 --seed 7

Each edge ships a growing log through a link of its own; the principal delivers to a backend that revokes keys. While
that goes on, links are cut, slowed, torn and doubled, old requests are said again, processes are killed, frozen and
started again, the backend errs, and the keys of the edges and of the backend are replaced, each revoked in the instant
in which it is released. Then everything is well, and every line must be at the backend once.

The seed says what is done and in which order. What meets what is up to the machine: a failure may need several runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, Document, Reply, Request, open_destination
from tests.campaign_relay.link import Link
from tests.campaign_relay.party import Party
from tests.canary import EVENT
from tests.story.driver import policy
from tests.story.http import free_port
from tests.story.world import key

LINES = 15
"""Of each edge, every `STEP` seconds on average."""
STEP = 0.05
MOST_AHEAD = 20_000
"""Lines that are not at the backend yet; more are not written."""
SETTLED_SECONDS = 90.0
PACE = "backoff: {first: 50ms, longest: 500ms}"
EDGES = ("berlin", "paris")

Fault = Callable[[], Awaitable[None]]


class Failed(Exception):
    """The ledger does not add up, or something has not come to its end."""


class Edge:
    """An edge: its process, its link, its log and its keys."""

    def __init__(self, name: str, directory: Path, link: Link, party: Party) -> None:
        self.name, self.link, self.party = name, link, party
        self.log = directory / f"{name}.log"
        self.log.touch()
        self.lines = 0
        self.keys = 1

    @property
    def key(self) -> str:
        return f"{self.name}-{self.keys}"

    def write(self, count: int) -> None:
        """Append numbered lines to its log."""
        with self.log.open("a") as file:
            file.writelines(f"{EVENT} {self.name} {n}\n" for n in range(self.lines, self.lines + count))
        self.lines += count

    def text(self) -> str:
        """Its policy."""
        output = (
            f'  up: {{type: relay, name: {self.name}, hosts: ["http://127.0.0.1:{self.link.port}"], '
            f"credential: {self.key}, {PACE}}}\n"
        )
        return policy(paths=str(self.log), outputs=output)


class Campaign:
    """Everything that runs; made by `opened`."""

    def __init__(self, directory: Path, seed: int, backend: BulkDestination) -> None:
        self.done: Counter[str] = Counter()
        """How often what was done."""
        self._random = Random(seed)
        self._backend = backend
        self._port = free_port()
        self._backend_key = 1
        self._errs = 0.0
        self.principal = Party("principal", directory / "principal", self._pause)
        self.edges = [self._edge(name, directory) for name in EDGES]
        self._doors = {edge.name: [edge.key] for edge in self.edges}
        backend.script = self._err

    def _edge(self, name: str, directory: Path) -> Edge:
        return Edge(name, directory, Link(self._drawn(), self._port), Party(name, directory / name, self._pause))

    def _drawn(self) -> Random:
        return Random(self._random.random())

    def _pause(self) -> float:
        return self._random.choice((0.0, 0.2, 1.0))

    @property
    def parties(self) -> list[Party]:
        return [self.principal, *(edge.party for edge in self.edges)]

    @property
    def lines(self) -> int:
        return sum(edge.lines for edge in self.edges)

    def summary(self) -> str:
        """How far it is, in one line."""
        return f"{self.lines} lines written, {self._backend.total} at the backend; {self._said()}"

    def _said(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))

    # -- the run -------------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """Do harm for so long, then see that all is well; raises Failed."""
        async with trio.open_nursery() as nursery:
            for edge in self.edges:
                await nursery.start(edge.link.serve)
            for party in self.parties:
                nursery.start_soon(party.run)
            await self._offer_principal()
            for edge in self.edges:
                await edge.party.offer(edge.text(), edge.key)
            await self._harm(seconds)
            await self._settle()
            nursery.cancel_scope.cancel("the campaign is over")

    async def _harm(self, seconds: float) -> None:
        """A rotation that is under way at the end comes to its end, over links that are whole again."""
        async with trio.open_nursery() as nursery:
            over = trio.Event()
            nursery.start_soon(self._again_and_again, self._of_links(), 0.5, over)
            nursery.start_soon(self._again_and_again, self._of_processes(), 3.0, over)
            nursery.start_soon(self._again_and_again, self._rotations(), 2.0, over)
            for edge in self.edges:
                nursery.start_soon(self._write, edge, over)
            await trio.sleep(seconds)
            over.set()
            for edge in self.edges:
                edge.link.heal()
            self._errs = 0.0

    async def _again_and_again(self, faults: dict[str, Fault], longest: float, over: trio.Event) -> None:
        random, names = self._drawn(), sorted(faults)
        while not over.is_set():
            name = random.choice(names)
            await faults[name]()
            self.done[name] += 1
            await trio.sleep(random.random() * longest)
        for edge in self.edges:
            edge.link.heal()

    async def _write(self, edge: Edge, over: trio.Event) -> None:
        random = self._drawn()
        while not over.is_set():
            if self.lines - self._backend.total < MOST_AHEAD:
                edge.write(random.randrange(2 * LINES))
            await trio.sleep(STEP)

    async def _settle(self) -> None:
        """All is well: everything must arrive, and nothing be left."""
        with trio.move_on_after(SETTLED_SECONDS):
            await self._backend.wait_until(lambda: self._backend.total >= self.lines)
            for party in self.parties:
                while (await party.observe())["queue"]["events"]:  # noqa: ASYNC110 (it is another process)
                    await trio.sleep(0.05)
        for edge in self.edges:
            self._check(edge)
        for party in self.parties:
            await self._check_observed(party)

    def _check(self, edge: Edge) -> None:
        came = Counter(
            int(number)
            for event in self._backend.events
            for _, name, number in [event["message"].split()]
            if name == edge.name
        )
        lost, more = [n for n in range(edge.lines) if not came[n]], [n for n in came if came[n] > 1]
        if lost or more:
            raise Failed(f"{edge.name}: {len(lost)} lines lost ({lost[:5]}…), {len(more)} more than once ({more[:5]}…)")

    async def _check_observed(self, party: Party) -> None:
        observed = await party.observe()
        if observed["queue"]["events"] or observed["dead_letters"]["events"] or observed["state"] != "HEALTHY":
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
            random.choice(self.edges).link.cut()

        async def down() -> None:
            link = random.choice(self.edges).link
            link.is_down = True
            link.cut()
            await trio.sleep(random.random() * 2)
            link.heal()

        async def weather(**bad: float) -> None:
            link = random.choice(self.edges).link
            for name, value in bad.items():
                setattr(link, name, value)
            if "mirrored" in bad:
                link.cut()
            await trio.sleep(random.random() * 2)
            link.heal()

        async def repeat() -> None:
            for _ in range(random.randrange(1, 6)):
                await random.choice(self.edges).link.repeat()

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
        if self._random.random() >= self._errs:
            return None
        return self._random.choice(
            (Reply(status=503), Reply(status=429), Reply(cut="before"), Reply(cut="middle"), Reply(delay=0.3))
        )

    # -- processes -----------------------------------------------------------------------------------------------------

    def _of_processes(self) -> dict[str, Fault]:
        random = self._drawn()

        async def kill_edge() -> None:
            random.choice(self.edges).party.kill()

        async def kill_principal() -> None:
            self.principal.kill()

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
        """The door takes both, the edge changes, the old one is revoked when it is released."""
        old = edge.key
        edge.keys += 1
        self._doors[edge.name].append(edge.key)
        await self.principal.reached("active", await self._offer_principal())
        await edge.party.offer(edge.text(), edge.key)
        await edge.party.released(old)
        self._doors[edge.name].remove(old)
        await self.principal.reached("active", await self._offer_principal())
        await self.principal.released(old)

    async def _rotate_backend(self) -> None:
        old, self._backend_key = f"backend-{self._backend_key}", self._backend_key + 1
        await self._offer_principal()
        await self.principal.released(old)
        assert self._backend.keys is not None
        self._backend.keys.discard(key(old))

    async def _offer_principal(self) -> int:
        backend = f"backend-{self._backend_key}"
        assert self._backend.keys is not None
        self._backend.keys.add(key(backend))
        edges = json.dumps({name: {"credentials": keys} for name, keys in self._doors.items()})
        inputs = f'  edges: {{type: relay, address: "127.0.0.1:{self._port}", edges: {edges}}}\n'
        outputs = f'  main: {{type: elasticsearch, hosts: ["{self._backend.url}"], {PACE}, credential: {backend}}}\n'
        ids = [id for keys in self._doors.values() for id in keys]
        return await self.principal.offer(policy(inputs=inputs, outputs=outputs), *ids, backend)


@asynccontextmanager
async def opened(directory: Path, seed: int) -> AsyncIterator[Campaign]:
    """A campaign in this directory; nothing runs before `Campaign.run`."""
    async with open_asyncio() as aio, open_destination(aio, keys=()) as backend:
        yield Campaign(directory, seed, backend)
