"""The other side of the product's door: threads, clocks, entropy, the pipes, signals and plugins of a world.

The product gets all that as arguments (`sidecar.Outside`). What runs in a worker thread runs between two pauses; a
thread that only watches is not started. Whatever else is left of the machine (a socket, a file, a thread) would make a
trace differ, and the tests compare traces.

Patched by name, for the time of a world, is only what has no such door: the log, of which a process has one for all its
modules; constants of the product that a scenario makes small (`world`); and of trio the order of its tasks (`world`)
and its look at the selector and at instruments (`clock`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast
from unittest import mock

import trio

from shipper.control.pipes import Stdin, Stdout
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.environment import Environment, InThread
from shipper.sdk.aio import Asyncio
from shipper.sidecar import Outside
from tests.simulation.backend import SimulatedOutput
from tests.simulation.disk import Disk, SimulatedDisk
from tests.simulation.node import Node
from tests.simulation.stage import Crashed, Stage
from tests.simulation.streams import HoldProcessor, PullInput, PushInput, StampProcessor
from tests.simulation.things import NAME, ThingsInput

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WALL = 1_700_000_000.0

_REGISTRY = Registry(
    {
        "inputs": {"pull": PullInput, "push": PushInput, NAME: ThingsInput},
        "processors": {"stamp": StampProcessor, "hold": HoldProcessor},
        "outputs": {"backend": SimulatedOutput},
    }
)


def outside(stage: Stage, disk: Disk, node: Node) -> Outside:
    """This world, as the product sees it."""
    environment = Environment(
        wall=lambda: WALL + stage.clock.now + stage.wall_offset,
        monotonic=stage.clock.current_time,
        boottime=lambda: stage.boottime,
        entropy=stage.random("entropy").randbytes,
        draw=stage.random("waits"),
        in_thread=_in_thread(stage),
        start_thread=lambda function, name: None,
        to_loop=lambda: _at_once,
        give_back=lambda: None,
    )
    return Outside(
        stdin=cast(Stdin, node),
        stdout=cast(Stdout, node),
        environment=environment,
        disk=SimulatedDisk(disk),
        signals=node.signals,
        asyncio=_no_asyncio,
        plugins=lambda: _REGISTRY,
    )


@contextmanager
def quiet(stage: Stage) -> Iterator[None]:
    """What the process logs is kept by the stage, for as long as the block runs."""
    level = logging.getLogger().level
    try:
        with mock.patch.object(log, "_log", _Log(stage)):
            yield
    finally:
        logging.getLogger().setLevel(level)


def _in_thread(stage: Stage) -> InThread:
    async def in_thread(
        function: Callable[[Unpack[Ts]], T], /, *args: *Ts, abandon_on_cancel: bool = False, limiter: Any = None
    ) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=not abandon_on_cancel):
            await stage.pause("threads")
            if not stage.alive:
                raise Crashed
            result = function(*args)
            await stage.pause("threads")
        return result

    return in_thread


def _at_once(function: Callable[..., object], *args: Any) -> None:
    """The writer is a task, which tells of what is durable in the instant in which it runs."""
    function(*args)


@asynccontextmanager
async def _no_asyncio() -> AsyncIterator[Asyncio]:
    """No plugin of a simulated world needs it."""
    yield cast(Asyncio, None)


class _Log:
    """The log of the product, kept in memory: the real one has a thread, and remembers secrets for ever."""

    def __init__(self, stage: Stage) -> None:
        self.level = log.LEVELS["error"]
        self.secrets: dict[str, None] = {}
        self.render: Callable[[Any], Any] = repr
        self.follow = None
        self.writer = SimpleNamespace(write=lambda line, level: stage.log.append(line))
