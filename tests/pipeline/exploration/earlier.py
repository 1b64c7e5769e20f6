"""Rows of the last version in which a lane had log events and keyed state.

    python -m tests.pipeline.exploration.earlier      # with the code of that version (8cd14308): writes `earlier.sql`

The first revision has a batch, of which one event waits, and a version; the second one has the same at another
destination, with another credential, and a newer version.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

KEPT = Path(__file__).with_suffix(".sql")
ENTERED = {0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2}
"""By event, its revision; 1 was delivered."""
VERSIONS = [2, 5]
GOT = {1: 1}


def fill(db: sqlite3.Connection) -> None:
    """Makes the tables, and the rows."""
    for statement in KEPT.read_text().split(";\n"):
        if statement.strip() not in ("", "BEGIN TRANSACTION", "COMMIT"):
            db.execute(statement)


def _make() -> sqlite3.Connection:
    from tests.pipeline.exploration.world import Stage
    from tests.pipeline.exploration.worlds import WORLDS

    stage = Stage()
    world = WORLDS["keyed state beside log events"]()
    world.left.arrivals, world.left.cuts = 2, ("be",)
    stage.start(world)
    for act in ("arrive", "1: go on", "1: fetch", "1: take", "1: load 0", "1> 0 first later", "1: note 0"):
        stage.taken()
        stage.do(act)
    for act in ("change", "keep", "cut", "arrive", "change", "keep"):
        stage.do(act)
    assert stage.world.entered == ENTERED
    assert stage.world.versions == VERSIONS
    assert stage.world.got == GOT
    return stage.db


if __name__ == "__main__":
    KEPT.write_text("\n".join(_make().iterdump()) + "\n")
