"""Dead letters enter the queue again: which, how many at once, and as what; any order of it is tried by the model."""

from __future__ import annotations

import pytest

from shipper.sdk.event import Batch
from shipper.spool import dead_letters, queue, requeue
from shipper.spool.queue import Arrival, Packed, Settlement
from shipper.spool.requeue import STEP, STEP_BYTES, Requeue, Room, Step, Wanted
from shipper.spool.schema import BATCH
from shipper.values import Counts, Revision
from tests.spool.test_spool_revisions import LIMITS, ORIGIN, Spool, documents

PLENTY = Room(1 << 30, False)


@pytest.fixture
def spool() -> Spool:
    return Spool()


def rejected(spool: Spool, lane: int, output: str, batch: Batch, reason: str = "400 mapping") -> None:
    """A batch whose events have all become dead letters."""
    arrival = Arrival(Revision(0, 1), "in", [lane], [Packed(batch.count, batch.pack())])
    seq = queue.enter(spool.db, spool.sealer, ORIGIN, 1.0, arrival)[0].seq
    (entry,) = [entry for entry in spool.entries(lane) if entry.seq == seq]
    loaded = queue.load(spool.db, spool.sealer, lane, entry)
    ids, lines = loaded.id_texts(), loaded.json_lines().splitlines()
    written = [
        dead_letters.Letter(n, id, line, output, reason, loaded.route)
        for n, (id, line) in enumerate(zip(ids, lines, strict=True))
    ]
    spool.settle(lane, seq, Settlement(Counts(dead_letter=batch.count), written))


def placed(spool: Spool, wanted: Wanted = Wanted()) -> Requeue:  # noqa: B008
    return requeue.place(spool.db, Requeue(wanted, 1 << 30))


def step(spool: Spool, order: Requeue, room: Room = PLENTY) -> Step:
    return requeue.step(spool.db, spool.sealer, ORIGIN, order, room, 2.0)


def all_steps(spool: Spool, wanted: Wanted = Wanted(), room: Room = PLENTY) -> list[Step]:  # noqa: B008
    steps = [step(spool, placed(spool, wanted), room)]
    while steps[-1].end is None:
        steps.append(step(spool, steps[-1].order, room))
    return steps


def waiting(spool: Spool, lane: int) -> list[Batch]:
    return [queue.load(spool.db, spool.sealer, lane, entry) for entry in spool.entries(lane)]


def test_a_letter_enters_with_its_id_its_index_and_every_byte_of_its_event(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    document = b'{"n":123456789012345678901234567890,"data_stream":{"dataset":"x"}}'
    rejected(spool, lane, "main", Batch.documents([document], ids=['gi"ven'], route="theirs"))
    rejected(spool, lane, "main", Batch.documents([b"{}"], shared={"of": "x"}))
    all_steps(spool)
    named, own = waiting(spool, lane)

    assert (named.json_lines(), named.id_texts(), named.route) == (document + b"\n", ['gi"ven'], "theirs")
    assert (own.json_lines(), own.route) == (b'{"of":"x"}\n', None)
    assert own.id_texts() == ["AAAAAAAAAAAAAAAAAAAAAA-3-0"]
    assert dead_letters.figures(spool.db, 0.0).events == dead_letters.held_bytes(spool.db) == 0


def test_letters_enter_under_the_active_revision_in_the_lane_that_their_output_has_now(spool: Spool) -> None:
    old = spool.activate(1, main="k1", other=None)
    rejected(spool, old["main"], "main", documents(3))
    new = spool.activate(2, main="k2", other=None)
    all_steps(spool)
    (entry,) = spool.entries(new["main"])

    assert (entry.kind, entry.revision, entry.events) == (BATCH, Revision(0, 2), 3)
    assert spool.entries(new["other"]) == []


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (Wanted(), []),
        (Wanted("b"), [1, 2]),
        (Wanted(reason="401"), [1, 2, 3]),
        (Wanted(reason="mapping"), [2]),
        (Wanted(reason="0:1"), [1, 2, 3]),  # the revision, which stands before the reason
        (Wanted(ids="[1,3,9]"), [2]),
        (Wanted(upto=2), [3]),
        (Wanted("a", "mapping", "[1,2,3]", 3), [2, 3]),
        (Wanted(ids="[]"), [1, 2, 3]),
    ],
)
def test_letters_are_wanted_to_which_all_applies_that_is_given(spool: Spool, wanted: Wanted, left: list[int]) -> None:
    lanes = spool.activate(1, a=None, b=None)
    rejected(spool, lanes["a"], "a", documents(1), "400 mapping")
    rejected(spool, lanes["a"], "a", documents(1), "400 too large")
    rejected(spool, lanes["b"], "b", documents(1), "400 mapping of x")
    found = requeue.find(spool.db, wanted)
    steps = all_steps(spool, wanted)

    assert [letter["id"] for letter in dead_letters.page(spool.db, spool.sealer, 0, 10)] == left
    assert sum(found.outputs.values()) == sum(each.requeued for each in steps) == 3 - len(left)


