"""Ages: read where something changed, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from shipper.spool import queue
from shipper.spool.figures import Figures
from shipper.spool.queue import Settlement
from shipper.spool.schema import BARRIER, BATCH, REST
from shipper.status import ages
from shipper.status.ages import Ages
from shipper.values import Counts, Revision
from tests.spool.test_spool_revisions import LIMITS, Spool

ONE = Revision(0, 1)


class Looking:
    """Looks as an observer does, and knows what it read."""

    def __init__(self, spool: Spool) -> None:
        self.spool, self.ages = spool, Ages()
        self.figures = Figures.of(spool.db, spool.sealer)

    def look(self, *lanes: int) -> list[int]:
        """The lanes of which something was read."""
        outdated = self.ages.outdated(self.figures, lanes)
        self.ages.note(outdated, ages.read(self.spool.db, outdated))
        return [lane for _, lane in outdated]

    def age(self, lane: int) -> float | None:
        return self.ages.oldest_of([(ONE, lane)]).get(ONE)


@pytest.fixture
def spool() -> Spool:
    return Spool()


def enter(spool: Spool, lane: int, at: float) -> int:
    seq = spool.enter(1, [lane])
    spool.db.execute("UPDATE todo SET at = ? WHERE seq = ?", (at, seq))
    return seq


def test_only_what_changed_is_read_again(spool: Spool) -> None:
    lanes = spool.activate(1, main="k1", other="k2")
    first = enter(spool, lanes["main"], 10.0)
    enter(spool, lanes["main"], 20.0)
    enter(spool, lanes["other"], 15.0)
    looking = Looking(spool)

    assert sorted(looking.look(*lanes.values())) == sorted(lanes.values())
    assert (looking.age(lanes["main"]), looking.age(lanes["other"]), looking.ages.oldest()) == (10.0, 15.0, 10.0)
    assert looking.look(*lanes.values()) == []

    change = queue.settle(spool.db, spool.sealer, lanes["main"], first, Settlement(Counts(delivered=1)), LIMITS, 1.0)
    assert change is not None
    looking.figures.settled(lanes["main"], change)
    assert looking.look(*lanes.values()) == [lanes["main"]]
    assert (looking.age(lanes["main"]), looking.ages.oldest()) == (20.0, 15.0)


def test_what_came_from_another_lane_may_be_older(spool: Spool) -> None:
    lanes = spool.activate(1, main="k1", other="k2")
    seq = enter(spool, lanes["main"], 10.0)
    enter(spool, lanes["other"], 15.0)
    looking = Looking(spool)
    looking.look(*lanes.values())

    (entry,) = spool.entries(lanes["main"])
    spool.db.execute("UPDATE todo SET lane = ? WHERE seq = ?", (lanes["other"], seq))
    looking.figures.rebound(entry, frozenset(), lanes["main"], lanes["other"])

    assert looking.look(*lanes.values()) == [lanes["other"]]
    assert (looking.age(lanes["main"]), looking.age(lanes["other"])) == (None, 10.0)


def test_a_count_anew_after_damage_reads_all_again(spool: Spool) -> None:
    lanes = spool.activate(1, main="k1")
    enter(spool, lanes["main"], 10.0)
    looking = Looking(spool)
    looking.look(*lanes.values())
    looking.figures = Figures.of(spool.db, spool.sealer)

    assert looking.look(*lanes.values()) == [lanes["main"]]


def test_one_look_reads_so_much_and_the_next_one_the_rest(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "READ_AT_ONCE", 2)
    lanes = spool.activate(1, one="k1", two="k2", three="k3")
    for lane in lanes.values():
        enter(spool, lane, 10.0)
    looking = Looking(spool)

    assert [len(looking.look(*lanes.values())) for _ in range(3)] == [2, 1, 0]


def insert(spool: Spool, lane: int, revision: int, kind: int, seqs: Iterable[int]) -> None:
    columns = "(lane, seq, kind, epoch, revision, count, bytes, at)"
    rows = [(lane, seq, kind, revision, float(seq)) for seq in seqs]
    spool.db.executemany(f"INSERT INTO todo {columns} VALUES (?, ?, ?, 0, ?, 1, 1, ?)", rows)


def test_the_first_of_a_revision_is_found_among_others_and_between_barriers(spool: Spool) -> None:
    for revision, kind, *seqs in [
        (1, BATCH, 5, 6),
        (2, BARRIER, 7),
        (2, REST, 9),
        (4, BARRIER, 10),
        (4, BATCH, 12, 90),
    ]:
        insert(spool, 1, revision, kind, seqs)
    insert(spool, 2, 3, BATCH, [3])
    pairs = [(Revision(0, revision), lane) for revision in range(6) for lane in (1, 2, 3)]

    found = {(at.number, lane): first for (at, lane), first in ages.read(spool.db, pairs).items()}
    assert found == {(1, 1): 5.0, (2, 1): 9.0, (4, 1): 12.0, (3, 2): 3.0}


def test_what_a_read_costs_does_not_grow_with_what_waits_of_older_revisions(spool: Spool) -> None:
    """A lane that works off a long queue has changed at each look."""
    steps: list[int] = []
    for count in (100, 10_000):
        insert(spool, count, 1, BATCH, range(1, count + 1))
        insert(spool, count, 2, BATCH, [count + 1])
        ticks: list[None] = []
        spool.db.set_progress_handler(lambda ticks=ticks: ticks.append(None), 1)  # type: ignore[misc]
        assert ages.read(spool.db, [(Revision(0, 2), count)]) == {(Revision(0, 2), count): count + 1}
        steps.append(len(ticks))

    assert steps[1] < 1.5 * steps[0]
