"""What an input has emitted in vain is freed at once, with the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.plugin import Batch, InputContext
from tests.fakes import DESTINATIONS, SPRINGS, Theatre, theatre
from tests.freed import Failed, failed

_POLICY = "version: 1\ninputs:\n  in: {type: relaying}\noutputs:\n  main: {type: scripted, to: main}\n"
_STAGE = "processors: [{type: stage}]\n"
stages = pytest.mark.parametrize("more", ["", _STAGE], ids=["no stage", "a stage"])


async def begun(on: Theatre, text: str) -> InputContext:
    await on.offer(1, text)
    await on.ack(1, "active")
    await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
    return SPRINGS["in"].context


def batch() -> Batch:
    return Batch.events([{"n": 1, "message": "x" * 100_000}])


def is_freed(ended: Failed, error: str) -> None:
    assert ended.error.partition(":")[0] == error
    assert not ended.left


@stages
async def test_at_a_position_that_is_not_expected(tmp_path: Path, more: str) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on, _POLICY + more)
        ended = await failed(lambda: context.emit(batch(), positions={"k": b"2"}, expect={"k": b"1"}))

        is_freed(ended, "Outdated")


@stages
async def test_where_it_is_none(tmp_path: Path, more: str) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on, _POLICY + more)
        ended = await failed(lambda: context.emit(batch(), "no batch"))  # type: ignore[arg-type]

        is_freed(ended, "PluginFault")


async def test_where_there_is_no_room(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on, _POLICY + "queue: {max_bytes: 1KiB}\n")
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await context.emit(batch(), wait=False)
        ended = await failed(lambda: context.emit(batch(), wait=False))

        is_freed(ended, "Backpressure")


async def test_where_the_disk_is_full(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        context = await begun(on, _POLICY)
        on.spool.store.problem = "disk full: intake waits"
        ended = await failed(lambda: context.emit(batch(), wait=False))
        on.spool.store.problem = None

        is_freed(ended, "Backpressure")