def test_a_step_is_bounded_by_letters(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(2 * STEP + 1))

    assert [each.requeued for each in all_steps(spool)] == [STEP, STEP, 1, 0]


def test_a_step_is_bounded_by_bytes_and_takes_one_letter_however_large(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    for size in (STEP_BYTES * 2, STEP_BYTES // 2, STEP_BYTES // 4, STEP_BYTES // 2):
        rejected(spool, lane, "main", Batch.documents([b'{"x":"%s"}' % (b"x" * size)]))

    assert [each.requeued for each in all_steps(spool)] == [1, 2, 1, 0]


def test_a_step_is_bounded_by_what_it_looks_at(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "LOOK", 4)
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(10))

    assert [each.requeued for each in all_steps(spool, Wanted(ids="[1,9,10]"))] == [1, 0, 2, 0]


def test_what_is_refused_again_does_not_go_round(spool: Spool) -> None:
    """Letters of the same output and reason come while the order runs; it ends with the last that there was."""
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(1))
    order = placed(spool, Wanted(upto=requeue.find(spool.db, Wanted()).upto))
    first = step(spool, order)
    rejected(spool, lane, "main", documents(1))

    assert step(spool, first.order).end == "done"
    assert dead_letters.figures(spool.db, 0.0).events == 1


def test_as_many_enter_as_there_is_room_for(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(64))
    done = step(spool, placed(spool), Room(500, False))
    held = sum(entry.size for entry in spool.entries(lane))

    assert 0 < done.requeued < 64
    assert 0 < held <= 500
    assert step(spool, done.order, Room(0, False)).end == "full"
    assert requeue.standing(spool.db) == []


def test_one_letter_that_is_larger_than_the_queue_enters_if_nothing_else_is_there(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(2))

    assert step(spool, placed(spool), Room(0, True)).requeued == 1


def test_an_order_ends_before_a_letter_whose_output_is_gone(spool: Spool) -> None:
    lanes = spool.activate(1, main=None, other=None)
    for output in ("main", "other", "main"):
        rejected(spool, lanes[output], output, documents(1))
    spool.activate(2, main=None)
    steps = all_steps(spool)

    assert [(each.requeued, each.end) for each in steps] == [(1, None), (0, "gone")]
    assert [letter["id"] for letter in dead_letters.page(spool.db, spool.sealer, 0, 10)] == [2, 3]


def test_nothing_enters_while_nothing_is_active(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(1))
    spool.db.execute("DELETE FROM meta WHERE key = 'active'")

    assert step(spool, placed(spool)).end == "gone"


@pytest.mark.parametrize("damage", ["body = zeroblob(80)", "reason = CAST(x'ff20' AS TEXT)", "reason = 'nonsense'"])
def test_a_damaged_letter_stays_and_the_others_enter(spool: Spool, damage: str) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(3))
    spool.db.execute(f"UPDATE dead_letter SET {damage} WHERE id = 2")
    steps = all_steps(spool)

    assert [(each.requeued, each.damaged) for each in steps] == [(2, 1), (0, 0)]
    assert spool.db.execute("SELECT id FROM dead_letter").fetchall() == [(2,)]


def test_an_order_goes_on_where_it_was_after_a_crash(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(STEP + 5))
    wanted = Wanted("main", "mapping", upto=STEP + 3)
    done = step(spool, placed(spool, wanted))
    (again,) = requeue.standing(spool.db)

    assert again == done.order
    assert again.wanted == wanted._replace(after=STEP)
    assert step(spool, again).requeued == 3


def test_a_letter_that_is_refused_again_is_a_letter_again(spool: Spool) -> None:
    lane = spool.activate(1, main=None)["main"]
    rejected(spool, lane, "main", documents(1))
    all_steps(spool)
    (entry,), (batch,) = spool.entries(lane), waiting(spool, lane)
    again = dead_letters.Letter(0, batch.id_texts()[0], batch.json_lines(), "main", "400 again")
    queue.settle(spool.db, spool.sealer, lane, entry.seq, Settlement(Counts(dead_letter=1), [again]), LIMITS, 3.0)
    (letter,) = dead_letters.page(spool.db, spool.sealer, 0, 10)

    assert (letter["id"], letter["event_id"], letter["reason"]) == (2, "AAAAAAAAAAAAAAAAAAAAAA-2-0", "400 again")
