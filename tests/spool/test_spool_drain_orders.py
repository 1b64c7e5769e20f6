"""Letters of orders, and that an order runs in bounded steps; the rest is tried by the model of revisions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import orjson
import pytest

from shipper.pipeline.delivery.lane import Lane
from shipper.protocol.messages import Ack
from shipper.sdk.event import Batch
from shipper.sdk.joining import together
from shipper.spool import doubt
from shipper.spool.dead_letters import Limits
from shipper.spool.drain_orders import LETTERS_STEP, STEP, Order, letters_of
from shipper.spool.figures import Figures
from shipper.spool.limits import SpoolLimits
from shipper.spool.seal import OVERHEAD_BYTES
from shipper.values import Counts, Revision
from tests.fakes import Bench, bench, stored_batch


def test_a_letter_carries_the_id_and_the_whole_event() -> None:
    batch = Batch.documents([b'{"n":0}', b'{"n":1}', b'{"n":2}'], shared={"of": "x"}, ids=[None, 'gi"ven', None])
    letters = letters_of(batch, {1: "why", 2: "because"}, "main")

    assert [(letter.item, letter.reason, letter.output) for letter in letters] == [
        (1, "why", "main"),
        (2, "because", "main"),
    ]
    assert letters[0].id == 'gi"ven'
    assert letters[0].document == b'{"of":"x","n":1}'
    assert letters[1].id.endswith("-2")


def test_a_letter_carries_the_index_that_its_client_named() -> None:
    (letter,) = letters_of(Batch.documents([b"{}"], route="theirs"), {0: "why"}, "main")

    assert letter.index_name == "theirs"


def test_letters_of_a_request_of_several_batches_keep_the_route_of_each() -> None:
    joined = together([Batch.documents([b"{}"], route=route) for route in ("theirs", None, "ours")])

    assert [letter.index_name for letter in letters_of(joined, {0: "a", 1: "b"}, "main")] == ["theirs", None]


def test_letters_of_a_rest_keep_the_numbers_of_the_batch() -> None:
    rest = Batch.documents([b'{"n":%d}' % n for n in range(9)]).pick([3, 7])

    assert [letter.item for letter in letters_of(rest, {0: "a", 1: "b"}, "main")] == [3, 7]


def test_lines_become_whole_events() -> None:
    (letter,) = letters_of(Batch.lines(b"one\ntwo\n", offset=10, shared={}), {1: "why"}, "main")

    assert b'"message":"two"' in letter.document
    assert b'"offset":14' in letter.document


@pytest.mark.parametrize(("name", "step"), [("drop", STEP), ("dead_letter", LETTERS_STEP)])
async def test_an_order_runs_in_bounded_steps_and_ends(
    tmp_path: Path, name: Literal["drop", "dead_letter"], step: int
) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(batches=step * 2 + 1)
        await on.activate(2, main="missing-2")
        upto = (await on.spool.queue.window(lane.id, 0, 1000))[-1].seq
        async with lane.suspended():
            order = await on.spool.drains.place(Order(name, lane.id, upto))
            waiting = []
            while not (await on.spool.drains.step(order)).done:
                waiting.append(on.spool.figures.total().events)
        await on.empty()
        ack = (await on.spool.revisions.advance(None, ()))[0]

    assert waiting == [step + 1, 1, 0]
    assert ack is not None
    assert (ack.ledger.accepted, ack.ledger.dropped + ack.ledger.dead_letter) == (step * 2 + 1, step * 2 + 1)


async def test_an_order_ends_what_entered_under_its_revision_and_nothing_above_its_barrier(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(2)
        await on.activate(2, main="missing-1")
        await on.enter(3)
        await on.activate(3, main="missing-2")
        upto = (await on.spool.queue.window(lane.id, 0))[-1].seq
        await on.activate(4, main="missing-1")
        await on.enter(4)

        left = []
        for revision in (Revision(0, 1), None):
            async with lane.suspended():
                order = await on.spool.drains.place(Order("drop", lane.id, upto, revision=revision))
                while not (await on.spool.drains.step(order)).done:
                    pass
            left.append([entry.events for entry in await on.spool.queue.window(lane.id, 0) if not entry.is_barrier])

    assert left == [[3, 4], [4]]


@pytest.mark.parametrize("name", ["drop", "dead_letter"])
async def test_an_order_for_a_batch_ends_it_alone_whether_a_barrier_is_above_it_or_not(
    tmp_path: Path, name: Literal["drop", "dead_letter"]
) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(2, batches=3)
        await on.activate(2, main="missing-2")
        await on.activate(3, main="missing-1")
        await on.enter(3, batches=3)
        below, above = on.seqs[1], on.seqs[4]
        steps = []
        async with lane.suspended():
            for batch in (below, above):
                order = await on.spool.drains.place(Order(name, lane.id, batch, first=batch))
                assert await on.spool.drains.standing() == [order]
                steps += [await on.spool.drains.step(order), await on.spool.drains.step(order)]
            left = [entry.seq for entry in await on.spool.queue.window(lane.id, 0) if not entry.is_barrier]
            counted = await on.spool.store.read(
                lambda db: db.execute("SELECT accepted, dropped + dead_letter FROM barrier").fetchall()
            )

    assert left == [seq for seq in on.seqs if seq not in (below, above)]
    assert [(step.ended, step.done) for step in steps] == [(2, False), (0, True), (3, False), (0, True)]
    assert counted == [(6, 2)]


async def test_an_order_for_a_batch_ends_no_doubt_of_its_lane(tmp_path: Path) -> None:
    """What else waits there is still unknown."""
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(2, batches=2)
        await on.activate(2, main="missing-2")
        upto = (await on.spool.queue.window(lane.id, 0))[-1].seq
        await on.spool.store.do(lambda db: doubt.hold(db, lane.id, upto))
        found = []
        for order in (Order("drop", lane.id, on.seqs[0], first=on.seqs[0]), Order("drop", lane.id, upto)):
            async with lane.suspended():
                placed = await on.spool.drains.place(order)
                while not (await on.spool.drains.step(placed)).done:
                    pass
            found.append(await on.spool.drains.doubts())

    assert found == [{lane.id}, set()]


async def ended(on: Bench, lane: Lane) -> Ack | None:
    """What is acknowledged when all that waits on a lane was ordered to be dead letters."""
    upto = (await on.spool.queue.window(lane.id, 0))[-1].seq
    async with lane.suspended():
        order = await on.spool.drains.place(Order("dead_letter", lane.id, upto))
        while not (await on.spool.drains.step(order)).done:
            pass
    await on.empty()
    return (await on.spool.revisions.advance(None, ()))[0]


@pytest.mark.parametrize("told", [0, 1, 9])
async def test_an_order_counts_what_is_sealed_and_not_what_damage_says_of_it(tmp_path: Path, told: int) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(4)
        await on.spool.store.do(lambda db: db.execute("UPDATE todo SET count = ?", (told,)))
        await on.spool.heed_damage()
        await on.activate(2, main="missing-2")
        ack = await ended(on, lane)

        assert ack is not None
        assert ack.ledger == Counts(accepted=4, dead_letter=4)
        assert (await on.spool.letters.figures()).events == 4
        assert sum(one.events for one in await on.spool.letters.reasons()) == 4
        assert on.spool.figures == Figures.none()


async def stored_letters(on: Bench) -> list[str]:
    return [letter["event_id"].rpartition("-")[2] for letter in await on.spool.letters.page(0, 1000)]


async def test_an_order_ends_where_the_dead_letter_store_is_full_and_the_rest_stays(tmp_path: Path) -> None:
    """In the middle of a batch, and again when there is room."""
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(4, batches=3)
        await on.activate(2, main="missing-2")
        size = await letter_bytes(on)
        on.spool.limits = SpoolLimits(Limits(6 * size + size // 2, "hold"))
        upto = (await on.spool.queue.window(lane.id, 0))[-1].seq
        async with lane.suspended():
            ends = []
            for _ in range(3):
                order = await on.spool.drains.place(Order("dead_letter", lane.id, upto))
                while not (step := await on.spool.drains.step(order)).done:
                    pass
                left = [entry.events for entry in await on.spool.queue.window(lane.id, 0) if not entry.is_barrier]
                ends.append((step.full, left, await stored_letters(on), on.spool.figures.total().events))
                if len(ends) == 2:
                    await on.spool.letters.delete(6)
        assert await on.spool.drains.standing() == []
        await on.empty()
        ack = (await on.spool.revisions.advance(None, ()))[0]

    first, second = ["0", "1", "2", "3", "0", "1"], ["2", "3", "0", "1", "2", "3"]
    assert ends == [(True, [2, 4], first, 6), (True, [2, 4], first, 6), (False, [], second, 0)]
    assert ack is not None
    assert ack.ledger == Counts(accepted=12, dead_letter=12)


async def letter_bytes(on: Bench) -> int:
    """What one letter of an event of `enter` takes."""
    (entry,) = (await on.spool.queue.window(on.delivery.lanes[1].id, 0))[:1]
    (letter, *_) = letters_of(await stored_batch(on.spool, 1, entry), {0: "why"}, "main")
    return OVERHEAD_BYTES + len(orjson.dumps([letter.id]) + b"\n" + letter.document)


async def test_letters_that_give_way_to_an_order_are_counted(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(3, batches=3)
        await on.activate(2, main="missing-2")
        on.spool.limits = SpoolLimits(Limits(2 * await letter_bytes(on)))
        upto = (await on.spool.queue.window(lane.id, 0))[-1].seq
        async with lane.suspended():
            order = await on.spool.drains.place(Order("dead_letter", lane.id, upto))
            step = await on.spool.drains.step(order)

        assert step.letters_dropped == 7
        assert (await on.spool.letters.figures()).events == 2


async def test_bodies_that_cannot_be_opened_are_damaged_after_one_repair_for_all(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        lane = on.active["main"]
        await on.enter(4, batches=2)
        await on.activate(2, main="missing-2")
        await on.activate(3, main="missing-1")
        await on.enter(1)
        await on.activate(4, main="missing-2")
        await on.spool.store.do(lambda db: db.execute("UPDATE batch SET body = zeroblob(80)"))
        ack = await ended(on, lane)

        assert ack is not None
        assert ack.ledger == Counts(accepted=9, damaged=9)
        assert on.spool.store.directory.generations() == [2]
