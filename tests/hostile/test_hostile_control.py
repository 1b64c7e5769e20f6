"""For any bytes on standard input the sidecar lives, answers each line once, and holds no more memory than it may."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shipper.protocol.messages import MAX_LINE_BYTES
from tests.hostile.frames import Frame, frame, understood
from tests.hostile.rounds import frames_round
from tests.hostile.talk import talking
from tests.story.driver import Sidecar, launched, policy

GOOD = policy(inputs="", outputs="  main: {type: console}\n")


async def test_every_line_of_a_flood_is_answered_as_it_deserves() -> None:
    assert (await frames_round(seed=0, count=800)).figures == {"frames": 800}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.binary(max_size=300), max_size=20), cut=st.integers(1, 5000))
def test_any_bytes_cut_anywhere_are_one_error_a_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cut: int
) -> None:
    frames = [Frame(line, understood(line)) for part in lines for line in part.split(b"\n")]
    wanted = list(range(2, 2 + len(frames)))
    raw = b"".join(frame.line + b"\n" for frame in frames)

    async def talk() -> None:
        async with talking(tmp_path_factory.mktemp("state") / "state") as talk:
            for at in range(0, len(raw), cut):
                await talk.stdin.send_all(raw[at : at + cut])
            talk.lines += len(frames)
            await talk.answers([])
            assert sorted(talk.errors.elements()) == wanted

    trio.run(talk)


# -- the real process --------------------------------------------------------------------------------------------------


async def alive(sidecar: Sidecar) -> None:
    """What ran before runs on."""
    observed = await sidecar.observe()
    assert observed["revisions"]["active"] == [0, 1]
    assert [unit["state"] for unit in observed["units"]] == ["HEALTHY"]


def memory(sidecar: Sidecar) -> int:
    """The most memory that it ever had, in bytes."""
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.executed
async def test_a_line_of_a_hundred_megabytes_and_one_without_end_take_no_memory(tmp_path: Path) -> None:
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, GOOD)
        await sidecar.ack(1, "drained")
        before = memory(sidecar)
        stdin = sidecar.process.stdin
        assert stdin is not None
        for _ in range(100):
            await stdin.send_all(b"x" * (1 << 20))
        await sidecar.send(b"")
        error = await sidecar.wait(lambda m: m["type"] == "error")
        await alive(sidecar)
        for _ in range(50):
            await stdin.send_all(b'{"type":"observe","x":"' * 40_000)
        grown = memory(sidecar) - before
        await stdin.aclose()
        with trio.fail_after(60):
            status = await sidecar.process.wait()

    assert (error["line"], status) == (3, 0)
    assert str(MAX_LINE_BYTES) in error["message"]
    assert grown < 32 << 20


async def test_hostile_lines_change_nothing_for_the_pipeline_that_runs(tmp_path: Path) -> None:
    draw = random.Random(11)
    frames = [frame(draw, number) for number in range(10_000, 10_300)]
    harmless = [f for f in frames if f.is_answered and (f.message is None or type(f.message).__name__ == "Hello")]
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        await sidecar.policy(1, GOOD)
        await sidecar.ack(1, "drained")
        for one in harmless:
            await sidecar.send(one.line)
        await alive(sidecar)
        await sidecar.stop()
    lines = [message["line"] for message in sidecar.said if message["type"] == "error"]

    assert len(harmless) > 100
    assert lines == list(range(3, 3 + len(harmless)))


@pytest.mark.executed
async def test_a_flood_of_empty_and_small_lines_is_answered_and_forgotten(tmp_path: Path) -> None:
    """A supervisor that reads its answers gets one for each line, be it empty; memory stays."""
    async with launched(tmp_path / "state") as sidecar:
        await sidecar.hello()
        before = memory(sidecar)
        for _ in range(4):
            await sidecar.send(b"\n" * 4999)
            await sidecar.send(b"\n".join([b"{}"] * 500))
        await sidecar.send(json.dumps({"type": "action", "id": "end", "name": "explode"}).encode())
        await sidecar.wait(lambda m: m["type"] == "result" and m["id"] == "end")
        grown = memory(sidecar) - before
        await sidecar.stop()

    assert sum(message["type"] == "error" for message in sidecar.said) == 22_000
    assert grown < 16 << 20
