"""A world of edges and principals: one scenario, run from its first process to the last answer."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import trio

from shipper.pipeline.delivery.lane import Lane
from shipper.policy.registry import Registry
from shipper_plugins.relay.input import RelayInput
from shipper_plugins.relay.output import RelayOutput
from tests.march.kind import Kind, Violation
from tests.simulation.ports import quiet
from tests.simulation.relayed.backend import Backend, StoreOutput
from tests.simulation.relayed.deeds import KINDS
from tests.simulation.relayed.feeds import COLLECTION, Feeds, LogInput, ShelfInput
from tests.simulation.relayed.oracle import judge
from tests.simulation.relayed.scenario import Relayed
from tests.simulation.relayed.site import Copy, Site, site_of
from tests.simulation.relayed.wire import LIAR, Wire, WireServer, open_client
from tests.simulation.stage import Note, Stage
from tests.simulation.world import Outcome, scheduled

HEALING_SECONDS = 600.0
"""Within which, after the last fault, everything must be delivered and drained."""
SETTLED_SECONDS = 150.0
"""After which nobody waits any more for an answer that was lost."""
TRIAL_SECONDS = 10.0
"""For a key to arrive, while others have much to do."""
CALM = 5
"""Observations, with a second between them, of a world that is at rest."""
CREDENTIALS = 5
"""Of each edge."""

REGISTRY = Registry(
    {
        "inputs": {"log": LogInput, "shelf": ShelfInput, "relay": RelayInput},
        "processors": {},
        "outputs": {"relay": RelayOutput, "store": StoreOutput},
    }
)


class World:
    """All that is in it."""

    credentials = CREDENTIALS - 1
    """That an edge uses before the last one, which is for the end."""

    def __init__(self, scenario: Relayed) -> None:
        self.scenario = scenario
        self.stage = Stage(scenario)
        self.wire = Wire(self.stage)
        self.backend = Backend(self.stage)
        self.addresses = {name: f"127.0.0.1:{7001 + number}" for number, name in enumerate(scenario.hops)}
        self.feeds = {edge: Feeds(self.stage, edge, scenario.keys) for edge in scenario.edges}
        self.sites: dict[str, Site] = {}
        self.last_fault = 0.0

    def populate(self) -> None:
        """Have all machines begin."""
        for name in self.addresses:
            self._add(Site(self.stage, name, name, self._principal(name)))
        for edge in self.scenario.edges:
            self._add(Site(self.stage, edge, edge, self._edge(edge), self.feeds[edge]))

    def _add(self, site: Site) -> None:
        self.sites[site.name] = site
        self.stage.nursery.start_soon(site.operator.keep_alive)

    def add_clone(self, site: Site, copy: Copy, seconds: float) -> None:
        """A machine for so long, with what is on the disk of another one."""
        clone = Site(self.stage, f"{site.of}-clone", site.of, self._edge(site.of), site.feeds)
        clone.operator.revision, clone.operator.credential = site.operator.revision - 1, site.operator.credential
        copy.restore(clone.disk)
        self._add(clone)
        self.last_fault = max(self.last_fault, self.stage.clock.now + seconds)

        async def end() -> None:
            await trio.sleep(seconds)
            clone.operator.is_over = True
            if clone.alive:
                clone.crash()
            del self.sites[clone.name]

        self.stage.nursery.start_soon(end)

    def _edge(self, name: str) -> Any:
        inputs: dict[str, Any] = {"log": {"type": "log"}}
        if self.scenario.keys:
            inputs["shelf"] = {"type": "shelf"}
        return lambda credential: self._policy(inputs, {"principal": self._to_principal(name, credential)})

    def _to_principal(self, name: str, credential: int) -> dict[str, Any]:
        """The output of a sender."""
        hosts = [f"http://{self.addresses[principal]}" for principal in self.scenario.principals_of(name)]
        relay: dict[str, Any] = {"type": "relay", "name": name, "hosts": hosts, "credential": f"{name}-{credential}"}
        return relay | {"backoff": {"first": "50ms", "longest": "2s"}}

    def _principal(self, name: str) -> Any:
        edges = {
            edge: {
                "credentials": [f"{edge}-{number + 1}" for number in range(CREDENTIALS)],
                "collections": [COLLECTION],
                "relays": edge not in self.scenario.edges,
            }
            for edge in self.scenario.senders
            if name in self.scenario.principals_of(edge)
        }
        if self.scenario.lies:
            edges[LIAR] = {"credentials": [LIAR]}
        relay = {"type": "relay", "address": self.addresses[name], "edges": edges}
        relay["acknowledge"] = "delivered" if self.scenario.is_delivered_by(name) else "stored"

        def policy(credential: int) -> dict[str, Any]:
            is_end = name in self.scenario.ends
            output = {"type": "store"} if is_end else self._to_principal(name, credential)
            return self._policy({"edges": relay}, {"store" if is_end else "principal": output})

        return policy

    def _policy(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": 1,
            "inputs": inputs,
            "outputs": outputs,
            "queue": {"max_bytes": f"{self.scenario.queue_bytes}B"},
            "log_level": "error",
        }

    # -- its course ----------------------------------------------------------------------------------------------------

    async def live(self) -> list[Violation]:
        """From the first process to the last answer."""
        violations: list[Violation] = []
        with quiet(self.stage):
            async with trio.open_nursery() as self.stage.nursery:
                self.populate()
                for step in self.scenario.steps:
                    await trio.sleep_until(step.at)
                    self.stage.note("step", kind=step.kind)
                    self.stage.faults[f"step {step.kind}"] += 1
                    await KINDS[step.kind](self, step.random())
                await trio.sleep_until(self.last_fault + 1.0)
                await self._heal()
                violations += await self._others_go_on()
                with trio.move_on_after(HEALING_SECONDS) as patience:
                    await self._come_to_rest()
                if patience.cancelled_caught:
                    violations.append(Violation("L1", f"not at rest {HEALING_SECONDS:.0f} s after the last fault"))
                for site in list(self.sites.values()):
                    site.kill()
                self.stage.nursery.cancel_scope.cancel("the world is over")
        return violations

    async def _heal(self) -> None:
        """All faults end; each edge gets one last policy, under which everything must be delivered."""
        self.stage.healed = True
        self.backend.is_down = self.backend.refuses_logs = False
        for site in self.sites.values():
            site.crash_in = None
        await self.stage.until(lambda: all(site.alive for site in self.sites.values()))
        await self.stage.until(lambda: not any(feeds.writers for feeds in self.feeds.values()))
        self.stage.note("healed")

    async def _others_go_on(self) -> list[Violation]:
        """While log events have no way on, or one key changes all the time, other keys go on."""
        if self.scenario.trial is None or not self.scenario.keys:
            return []
        edges = [self.sites[name] for name in self.scenario.edges]
        await self._all_read(edges)
        await trio.sleep(SETTLED_SECONDS)
        with trio.move_on_after(HEALING_SECONDS):
            await self._calm()
        self.backend.refuses_logs = self.scenario.trial == "full"
        draw = self.stage.random("trial")
        async with trio.open_nursery() as nursery:
            for edge in edges:
                feeds = self.feeds[edge.of]
                if self.scenario.trial == "full":
                    nursery.start_soon(_write_much, feeds)
                else:
                    nursery.start_soon(_change_much, feeds, draw)
            await trio.sleep(TRIAL_SECONDS)
            since = len(self.stage.notes)
            wanted = {
                (self.scenario.owner(edge.of), feeds.keys[-1], feeds.replace(feeds.keys[-1]))
                for edge in edges
                for feeds in [edge.feeds]
                if feeds
            }
            with trio.move_on_after(TRIAL_SECONDS) as patience:
                for owner, key, number in sorted(wanted):
                    await self.stage.noted(lambda note, at=(owner, key, number): _applied(note) == at, since)  # type: ignore[misc]
            nursery.cancel_scope.cancel()
        self.backend.refuses_logs = False
        text = (
            f"a key was not at the backend {TRIAL_SECONDS:.0f} s after its change, in the trial {self.scenario.trial}"
        )
        return [Violation("F1", text)] if patience.cancelled_caught else []

    async def _all_read(self, edges: Iterable[Site]) -> None:
        for edge in edges:
            await self.stage.until(lambda edge=edge: self._is_read(edge))  # type: ignore[misc]

    async def _come_to_rest(self) -> None:
        """The edges have accepted all, and all who relay have drained; then nothing waits anywhere."""
        await self._all_read([self.sites[name] for name in self.scenario.edges])
        senders = [self.sites[name] for name in self.scenario.senders]
        for site in senders:
            site.operator.credential = CREDENTIALS
            site.operator.offer()
        for site in senders:
            await self.stage.until(lambda site=site: site.operator.drained == site.operator.revision)  # type: ignore[misc]
        await self._calm()
        self.stage.note("at_rest")

    async def _calm(self) -> None:
        """Ask until every sender has a principal and nothing waits anywhere, for a while.

        What both sides find when they compare waits a moment later, and what a principal takes back from another one is
        compared once more.
        """
        calm = 0
        while calm < CALM:
            since = len(self.stage.notes)
            for site in self.sites.values():
                site.operator.say({"type": "observe"})
                await site.noted(lambda note, site=site: _observed(note, site.name), since)  # type: ignore[misc]
            is_calm = all(_is_calm(site.operator.observed) for site in self.sites.values())
            calm = calm + 1 if is_calm else 0
            await trio.sleep(1.0)

    def _is_read(self, edge: Site) -> bool:
        feeds = self.feeds[edge.of]
        return edge.read_upto >= feeds.written and edge.kept_upto >= len(feeds.changed)


def _observed(note: Any, site: str) -> bool:
    facts = note.facts
    return note.kind == "said" and facts["site"] == site and facts["message"]["type"] == "observed"


def _is_calm(observed: dict[str, Any]) -> bool:
    are_connected = all(one["connected_seconds"] is not None for one in observed.get("principals", ()))
    return are_connected and observed["queue"]["events"] == 0


def _applied(note: Note) -> tuple[str, str, int] | None:
    facts = note.facts
    return (facts["owner"], facts["key"], facts["number"]) if note.kind == "applied" else None


async def _write_much(feeds: Feeds) -> None:
    """More than the queues have room for."""
    while True:
        feeds.write(20)
        await trio.sleep(0.2)


async def _change_much(feeds: Feeds, random: Random) -> None:
    while True:
        feeds.change(random, hot=True)
        await trio.sleep(random.uniform(0.0, 0.1))


_current: list[World] = []


def current() -> World:
    """The world that runs now."""
    return _current[-1]


class Relaid(Outcome):
    """What became of a world of many machines."""

    @property
    def processes(self) -> int:
        """On all machines."""
        return len({(note.facts["site"], note.life) for note in self.notes if "site" in note.facts and note.life})

    @property
    def events(self) -> int:
        """How many were written at all edges."""
        return sum({note.facts["edge"]: note.facts["upto"] for note in self.notes if note.kind == "written"}.values())

    @cached_property
    def barriers(self) -> int:
        """How many `drained` were said of a barrier."""
        said = [(note.facts["site"], note.facts["message"]) for note in self.notes if note.kind == "said"]
        acks = [(site, ack) for site, ack in said if ack.get("stage") == "drained" and ack["change"] == "barrier"]
        return len({(site, ack["revision"]) for site, ack in acks})


def run(scenario: Relayed) -> Outcome:
    """Run a world and judge it. Deterministic: the same scenario has the same notes."""
    world = World(scenario)
    _current[:] = [world]
    stage = world.stage
    violations: list[Violation] = []
    was_on = gc.isenabled()
    gc.disable()
    try:
        with scheduled(scenario.seed), _machine(stage), stage.clock.at_work():
            violations += trio.run(world.live, clock=stage.clock)
    finally:
        for site in world.sites.values():
            site.disk.db.close()
        if was_on:
            gc.enable()
    violations += judge(stage.notes, scenario)
    return Relaid(scenario, violations, stage.notes, stage.faults, stage.log)


@contextmanager
def _machine(stage: Stage) -> Iterator[None]:
    """What the plugins take from the machine by themselves: time, randomness, threads, sockets, the client of HTTP."""
    with ExitStack() as stack:
        for name, value in {
            "time.monotonic": stage.clock.current_time,
            "os.urandom": stage.random("urandom").randbytes,
            "random.uniform": stage.random("jitter").uniform,
            "trio.to_thread.run_sync": _at_once,
            "shipper.pipeline.intake.listeners.Listeners.get": _listen,
            "shipper.pipeline.intake.listeners.Listeners.release": lambda self, user: None,
            "shipper.sdk.http.open_client": open_client,
            "shipper_plugins.relay.principal.server.RelayServer": WireServer,
            "shipper_plugins.relay.principal.server._BIG": 1 << 30,
            "shipper.pipeline.delivery.lane.Lane.notice": _noticed,
        }.items():
            stack.enter_context(mock.patch(name, value))
        yield


def _noticed(lane: Lane, text: str | None, code: str, show: Any = Lane.notice) -> None:
    """What an edge wants people to see of its principal."""
    site_of(lane._means.aio).note("noticed", link=lane.id, code=code)
    show(lane, text, code)


async def _at_once(function: Any, *arguments: Any, **options: Any) -> Any:
    await trio.lowlevel.checkpoint()
    result = function(*arguments)
    await trio.lowlevel.checkpoint()
    return result


async def _listen(self: object, user: object, name: str, endpoint: Any, **options: Any) -> Any:
    return SimpleNamespace(host=endpoint.host, port=endpoint.port)


WORLDS = Kind("python -m tests.simulation.relayed", Relayed.draw, run, slice=5)
