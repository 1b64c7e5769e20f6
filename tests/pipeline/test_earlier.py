"""A state directory of the version in which a lane had both kinds: nothing is lost, and nothing ends too early."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from shipper.plugin import Later
from shipper.spool.requeue import Wanted
from shipper.spool.schema import BARRIER
from shipper.spool.spool import open_spool
from shipper.values import Counts
from tests.fakes import DESTINATIONS, SPRINGS, Destination, Theatre, theatre
from tests.pipeline import earlier
from tests.pipeline.test_keyed_state import begun, keep, policy, script


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Theatre]:
    """The directory in this version; destinations take nothing yet."""
    earlier.lay_out(path)
    earlier.scripts()
    for destination in DESTINATIONS.values():
        destination.send = destination.raising(Later("down"))
    async with theatre(path, keep=True) as on:
        yield on


async def goes_on(on: Theatre) -> None:
    """The process has the secrets, as after a restart, and its last revision is active."""
    await on.offer(2, earlier.POLICY.format("k2"), "k2")
    await on.rollout.supply({"k1": {"api_key": "k1:secret-of-k1"}})
    await on.ack(2, "active")


def takes(name: str) -> Destination:
    destination = DESTINATIONS[name]
    earlier.take(destination)
    return destination


async def test_each_kind_has_a_lane_with_its_events_and_its_barriers(tmp_path: Path) -> None:
    earlier.lay_out(tmp_path)
    async with open_spool(tmp_path, None) as spool:
        rows = await spool.revisions.lanes()
        waits = {(row.key.output, *row.key.credentials, row.key.state): spool.figures.waits(row.id) for row in rows}
        barriers = await spool.store.read(lambda db: db.execute("SELECT lane, accepted FROM barrier").fetchall())

    assert waits == {
        ("main", "k1", False): (2, 0),
        ("main", "k1", True): (0, 3),
        ("main", "k2", False): (1, 0),
        ("main", "k2", True): (0, 2),
        ("side", "k1", False): (3, 0),
        ("side", "k1", True): (0, 3),
        ("side", "k2", False): (1, 0),
        ("side", "k2", True): (0, 2),
        ("only", "k1", True): (0, 3),
        ("only", "k2", True): (0, 2),
    }
    assert all(row.settings is not None for row in rows)
    assert sum(accepted for _, accepted in barriers) == 6 + 7 + 4
    assert len(barriers) == 7  # one for each lane of k1, and where an order moves what is below


async def test_all_of_it_arrives_and_the_credential_is_in_use_until_both_kinds_have(tmp_path: Path) -> None:
    async with opened(tmp_path) as on:
        await goes_on(on)
        side, only = takes("side"), takes("only")
        main = DESTINATIONS["main"]
        kind = trio.Event()

        async def logs_first(batch: object) -> object:
            if batch.versions is not None and not kind.is_set():  # type: ignore[attr-defined]
                raise Later("no keys yet")
            return main.answer(batch, {}) if batch.versions is None else main.shelve_now(batch, ())  # type: ignore

        main.send = logs_first  # type: ignore[assignment]
        await main.until(lambda: {5, 6, 11} <= set(main.received))
        await side.until(lambda: {4, 5, 6, 11} <= set(side.received))
        await only.until(lambda: len(only.shelf) == 5)
        assert "2 drained" not in on.lines()
        assert "k1" in on.rollout.in_use
        kind.set()
        ack = await on.ack(2, "drained")

        assert ack.ledger == Counts(accepted=17, delivered=14, superseded=3)
        assert ack.credentials is not None
        assert "k1" in ack.credentials.released
        newest = {key: b'{"n":%d}' % n for key, n in (("a", 112), ("b", 108), ("d", 109), ("e", 110), ("f", 113))}
        for each in (main, side):  # the newest ones may be those of the next revision
            await each.until(lambda each=each: {key: document for key, (_, document) in each.shelf.items()} == newest)
        assert sorted(main.received) == [5, 6, 11]
        assert sorted(side.received) == [4, 5, 6, 11]
        await main.until(lambda: len(SPRINGS["more"].answered) + len(SPRINGS["in"].answered) == 2)


async def test_dead_letters_of_both_kinds_go_back_to_their_lanes(tmp_path: Path) -> None:
    async with opened(tmp_path) as on:
        await goes_on(on)
        main = takes("main")
        assert (await on.requeuing.requeue(Wanted())).requeued == 2
        await main.until(lambda: 2 in main.received and "c" in main.shelf)


async def test_a_second_start_divides_nothing(tmp_path: Path) -> None:
    earlier.lay_out(tmp_path)
    found = []
    for _ in range(2):
        async with open_spool(tmp_path, None) as spool:
            found.append(
                await spool.store.read(
                    lambda db: (
                        db.execute("SELECT id, pair, output FROM lane").fetchall(),
                        db.execute("SELECT lane, seq FROM todo WHERE kind != ?", (BARRIER,)).fetchall(),
                    )
                )
            )

    assert found[0] == found[1]


async def test_an_output_that_had_no_keyed_state_yet_gets_a_lane_for_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        await on.offer(1, policy())
        await on.ack(1, "active")
        await on.spool.store.do(lambda db: db.execute("DELETE FROM lane WHERE pair"))
        await on.spool.store.do(lambda db: db.execute("DELETE FROM fed"))
    async with theatre(tmp_path) as on:
        main = script()
        await keep(await begun(on, stage="drained"), "a", n=1)
        await main.until(lambda: "a" in main.shelf)
