"""Where the product meets the outside: threads, clocks, entropy, the asyncio thread, signals, installed plugins, log.

Each is replaced by name for the time of a world. What runs in a worker thread runs between two pauses instead; of what
blocks there, the pipes, the node says what it does. Whatever else is left of the machine (a socket, a file, a thread)
would make a trace differ, and the tests compare traces.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import trio

from shipper import sidecar
from shipper.control import conversation as control
from shipper.control import outbox
from shipper.pipeline import plan
from shipper.policy.registry import Registry
from shipper.process import log, memory
from shipper.spool import store
from shipper.spool.seal import KEY_ID_BYTES, Sealer
from tests.simulation.backend import SimulatedOutput
from tests.simulation.disk import Disk, SimulatedReaders, SimulatedWriter, opener
from tests.simulation.node import Node
from tests.simulation.stage import Crashed, Stage
from tests.simulation.streams import HoldProcessor, PullInput, PushInput, StampProcessor

WALL = 1_700_000_000.0
_PAIR_BYTES = KEY_ID_BYTES + 12

_REGISTRY = Registry(
    {
        "inputs": {"pull": PullInput, "push": PushInput},
        "processors": {"stamp": StampProcessor, "hold": HoldProcessor},
        "outputs": {"backend": SimulatedOutput},
    }
)


@contextmanager
def simulated(stage: Stage, disk: Disk, node: Node) -> Iterator[None]:
    """The product's outside is this world, for as long as the block runs."""
    entropy = stage.random("entropy")
    threads = _threads(stage, {control._read: node.read, outbox._write: node.write})
    replaced: list[tuple[Any, str, Any]] = [
        (trio.to_thread, "run_sync", threads),
        (trio.lowlevel, "current_trio_token", _Token),
        (time, "time", lambda: WALL + stage.clock.now + stage.wall_offset),
        (time, "clock_gettime", lambda _: stage.boottime),
        (time, "monotonic", stage.clock.current_time),
        (os, "urandom", entropy.randbytes),
        (secrets, "token_bytes", entropy.randbytes),
        (sidecar, "open_asyncio", _no_asyncio),
        (sidecar, "_heed_signals", node.heed_signals),
        (control, "_is_hung_up", lambda _: node.is_hung_up),
        (Registry, "installed", lambda: _REGISTRY),
        (store, "Writer", SimulatedWriter),
        (store, "Readers", lambda path, _: SimulatedReaders(path, disk)),
        (store, "_open", opener(disk)),
        (log, "_log", _Log(stage)),
        (msgspec.structs, "fields", _fields),
        (Sealer, "seal", _watched(stage, Sealer.seal)),
        (plan, "read", _remembering(plan.read)),
        (memory, "give_back", lambda: None),
    ]
    state = random.getstate()
    with ExitStack() as patches:
        for place, name, value in replaced:
            patches.enter_context(mock.patch.object(place, name, value))
        patches.callback(random.setstate, state)
        patches.callback(logging.getLogger().setLevel, logging.getLogger().level)
        random.seed(stage.scenario.seed)
        yield


def _threads(stage: Stage, blocking: dict[Any, Callable[..., Awaitable[Any]]]) -> Callable[..., Awaitable[Any]]:
    async def run_sync(
        function: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False, limiter: Any = None
    ) -> Any:
        if function in blocking:
            return await blocking[function](*args)
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=not abandon_on_cancel):
            await stage.pause("threads")
            if not stage.alive:
                raise Crashed
            result = function(*args)
            await stage.pause("threads")
            return result

    return run_sync


class _Token:
    """The writer is a task, which tells of what is durable in the instant in which it runs."""

    @staticmethod
    def run_sync_soon(function: Callable[..., object], *args: Any) -> None:
        function(*args)


def _watched(stage: Stage, seal: Callable[..., bytes]) -> Callable[..., bytes]:
    """What stands on the disk begins with the id of its key and the nonce: no such pair may seal two texts."""
    sealed_with: dict[bytes, bytes] = {}

    def watched(self: Sealer, kind: str, row: int | str, epoch: int, revision: int, plain: bytes) -> bytes:
        sealed = seal(self, kind, row, epoch, revision, plain)
        if sealed_with.setdefault(sealed[:_PAIR_BYTES], plain) != plain:
            stage.note("nonce_reused", of=kind)
        return sealed

    return watched


@asynccontextmanager
async def _no_asyncio() -> AsyncIterator[None]:
    """No plugin of a simulated world needs it."""
    yield None


_fields_of = cache(msgspec.structs.fields)
"""It evaluates the annotations of a class each time, an eighth of what a world costs."""


def _fields(struct: Any) -> Any:
    """Of a class, or of that of an object."""
    return _fields_of(struct if isinstance(struct, type) else type(struct))


@cache
def _remembering(read: Callable[..., Any]) -> Callable[..., Any]:
    """A process that is started again reads its policies again, and the first ones are the same in many worlds."""
    return lru_cache(maxsize=4096)(read)


class _Log:
    """The log of the product, kept in memory: the real one has a thread, and remembers secrets for ever."""

    def __init__(self, stage: Stage) -> None:
        self.level = log.LEVELS["error"]
        self.secrets: dict[str, None] = {}
        self.render: Callable[[Any], Any] = repr
        self.writer = SimpleNamespace(write=stage.log.append)
