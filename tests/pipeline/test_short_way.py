"""What one event costs on a quiet host, from its file or the entrance to the durable answer: counted, not timed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Answers, Batch
from shipper_plugins.file.input import FileInput
from shipper_plugins.tail import content
from shipper_plugins.tail import pace as gathering
from tests.fakes import DESTINATIONS, REGISTRY, Bench, bench, policy, theatre

PASSES = 8
"""Of trio's loop: two for each hand-over that comes back, and one for each task that goes on."""
PASSES_OF_A_LINE = 10
"""The same, the wake-up by the kernel, and the turn of its file."""
HAND_OVERS = 2
"""To enter, and to settle: each is a commit."""
TIMES = 4


class Passes(trio.abc.Instrument):
    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def fewest_passes(way: Callable[[], Awaitable[None]]) -> int:
    """Of several times: what goes on beside it adds some, above all on a busy machine."""
    counts = []
    for _ in range(TIMES):
        passes = Passes()
        trio.lowlevel.add_instrument(passes)
        await way()
        trio.lowlevel.remove_instrument(passes)
        counts.append(passes.count)
        await trio.sleep(0.1)  # what it began
    return min(counts)


async def settled(on: Bench) -> None:
    """Until an event that enters is settled."""
    await on.enter()
    while on.spool.figures.total().events:
        await on.spool.room.wait()


async def test_an_event_on_a_quiet_host_costs_few_passes_and_hand_overs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main=None)
        await settled(on)
        await trio.sleep(0.1)  # what the first one began
        handed: list[str] = []
        monkeypatch.setattr(on.spool.store, "_submit", _counted(on.spool.store._submit, handed))
        monkeypatch.setattr(on.spool.store._readers, "read", _counted(on.spool.store._readers.read, handed))

        assert await fewest_passes(lambda: settled(on)) <= PASSES
        assert DESTINATIONS["main"].received == [*range(1 + TIMES)]
        assert len(handed) <= TIMES * HAND_OVERS, handed


async def test_a_line_on_a_quiet_host_costs_few_passes_and_hand_overs_and_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REGISTRY._plugins["inputs"], "file", FileInput)
    monkeypatch.setattr(content, "_NOWAIT", 0)  # as if every page were in memory, on every file system
    monkeypatch.setattr(gathering, "TURN", 0.0)  # each line comes after a rest
    log, taken = tmp_path / "app.log", list[int]()
    log.touch()

    async def take(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        taken.append(batch.count)
        return Answers(batch.count)

    async with theatre(tmp_path / "state") as on:

        async def shipped() -> None:
            """Until a line that is written is settled."""
            before = len(taken)
            with log.open("a") as file:
                file.write("a line\n")
            while len(taken) == before or on.spool.figures.total().events:
                await on.spool.room.wait()

        DESTINATIONS["main"].send = take
        await on.offer(1, policy(inputs=f"inputs:\n  in: {{type: file, paths: [{log}]}}\n"))
        await on.ack(1, "active")
        for _ in range(3):
            await shipped()
            await trio.sleep(0.1)  # what the one before began
        handed: list[str] = []
        threads: list[str] = []
        monkeypatch.setattr(on.spool.store, "_submit", _counted(on.spool.store._submit, handed))
        monkeypatch.setattr(on.spool.store._readers, "read", _counted(on.spool.store._readers.read, handed))
        monkeypatch.setattr(trio.to_thread, "run_sync", _counted(trio.to_thread.run_sync, threads))

        assert await fewest_passes(shipped) <= PASSES_OF_A_LINE
        assert taken == [1] * (3 + TIMES)
        assert len(handed) <= TIMES * HAND_OVERS, handed
        assert threads == []


def _counted(call: Callable[..., Any], handed: list[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        handed.append(call.__name__)
        return call(*arguments)

    return counted
