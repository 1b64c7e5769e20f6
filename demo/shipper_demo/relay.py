"""`shipper demo relay`: two edges relay logs and keyed state over a principal, and all that can happen to them happens.

log, machines ──> edge berlin ──> wire ──┐                              ┌──> record ──> a tally for each edge
                                         ├──> principal ──> wire ──> backend
log, machines ──> edge paris ───> wire ──┘                              └──> the last word of each key
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio

from shipper_demo.backend import Backend, Record, opened
from shipper_demo.hop import Edge, Principal
from shipper_demo.key import Key
from shipper_demo.ports import free_port
from shipper_demo.screen import BAD, Figure, Row, Screen
from shipper_demo.show import heed_signals
from shipper_demo.sidecar import Sidecar
from shipper_demo.wire import Wire

WHAT = """\
shipper demo relay: two edges relay their logs and their keyed state to a principal, which delivers them to a backend.

  Each is a `shipper run` with a state directory of its own. While the logs grow and documents are written, changed and
  removed, connections are cut, processes are killed (kill -9) and started again, and every key is replaced and revoked
  in the instant in which it is released.

  It takes less than a minute; Ctrl-C ends it earlier, with the same count at the end.
"""
COUNT = "\nThe lines of each edge's log and the documents of its directory, against what the backend itself took:\n"
GOOD = """
As promised: no event was lost, none came twice, of each document the last word arrived, and no request met a revoked
key.
"""
_LATEST_STEP = 30.0
"""Seconds after which no other step begins: on a slow machine fewer things happen."""
_CAUGHT_UP = 10.0
_STUCK = 10.0
_CUT_SECONDS = 2.0
_LOOK_SECONDS = 0.1

Step = Callable[[], Awaitable[str]]


async def show(directory: Path, rate: int, screen: Screen) -> int:
    """Returns 0 if every figure is as promised, else 1; see `shipper_demo.show.show`."""
    async with trio.open_nursery() as nursery:
        over = trio.Event()
        await nursery.start(heed_signals, over)
        screen.tell(WHAT)
        record = Record(directory / "record.ndjson")
        async with opened(record) as backend:
            story = Story(directory, rate, screen, record, over)
            await story.run(backend)
        good = await story.conclude()
        nursery.cancel_scope.cancel("the demo is over")
    return 0 if good else 1


class Story:
    """What happens, and what is counted at the end."""

    def __init__(self, directory: Path, rate: int, screen: Screen, record: Record, over: trio.Event) -> None:
        self._rate = rate
        self._screen = screen
        self._over = over
        self._wire = Wire()
        self._directory = directory
        self._record = record
        self.edges = [Edge(name, directory, record.path) for name in ("berlin", "paris")]
        self._keys = 0
        self._refused: list[int] = []
        """What the replaced keys were answered since."""
        self._begun = self._moved = trio.current_time()
        self._doing = "the logs grow"
        self._looked = trio.Event()
        """Set, and made anew, whenever the record was read."""
        self._principal: Principal
        self._backend: Backend

    async def run(self, backend: Backend) -> None:
        """Everything between the start of the backend and its end."""
        self._backend = backend
        with ExitStack() as logs:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._wire.serve, self._backend.port)
                key = await self._backend_key()
                self._principal = Principal(self._directory, free_port(), self._wire.port, key)
                for edge in self.edges:
                    logs.enter_context(edge.log)
                    await nursery.start(edge.wire.serve, self._principal.port)
                await self._start(nursery)
                nursery.start_soon(self._look)
                await self._tell_the_story(nursery)
                await self._settled()
                for sidecar in (*(edge.sidecar for edge in self.edges), self._principal.sidecar):
                    await sidecar.end()
                nursery.cancel_scope.cancel("the demo is over")

    async def _start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._principal.sidecar.run)
        for edge in self.edges:
            self._principal.admit(edge.name, edge.key)
        await self._principal.change()
        for edge in self.edges:
            await nursery.start(edge.sidecar.run)
            await edge.use(edge.key)

    async def _tell_the_story(self, nursery: trio.Nursery) -> None:
        berlin, paris = self.edges
        principal = self._principal.sidecar

        async def kill(*victims: Sidecar) -> str:
            for sidecar in victims:
                await sidecar.kill()
            under_way = sum(edge.under_way for edge in self.edges)
            for sidecar in victims:
                await nursery.start(sidecar.run)
            return f"{under_way:,} lines under way; {await self._caught_up()}"

        steps: list[tuple[str, Step]] = [
            ("berlin's connection is cut", lambda: self._cut(berlin)),
            ("the principal is killed", lambda: kill(principal)),
            ("berlin's key is replaced", lambda: self._rotate_edge(berlin)),
            ("berlin is killed", lambda: kill(berlin.sidecar)),
            ("the backend's key is replaced", self._rotate_backend),
            ("paris' key is replaced, while it is cut off", lambda: self._rotate_cut_off(paris)),
            ("everything is killed at once", lambda: kill(*self._sidecars)),
        ]
        async with self._growing():
            await trio.sleep(1.0)
            for name, step in steps:
                if self._over.is_set() or trio.current_time() > self._begun + _LATEST_STEP:
                    break
                since, self._doing = trio.current_time() - self._begun, name
                self._screen.say(f"  {since:>5.1f} s  {name:<45}{await step()}")

    @property
    def _sidecars(self) -> list[Sidecar]:
        return [self._principal.sidecar, *(edge.sidecar for edge in self.edges)]

    @asynccontextmanager
    async def _growing(self) -> AsyncIterator[None]:
        """The logs grow, and documents change, as long as the block runs."""
        async with trio.open_nursery() as nursery:
            for edge in self.edges:
                nursery.start_soon(edge.log.grow, self._rate)
                nursery.start_soon(edge.inventory.change)
            yield
            nursery.cancel_scope.cancel("the story is told")

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _cut(self, edge: Edge) -> str:
        edge.wire.cut()
        await trio.sleep(_CUT_SECONDS)
        under_way = edge.under_way
        edge.wire.mend()
        return f"for {_CUT_SECONDS:g} s; {under_way:,} lines under way; {await self._caught_up()}"

    async def _rotate_edge(self, edge: Edge) -> str:
        """The door takes both keys, the edge changes, and what it released is revoked at the door."""
        old, new = edge.key, self._drawn(edge.name)
        self._principal.admit(edge.name, new)
        await self._principal.change()
        revision = await edge.use(new)
        said = await edge.sidecar.reached(revision, "drained")
        self._principal.revoke(edge.name, old)
        await self._principal.sidecar.reached(await self._principal.change(), "drained")
        return self._revoked(old, said["ledger"]["accepted"], await self._principal.answer_to(old))

    async def _rotate_backend(self) -> str:
        old, self._principal.key = self._principal.key, await self._backend_key()
        said = await self._principal.sidecar.reached(await self._principal.change(), "drained")
        await self._backend.revoke(old)
        return self._revoked(old, said["ledger"]["accepted"], await self._backend.answer_to(old))

    async def _rotate_cut_off(self, edge: Edge) -> str:
        """Its `drained` waits until it can reach the principal again."""
        async with trio.open_nursery() as nursery:

            async def mend() -> None:
                await trio.sleep(_CUT_SECONDS)
                edge.wire.mend()

            edge.wire.cut()
            nursery.start_soon(mend)
            return await self._rotate_edge(edge)

    async def _backend_key(self) -> Key:
        key = self._drawn("backend")
        await self._backend.admit(key)
        return key

    def _drawn(self, of: str) -> Key:
        self._keys += 1
        return Key.drawn(f"{of}-key-{self._keys}")

    def _revoked(self, old: Key, waited_for: int, answer: int) -> str:
        self._refused.append(answer)
        return f"drained, after {waited_for:,} events; {old.name} is revoked, and answered {answer}"

    # -- what is seen --------------------------------------------------------------------------------------------------

    async def _caught_up(self) -> str:
        """Wait until all has arrived that was written before."""
        wanted, since = [edge.log.written for edge in self.edges], trio.current_time()
        with trio.move_on_after(_CAUGHT_UP):
            while any(edge.tally.delivered < lines for edge, lines in zip(self.edges, wanted, strict=True)):
                await self._looked.wait()
            return f"all there after {trio.current_time() - since:.1f} s"
        return f"not all there after {_CAUGHT_UP:g} s"

    async def _look(self) -> None:
        """Read the record while it grows."""
        while True:
            if any([await trio.to_thread.run_sync(edge.tally.read) for edge in self.edges]):
                self._moved = trio.current_time()
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep(_LOOK_SECONDS)
            seen = (f"{edge.name} {edge.tally.delivered:,} of {edge.log.written:,}" for edge in self.edges)
            self._screen.progress(f"    {self._doing}: {', '.join(seen)} delivered")

    async def _settled(self) -> None:
        """Wait until everything has arrived, or until nothing moves any more."""
        self._doing = "the last of them arrives"
        self._moved = trio.current_time()
        while self._is_under_way() and trio.current_time() < self._moved + _STUCK:
            await self._looked.wait()

    def _is_under_way(self) -> bool:
        return any(edge.under_way or self._equal(edge) < len(edge.inventory.documents) for edge in self.edges)

    def _equal(self, edge: Edge) -> int:
        return edge.inventory.equal(self._record.state(edge.name))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def conclude(self) -> bool:
        """Show the table; whether everything was as promised."""
        for edge in self.edges:
            while await trio.to_thread.run_sync(edge.tally.read):
                pass
        rows, figures = self._rows(), self._figures()
        good = all(row.good is not False for row in rows) and all(figure.good is not False for figure in figures)
        self._screen.say(COUNT)
        self._screen.columns([edge.name for edge in self.edges], rows)
        self._screen.say("")
        self._screen.figures(figures)
        self._screen.say(GOOD if good else BAD, "bold" if good else "bold red")
        return good

    def _rows(self) -> list[Row]:
        """A column for each edge; a row is what is counted of each."""
        tallies = [edge.tally for edge in self.edges]
        lost = [edge.under_way for edge in self.edges]
        keys = [len(edge.inventory.documents) for edge in self.edges]
        equal = [self._equal(edge) for edge in self.edges]
        double = [tally.double + tally.shared_ids + tally.foreign for tally in tallies]
        return [
            Row("accepted", [edge.log.written for edge in self.edges]),
            Row("delivered", [tally.delivered for tally in tallies]),
            Row("lost", lost, not any(lost)),
            Row("double", double, not any(double)),
            Row("keys of state", keys),
            Row("state equal", equal, equal == keys),
        ]

    def _figures(self) -> list[Figure]:
        answers = [wire.answers for wire in (self._wire, *(edge.wire for edge in self.edges))]
        refused, requests = sum(a[401] + a[403] for a in answers), sum(a.total() for a in answers)
        revoked = self._refused.count(401)
        every = len(self._refused)
        return [
            Figure("keys revoked", revoked, f"of {every} replaced, each refused since (401)", revoked == every),
            Figure("requests refused", refused, f"of {requests:,}, on both hops", refused == 0),
        ]
