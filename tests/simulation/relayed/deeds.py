"""What a step of the scenario does: one function for each kind, by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

import trio

from tests.simulation.relayed.feeds import Feeds
from tests.simulation.relayed.site import Copy, Site

if TYPE_CHECKING:
    from tests.simulation.relayed.world import World

Do = Callable[["World", Random], Awaitable[None]]

KINDS: dict[str, Do] = {}


def _kind(do: Do) -> Do:
    """The step of this name."""
    KINDS[do.__name__] = do
    return do


def _edge(world: World, random: Random) -> Site:
    return random.choice([world.sites[name] for name in world.scenario.edges])


def _sender(world: World, random: Random) -> Site:
    """An edge, or the principal that is one of another."""
    return random.choice([world.sites[name] for name in world.scenario.senders])


def _principal(world: World, random: Random) -> Site:
    return random.choice([site for site in world.sites.values() if site.of in world.addresses])


@_kind
async def write(world: World, random: Random) -> None:
    """Events at an edge."""
    world.feeds[random.choice(world.scenario.edges)].write(random.choice((1, 3, 10, 40)))


@_kind
async def change(world: World, random: Random) -> None:
    """Keys get other documents, or are deleted."""
    _change(world.feeds[random.choice(world.scenario.edges)], random)


def _change(feeds: Feeds, random: Random) -> None:
    for _ in range(random.choice((1, 3, 10)) if feeds.keys else 0):
        feeds.change(random)


@_kind
async def hot(world: World, random: Random) -> None:
    """One key changes all the time, for a while."""
    feeds, pause = world.feeds[random.choice(world.scenario.edges)], random.choice((0.005, 0.05, 0.3))

    async def go_on() -> None:
        for _ in range(random.randint(5, 40)):
            feeds.change(random, hot=random.random() < 0.8)
            await trio.sleep(random.uniform(0.0, pause))
        feeds.writers -= 1

    feeds.writers += 1
    world.stage.nursery.start_soon(go_on)


@_kind
async def rotate(world: World, random: Random) -> None:
    """Another credential of a sender: a barrier."""
    site = _sender(world, random)
    if site.operator.credential < world.credentials:
        site.operator.rotate()


@_kind
async def tune_principal(world: World, random: Random) -> None:
    """The same policy at a principal, under a new number."""
    _principal(world, random).operator.offer()


@_kind
async def kill(world: World, random: Random) -> None:
    """kill -9, at once."""
    site = random.choice(list(world.sites.values()))
    if site.alive:
        site.crash()


@_kind
async def kill_principal(world: World, random: Random) -> None:
    """In the middle of log events that come."""
    await write(world, random)
    await trio.sleep(random.uniform(0.0, 0.3))
    site = _principal(world, random)
    if site.alive:
        site.crash()


@_kind
async def kill_soon(world: World, random: Random) -> None:
    """kill -9, in the middle of something."""
    random.choice(list(world.sites.values())).crash_in = random.randint(0, 60)


@_kind
async def wall(world: World, random: Random) -> None:
    """The wall clock of an edge jumps; then it is started anew, perhaps."""
    site = _edge(world, random)
    _shift(world, site, random.choice((-3e8, -3600.0, 3600.0, 3e8)))
    if random.random() < 0.7:
        site.crash_in = random.randint(0, 20)


@_kind
async def part(world: World, random: Random) -> None:
    """A sender and its principal cannot reach each other, for some seconds."""
    _part(world, random, random.choice((0.5, 5.0, 20.0)))


@_kind
async def part_for_long(world: World, random: Random) -> None:
    """So long that each side forgets the other."""
    _part(world, random, random.choice((70.0, 150.0)))


def _part(world: World, random: Random, seconds: float) -> None:
    sender = _sender(world, random).name
    pair = (sender, world.addresses[random.choice(world.scenario.principals_of(sender))])
    world.wire.parted.add(pair)
    _later(world, random.uniform(0.0, seconds), lambda: world.wire.parted.discard(pair))


def _later(world: World, seconds: float, do: Callable[[], object]) -> None:
    async def wait() -> None:
        await trio.sleep(seconds)
        do()

    world.stage.nursery.start_soon(wait)


@_kind
async def down(world: World, random: Random) -> None:
    """The backend refuses everything, or log events."""
    name = random.choice(("is_down", "refuses_logs"))
    setattr(world.backend, name, True)
    _later(world, random.uniform(0.1, 20.0), lambda: setattr(world.backend, name, False))


# -- directories that go back ------------------------------------------------------------------------------------------


@_kind
async def edge_goes_back(world: World, random: Random) -> None:
    """And its clock too, perhaps."""
    site = _edge(world, random)
    _goes_back(world, random, site)
    _shift(world, site, random.choice((0.0, 0.0, -3e8)))


def _shift(world: World, site: Site, seconds: float) -> None:
    site.wall_offset += seconds
    if seconds < 0:
        world.stage.note("set_back", of=site.of)


@_kind
async def principal_goes_back(world: World, random: Random) -> None:
    """Perhaps what it took meanwhile was not delivered."""
    site = _principal(world, random)
    if random.random() < 0.7:
        world.backend.is_down = True
    _goes_back(world, random, site)
    for edge in world.feeds:
        world.feeds[edge].write(random.choice((1, 10)))
        _change(world.feeds[edge], random)


def _goes_back(world: World, random: Random, site: Site) -> None:
    """Copy the directory now; some time later the process is killed, and the copy put in its place."""
    if not site.disk.db.total_changes:
        return
    copy = Copy(site.disk)
    world.stage.note("copied", of=site.of)

    def restore() -> None:
        if site.alive:
            site.crash()
        copy.restore(site.disk)
        site.note("went_back", of=site.of)
        world.backend.is_down = False

    world.last_fault = max(world.last_fault, world.stage.clock.now + 30.0)
    _later(world, random.uniform(0.1, 30.0), restore)


@_kind
async def clone(world: World, random: Random) -> None:
    """A second machine begins with a copy of an edge's directory, while the first one lives."""
    site = _edge(world, random)
    if site.disk.db.total_changes and f"{site.of}-clone" not in world.sites:
        world.stage.note("went_back", of=site.of, by="clone")
        world.add_clone(site, Copy(site.disk), random.choice((2.0, 20.0, 90.0)))
