"""A new generation of the database is begun, filled and named, and the power fails at any call.

The disk keeps any part of what was not synced; see `tests/story/test_story_torn.py` for a whole sidecar.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from shipper.spool.store import open_store
from tests.journal import Sent, read, tracer
from tests.torn import cuts, lay_out

CUTS = int(os.environ.get("CUTS", "40"))
SEED = int(os.environ.get("SEED", "20261121"))


def prepare(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS entry (number INTEGER PRIMARY KEY, body BLOB)")


PROGRAM = """
import os, sys
from pathlib import Path
import trio
from shipper.spool.store import open_store
from tests.spool.test_spool_torn import prepare

async def main():
    async with open_store(Path(sys.argv[1]), None, prepare=prepare) as store:
        for number in range(20):
            body = os.urandom(3000 * number)
            await store.do(lambda db: db.execute("INSERT INTO entry VALUES (?, ?)", (number, body)))
            os.write(1, b"stored %d" % number)
            if number % 4 == 3:
                await store.repair()

trio.run(main)
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """That of `PROGRAM` on tmp_path / "state"."""
    (tmp_path / "state").mkdir()
    command = [*tracer(tmp_path / "trace"), sys.executable, "-c", PROGRAM, str(tmp_path / "state")]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return tmp_path / "trace"


@pytest.mark.root
async def test_a_power_cut_while_generations_change_loses_nothing_that_was_durable(trace: Path, tmp_path: Path) -> None:
    steps = list(read(trace, tmp_path / "state"))
    (tmp_path / "cut").mkdir()
    for place, left in cuts(steps, {}, CUTS, random.Random(SEED)):
        lay_out(tmp_path / "cut", left)
        sent = (step.content for step in steps[:place] if isinstance(step, Sent))
        said = {text for text in sent if text.startswith(b"stored ")}  # else modules that it compiled are among it
        async with open_store(tmp_path / "cut", None, prepare=prepare) as store:
            numbers = await store.read(lambda db: [row[0] for row in db.execute("SELECT number FROM entry")])

            assert store.report is None, place
            assert {b"stored %d" % number for number in numbers} >= said, place
            assert not [name for name in os.listdir(tmp_path / "cut") if name.startswith("quarantine-")], place
