"""Every command of docs/top.md is run, as it is written there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import trio

from tests.canary import EVENT
from tests.story.world import shipping

TEXT = (Path(__file__).parents[2] / "docs/top.md").read_text()
LISTED, SHOWN = "shipper tap --state ./state", "shipper tap inputs.access --limit 3 --state ./state"
PATIENCE = 60.0


def commands() -> list[str]:
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.S | re.M) for line in block.splitlines()]


async def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said: dict[str, subprocess.CompletedProcess[bytes]] = {}
    async with shipping(tmp_path, "a") as (world, _):

        async def run(command: str) -> None:
            said[command] = await trio.run_process(
                command, shell=True, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_stdout=True, check=False
            )

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for command in commands():
                    nursery.start_soon(run, command)
                while SHOWN not in said:
                    world.write()
                    await trio.sleep(0.05)
        await world.delivered(PATIENCE)

    assert [ended.returncode for ended in said.values()] == [0] * 4
    assert said[LISTED].stdout.split() == [b"inputs.access", b"outputs.main"]
    assert [EVENT in json.loads(line)["message"] for line in said[SHOWN].stdout.splitlines()] == [True] * 3
    assert all(ended.stdout.startswith(b"shipper HEALTHY\n") for name, ended in said.items() if " top " in name)
