"""What simulated destinations note: the oracle judges by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import trio

from shipper.plugin import Batch, Later, OutputContext
from tests.simulation import stage as stages
from tests.simulation.backend import BACKENDS, Backend, SimulatedOutput
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Stage

BATCH = Batch.documents([b'{"stream":"push","number":1,"stamp":1}'], ids=["push-1"])
REQUESTS = 50


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage(replace(Scenario.draw(0), rates={"busy": 1.0}))
    stage.alive = True
    stages.enter(stage)
    BACKENDS["east"] = Backend(stage, "east")
    BACKENDS["east"].valid = {""}
    yield stage
    del BACKENDS["east"]


async def _send(seconds: float) -> None:
    async with SimulatedOutput().open(OutputContext("main", None)) as sender:  # type: ignore[arg-type]
        with trio.move_on_after(seconds), suppress(Later):
            await sender.send(BATCH)


def _sends(stage: Stage, seconds: float) -> list[str]:
    """The kinds of the notes of some requests that are each given up after so long."""

    async def send() -> None:
        for _ in range(REQUESTS):
            await _send(seconds)

    with stage.clock.at_work():
        trio.run(send, clock=stage.clock)
    return [note.kind for note in stage.notes]


def test_a_wait_that_the_shipper_has_heard_is_noted(stage: Stage) -> None:
    kinds = _sends(stage, 60.0)

    assert kinds.count("heard") == REQUESTS
    assert 0 < kinds.count("busy") < REQUESTS


def test_a_wait_asked_of_a_request_that_was_cancelled_before_is_not_noted(stage: Stage) -> None:
    kinds = _sends(stage, 0.0)

    assert kinds.count("request") > 0
    assert kinds.count("busy") == 0
