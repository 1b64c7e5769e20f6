"""A state directory of the last version in which a lane had log events and keyed state.

python -m tests.pipeline.earlier          # with the code of that version (8cd14308): writes `earlier.sql` anew

revision 1  everything goes to its place with the credential k1; some is delivered, some refused, the rest waits
revision 2  the same with k2; newer events, and a version of a key that supersedes the one below the barrier

main   takes both; dead letters, the rest of a batch, answers that inputs wait for
side   takes both; a crash has interrupted an order to rebind what drains from k1 to k2
only   takes keyed state alone
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from shipper.plugin import Answer, Answers, Batch, Later, Outcome
from shipper.plugin.state import Change
from shipper.spool import database, drain_orders
from tests.fakes import DESTINATIONS, SPRINGS, Destination, Spring, Theatre, theatre

KEPT = Path(__file__).with_suffix(".sql")
POLICY = """version: 1
inputs: {{in: {{type: state}}, log: {{type: scripted, of: more, outputs: [main, side]}}}}
outputs:
  main: {{type: shelf, to: main, credential: {0}}}
  side: {{type: shelf, to: side, credential: {0}}}
  only: {{type: drawer, to: only, credential: {0}}}
"""
KEYS = ("state.key", "keyring", "keyring.copy")
OUTPUTS = ("main", "side", "only")


def lay_out(directory: Path) -> None:
    """Makes the state directory."""
    lines = KEPT.read_text().splitlines(keepends=True)
    for name, line in zip(KEYS, lines, strict=False):
        (directory / name).write_bytes(bytes.fromhex(line.removeprefix("-- ")))
        (directory / name).chmod(0o600)
    path = directory / "spool-1.db"
    path.touch()
    database.complete(database.create(path, lambda db: _fill(db, "".join(lines[len(KEYS) :]))))


def _fill(db: sqlite3.Connection, rows: str) -> None:
    for statement in rows.split(";\n"):
        if statement.strip() not in ("", "BEGIN TRANSACTION", "COMMIT"):
            db.execute(statement)


def scripts() -> None:
    """The plugins of the policy, which do nothing yet."""
    DESTINATIONS.update({name: Destination() for name in OUTPUTS})
    SPRINGS.update({name: Spring() for name in ("in", "more")})


async def _make(directory: Path) -> None:
    async with theatre(directory) as on:
        scripts()
        main = DESTINATIONS["main"]
        for name in OUTPUTS:
            take(DESTINATIONS[name])
        await _activate(on, 1, "k1")
        state, logs = SPRINGS["in"].context, SPRINGS["more"].context
        await _log(on, 0, 1)
        await state.keep([Change("things", key, _document(100)) for key in "ab"])
        await _nothing_waits(on)

        _refuse(main)
        await logs.emit(_batch(2))
        await state.keep([Change("things", "c", _document(103))])
        await _nothing_waits(on)

        _leave(main, 5)
        for name in ("side", "only"):
            DESTINATIONS[name].send = DESTINATIONS[name].raising(Later("down"))
        await logs.emit(_batch(4, 5), awaited=["four"])
        await main.until(lambda: 4 in main.received)
        main.send = main.raising(Later("down"))
        await logs.emit(_batch(6))
        await state.keep([Change("things", key, _document(n)) for key, n in (("a", 107), ("b", 108), ("d", 109))])
        await state.keep([Change("things", "e", _document(110))], awaited=True)

        await _activate(on, 2, "k2")
        await logs.emit(_batch(11))
        await state.keep([Change("things", key, _document(n)) for key, n in (("a", 112), ("f", 113))])
        lane = next(lane for lane in on.delivery.lanes.values() if lane.key.output == "side" and not lane.active)
        upto = await on.spool.store.read(lambda db: db.execute("SELECT max(seq) FROM barrier").fetchone()[0])
        sealer = on.spool.store.sealer
        await on.spool.store.do(lambda db: drain_orders.place_rebind(db, sealer, lane.id, upto, "k1", "k2"))


async def _activate(on: Theatre, number: int, credential: str) -> None:
    await on.offer(number, POLICY.format(credential), credential)
    await on.ack(number, "active")
    for spring in SPRINGS.values():
        await spring.until(lambda spring=spring: "run" in spring.log)


def take(destination: Destination) -> None:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return destination.answer(batch, {}) if batch.versions is None else destination.shelve_now(batch, ())

    destination.send = send


def _refuse(destination: Destination) -> None:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return Answers(batch.count, dict.fromkeys(range(batch.count), Answer(Outcome.REJECTED, "400 no such thing")))

    destination.send = send


def _leave(destination: Destination, number: int) -> None:
    """Of log events it takes all but one, and of keyed state nothing."""

    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        if batch.versions is not None:
            raise Later("down")
        numbers = [event["n"] for event in batch.own()]
        others = {at: Answer(Outcome.LATER, "429") for at, n in enumerate(numbers) if n == number}
        return destination.answer(batch, others)

    destination.send = send


async def _log(on: Theatre, *numbers: int) -> None:
    await SPRINGS["more"].context.emit(_batch(*numbers))


def _batch(*numbers: int) -> Batch:
    return Batch.documents([_document(n) for n in numbers])


def _document(n: int) -> bytes:
    return b'{"n":%d}' % n


async def _nothing_waits(on: Theatre) -> None:
    while on.spool.figures.total().events:
        with trio.move_on_after(0.02):
            await on.spool.room.wait()


def _dump(directory: Path) -> str:
    (path,) = directory.glob("spool-*.db")
    with closing(sqlite3.connect(path)) as db:
        rows = "\n".join(db.iterdump())
    keys = "".join(f"-- {(directory / name).read_bytes().hex()}\n" for name in KEYS)
    return f"{keys}{rows}\n"


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        trio.run(_make, Path(made))
        KEPT.write_text(_dump(Path(made)))
