"""Scrapes of the real process while keys are revoked and lines do not parse."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest
import trio

from tests.story.driver import Sidecar, launched
from tests.story.world import World, open_world, secret

PARSING = "processors:\n  - {type: parse, format: json}\n"


async def scraped(address: str) -> dict[str, float]:
    def scrape() -> str:
        with urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    rows = [line.rsplit(" ", 1) for line in (await trio.to_thread.run_sync(scrape)).splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in rows}


async def offer(world: World, sidecar: Sidecar, revision: int, name: str, more: str) -> None:
    await sidecar.policy(revision, world.text(name, more=more), {name: secret(name)})


@pytest.mark.parametrize("kind", ["401", "unreachable"])
async def test_what_a_destination_refuses_or_does_not_answer_is_counted(tmp_path: Path, kind: str) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state, "--http", "127.0.0.1:0") as sidecar:
        address = (await sidecar.hello())["http"]
        await offer(world, sidecar, 1, "a", "")
        world.write(3)
        await world.delivered()
        await sidecar.holds(0)
        if kind == "401":
            world.revoke("a")
        else:
            await world.destination.stop()
        world.write(2)
        held = await sidecar.state(lambda m: m["state"] == "DEGRADED")
        seen = await scraped(address)
        figures = (await sidecar.action("diagnostics"))["result"]

    label = f'responses_total{{code="{kind}"' if kind == "401" else f'failures_total{{output="main",reason="{kind}"'
    name = next(name for name in seen if name.startswith(f"shipper_output_{label}"))
    assert held["queue"]["events"] == 2
    assert seen[name] >= 1
    assert seen['shipper_output_responses_total{code="200",output="main"}'] >= 1
    assert seen['shipper_output_held{output="main"}'] == (kind == "401")
    assert seen['shipper_input_events_total{input="access"}'] == 5
    count, total = (seen[f'shipper_output_request_seconds_{what}{{output="main"}}'] for what in ("count", "sum"))
    assert count == sum(value for name, value in seen.items() if name.startswith("shipper_output_responses")) + sum(
        value for name, value in seen.items() if name.startswith("shipper_output_failures")
    )
    assert total > 0
    assert figures["outputs"]["main"]["requests"] >= count
    assert figures["inputs"]["access"]["events"] == 5


async def test_lines_that_do_not_parse_are_counted_for_their_input(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state, "--http", "127.0.0.1:0") as sidecar:
        address = (await sidecar.hello())["http"]
        await offer(world, sidecar, 1, "a", PARSING)
        world.log.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(5)) + "no JSON\n{\n")
        await world.destination.wait_for(7)
        seen = await scraped(address)

    assert seen['shipper_input_events_total{input="access"}'] == 7
    assert seen['shipper_input_bytes_total{input="access"}'] == world.log.stat().st_size
    assert seen['shipper_input_failures_total{input="access"}'] == 2
