"""The power fails: the kernel and the file system lose all writes that were not synced.

CUTS=200 SEED=7 pytest tests/story/test_story_power.py
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.disks import mortal_disk
from tests.story.driver import Sidecar
from tests.story.revoker import live_shortly
from tests.story.world import open_world

CUTS = int(os.environ.get("CUTS", "6"))
SEED = int(os.environ.get("SEED", "20261121"))


@pytest.mark.root
async def test_after_power_cuts_nothing_is_lost_and_no_released_key_is_used(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        world.state.mkdir()
        with mortal_disk(tmp_path / "image", world.state, 256 << 20) as disk:

            async def die(sidecar: Sidecar) -> None:
                disk.lose_power()
                await sidecar.kill()
                disk.unmount()
                disk.mount()

            await live_shortly(world, CUTS, random.Random(SEED), die)
