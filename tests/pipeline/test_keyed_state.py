"""Keyed state on its way through the pipeline: one slot a key, the last word first, and barriers that know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shipper.pipeline.attempts.fences import REASON
from shipper.plugin import Answers, Backpressure, Batch, Held, InputContext, Later, Outdated, PluginFault
from shipper.plugin.state import Change
from shipper.spool import store
from shipper.spool.keyed import Admitted
from shipper.spool.queue import NotActive
from shipper.spool.requeue import Wanted
from shipper.values import Counts
from tests.fakes import DESTINATIONS, SPRINGS, Destination, Spring, Theatre, theatre
from tests.spool.test_spool_spool import Gate

ROOM = 60.0


def policy(credential: str | None = None, to: str = "main", *, inputs: str = "{in: {type: state}}") -> str:
    key = "" if credential is None else f", credential: {credential}"
    return f"version: 1\ninputs: {inputs}\noutputs:\n  main: {{type: shelf, to: {to}{key}}}\n"


def script(name: str = "main") -> Destination:
    found = DESTINATIONS[name]
    found.send = found.shelve
    return found


async def begun(
    on: Theatre, number: int = 1, text: str | None = None, *ids: str, stage: str = "active"
) -> InputContext:
    """A revision is active, and its input runs."""
    await on.offer(number, policy() if text is None else text, *ids)
    await on.ack(number, stage)
    await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
    return SPRINGS["in"].context


async def keep(context: InputContext, *keys: str, n: int = 0) -> list[int]:
    """Keep these keys, each with the number as its document; returns their places."""
    kept = await context.keep([Change("things", key, document(n)) for key in keys])
    return [one.place for one in kept]


def document(n: int) -> bytes:
    return b'{"n":%d}' % n


def refusing(destination: Destination, *documents: bytes) -> Any:
    async def send(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return destination.shelve_now(batch, documents)

    return send


async def settled(on: Theatre) -> None:
    with trio.fail_after(ROOM):
        while on.spool.figures.total().events:
            with trio.move_on_after(0.02):
                await on.spool.room.wait()


async def test_versions_are_delivered_with_their_documents_and_deletions(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        await keep(context, "a", "b", n=1)
        await settled(on)
        await context.keep([Change("things", "a", None), Change("things", "b", document(2))], {"at": b"1"})
        await settled(on)

        assert {key: document for key, (_, document) in main.shelf.items()} == {"a": None, "b": document(2)}
        assert await context.positions() == {"at": b"1"}
        assert on.intake.inputs()["in"]["events"] == 4


async def test_t117_1_what_waits_is_one_version_of_each_key_and_the_last_of_each_arrives(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.send = main.raising(Later("down"))
        await keep(context, *"abcde")
        for n in range(1, 200):
            await keep(context, "abcde"[n % 5], n=n)
        assert on.spool.figures.total().events == 5
        assert await rows(on, "slot") == await rows(on, "keyed") == 5
        main.send = main.shelve
        await settled(on)

        assert {key: last for key, (_, last) in main.shelf.items()} == {
            "abcde"[n % 5]: document(n) for n in range(195, 200)
        }
        assert is_in_order(main)


async def rows(on: Theatre, table: str) -> int:
    (count,) = await on.spool.store.read(lambda db: db.execute(f"SELECT count(*) FROM {table}").fetchone())
    return int(count)


def is_in_order(destination: Destination) -> bool:
    """Whether no older version of a key was sent after a newer one."""
    last: dict[str, int] = {}
    for key, place, _ in destination.shelved:
        if place < last.get(key, 0):
            return False
        last[key] = place
    return True


async def test_t117_3_an_answer_for_an_older_version_leaves_the_newer_one_waiting(tmp_path: Path) -> None:
    """The answer for the first comes late, and the second is sent before it."""
    late = trio.Event()
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)

        async def send(batch: Batch) -> Answers:
            if batch.body == document(1) + b"\n":
                await late.wait()
                return main.shelve_now(batch, ())
            if batch.body == document(2) + b"\n" and not late.is_set():
                raise Later("not yet")
            return main.shelve_now(batch, ())

        main.send = send
        await keep(context, "a", n=1)
        await main.until(lambda: main.sending == 1)
        await keep(context, "a", n=2)
        late.set()
        await main.until(lambda: "a" in main.shelf)
        await settled(on)

        assert [key for key, *_ in main.shelved] == ["a", "a"]
        assert main.shelf["a"][1] == document(2)


async def test_a_version_that_was_replaced_while_it_was_handed_out_is_sent_again(tmp_path: Path) -> None:
    """The front that `keep` goes by is that of a moment ago."""
    go = trio.Event()
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)

        async def send(batch: Batch) -> Answers:
            await go.wait()
            return main.shelve_now(batch, ())

        main.send = send
        await keep(context, "a", n=1)
        await main.until(lambda: main.sending == 1)
        (lane,) = on.of_state()
        state = lane.machine.backlog
        state.front, front = 0, state.front
        await keep(context, "a", n=2)
        state.front = front
        go.set()
        await settled(on)

        assert [last for _, _, last in main.shelved] == [document(1), document(2)]


async def test_a_version_that_meets_a_cut_on_its_way_into_the_spool_is_kept_under_the_new_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who keeps it while the spool has a problem says so."""
    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        main, context = script(), await begun(on)
        stored, met = on.spool.state.keep, trio.Event()

        async def meets_a_cut(*arguments: Any, **options: Any) -> Admitted:
            monkeypatch.setattr(on.spool.state, "keep", stored)
            met.set()
            raise NotActive

        monkeypatch.setattr(on.spool.state, "keep", meets_a_cut)
        monkeypatch.setattr(on.spool.store, "problem", "disk full")
        nursery.start_soon(keep, context, "a")
        await met.wait()
        monkeypatch.setattr(on.spool.store, "problem", None)
        await on.offer(2, policy("k2"), "k2")
        await main.until(lambda: "a" in main.shelf)

        assert (await on.ack(2, "drained")).ledger == Counts()


async def test_a_version_that_was_superseded_before_it_was_loaded_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was handed out, and while its request waits for memory a newer one comes."""
    superseded = trio.Event()
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        load = on.spool.queue.load

        async def late(lane: int, entries: Any, limit: int | None = None) -> Any:
            if not superseded.is_set():
                superseded.set()
                await keep(context, "a", n=2)
            return await load(lane, entries, limit)

        monkeypatch.setattr(on.spool.queue, "load", late)
        await keep(context, "a", n=1)
        await settled(on)

        (lane,) = on.of_state()
        assert superseded.is_set()
        assert not lane.link.counters["damaged"]
        assert [last for _, _, last in main.shelved] == [document(2)]


async def test_t117_6_a_version_that_is_rejected_delays_neither_the_next_nor_other_keys(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.send = refusing(main, document(1))
        await keep(context, "bad", n=1)
        await keep(context, "good", n=2)
        await settled(on)
        assert (await on.spool.letters.figures()).events == 1
        await keep(context, "bad", n=3)
        await settled(on)

        assert {key: last for key, (_, last) in main.shelf.items()} == {"good": document(2), "bad": document(3)}
        (lane,) = on.of_state()
        assert (lane.link.counters["dead_letter"], lane.link.counters["delivered"]) == (1, 2)


async def test_a_version_that_is_put_off_does_not_delay_the_next(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context, was_put_off = script(), await begun(on), trio.Event()

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            if document(1) in batch.body.split(b"\n"):
                was_put_off.set()
                raise Later("not now")
            return main.shelve_now(batch, ())

        main.send = send
        await keep(context, "a", n=1)
        await was_put_off.wait()
        await keep(context, "a", n=2)
        await settled(on)

        assert [last for _, _, last in main.shelved] == [document(2)]


async def test_t117_7_a_hot_key_delays_no_other_by_more_than_a_round(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.feeding = {"events": 1, "in_flight": 1}
        await keep(context, "warm")
        await settled(on)
        async with trio.open_nursery() as nursery:

            async def heat() -> None:
                for n in range(10_000 // 50):
                    await context.keep([Change("things", "hot", document(50 * n + one)) for one in range(50)])

            nursery.start_soon(heat)
            await main.until(lambda: "hot" in main.shelf)
            for n in range(20):
                await keep(context, "cold", n=n)
                before = len(main.shelved)
                await main.until(lambda n=n: main.shelf.get("cold", (0, None))[1] == document(n))  # type: ignore[misc]
                keys = [key for key, *_ in main.shelved[before:]]
                assert keys.index("cold") <= 2, keys
            nursery.cancel_scope.cancel()


async def test_t117_10_log_events_are_never_coalesced(tmp_path: Path) -> None:
    inputs = "{in: {type: state}, log: {type: scripted, of: more}}"
    async with theatre(tmp_path) as on:
        main = script()
        context = await begun(on, 1, policy(inputs=inputs))
        await SPRINGS["more"].until(lambda: "run" in SPRINGS["more"].log)

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            return main.answer(batch, {}) if batch.versions is None else main.shelve_now(batch, ())

        main.send = main.raising(Later("down"))
        for n in range(20):
            await keep(context, "a", n=n)
            await SPRINGS["more"].context.emit(Batch.documents([document(7)]))
        assert on.spool.figures.total().events == 21
        main.send = send
        await settled(on)

        assert main.received == [7] * 20
        assert main.shelf["a"][1] == document(19)


async def test_a20_no_number_of_failures_makes_anything_be_given_up_also_over_restarts(tmp_path: Path) -> None:
    inputs = "{in: {type: state}, log: {type: scripted, of: more}}"
    failures = 0

    async def fail(batch: Batch) -> Answers:
        nonlocal failures
        failures += 1
        raise Later("down")

    async def take(batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return main.answer(batch, {}) if batch.versions is None else main.shelve_now(batch, ())

    for life in range(1, 4):
        async with theatre(tmp_path, keep=life > 1) as on:
            main = script()
            main.feeding = {"backoff": (0.001, 0.001)}
            main.send = fail
            context = await begun(on, life, policy(inputs=inputs))
            await SPRINGS["more"].until(lambda: "run" in SPRINGS["more"].log)
            if life == 1:
                await keep(context, "a")
                await SPRINGS["more"].context.emit(Batch.documents([document(7)]))
            await main.until(lambda life=life: failures >= 40 * life)  # type: ignore[misc]
            assert on.spool.figures.total().events == 2
            if life == 3:
                main.send = take
                await settled(on)
                assert (main.received, main.shelf["a"][1]) == ([7], document(0))
        SPRINGS["in"], SPRINGS["more"] = Spring(), Spring()


async def test_a_barrier_waits_for_the_version_that_stood_there(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on, 1, policy("k1"), "k1")
        main.send = main.raising(Held("401"))
        await keep(context, "a", "b", n=1)
        await on.offer(2, policy("k2"), "k2")
        await on.ack(2, "active")
        assert not any(line == "2 drained" for line in on.lines())
        main.send = main.shelve
        drained = await on.ack(2, "drained")

        assert drained.ledger == Counts(accepted=2, delivered=2)
        assert drained.credentials is not None
        assert list(drained.credentials.released) == ["k1"]


async def test_a_newer_version_under_the_new_credential_ends_the_wait_for_the_old_one(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main = script()
        main.feeding = {"backoff": (3600.0, 3600.0)}
        context = await begun(on, 1, policy("k1"), "k1")
        main.send = main.raising(Held("401"))
        await keep(context, "a", n=1)
        await on.offer(2, policy("k2"), "k2")
        await on.ack(2, "active")
        (old,) = [lane for lane in on.of_state() if not lane.active]
        await main.until(lambda: old.next_attempt is not None)
        main.send = main.shelve
        await keep(context, "a", n=2)
        drained = await on.ack(2, "drained")

        assert drained.ledger == Counts(accepted=1, superseded=1)
        await settled(on)
        assert main.shelf["a"][1] == document(2)


async def test_a_moved_output_gets_every_key_and_the_old_destination_what_stood_there(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, other, context = script(), script("other"), await begun(on)
        await keep(context, *"abc", n=1)
        await settled(on)
        main.send = main.raising(Later("down"))
        await keep(context, "a", n=2)
        await on.offer(2, policy(to="other"))
        await on.ack(2, "active")
        await keep(context, "a", n=3)
        await other.until(lambda: len(other.shelf) == 3)
        main.send = main.shelve
        drained = await on.ack(2, "drained")

        assert drained.ledger == Counts(accepted=1, delivered=1)
        assert main.shelf["a"][1] == document(2)
        await settled(on)
        assert {key: last for key, (_, last) in other.shelf.items()} == {
            "a": document(3),
            "b": document(1),
            "c": document(1),
        }


async def test_what_a_destination_fences_is_sent_again_above_its_fence(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.shelf["a"] = 2**62, document(7)
        await keep(context, "a", n=1)
        await settled(on)

        assert main.shelf["a"][0] > 2**62
        assert main.shelf["a"][1] == document(1)
        assert [place for place, _ in main.shelf.values()] == await keep(context, "a", n=1)


async def test_a_destination_that_is_always_one_version_above_is_not_asked_without_a_pause(tmp_path: Path) -> None:
    """Each of its fences has the version sent again above it: the first at once, the next one after a wait."""
    async with theatre(tmp_path) as on:
        main = script()
        main.feeding = {"backoff": (600.0, 600.0)}
        context = await begun(on)

        async def send(batch: Batch) -> Answers:
            assert batch.versions is not None
            for version in batch.versions:
                if version is not None and version.key == "a":
                    main.shelf["a"] = version.place + 1, document(7)
            return await main.shelve(batch)

        main.send = send
        await keep(context, "a", n=1)
        (lane,) = on.of_state()
        with trio.fail_after(ROOM):
            while lane.problem is None:
                with trio.move_on_after(0.02):
                    await on.spool.room.wait()
        assert lane.problem == REASON
        await keep(context, "b", n=1)
        await main.until(lambda: "b" in main.shelf)
        assert [key for key, _, _ in main.shelved] == ["a", "a", "b"]


async def test_state_waits_for_no_room_in_the_queue(tmp_path: Path) -> None:
    inputs = "{in: {type: state}, log: {type: scripted, of: more}}"
    text = policy(inputs=inputs) + "queue: {max_bytes: 1KiB}\n"
    async with theatre(tmp_path) as on:
        main = script()
        main.send = main.raising(Later("down"))
        context = await begun(on, 1, text)
        await SPRINGS["more"].until(lambda: "run" in SPRINGS["more"].log)
        await SPRINGS["more"].context.emit(Batch.documents([b'{"n":1,"text":"%b"}' % (b"x" * 2000)]))
        with trio.fail_after(ROOM):
            await keep(context, *"abcdefghij")

        assert on.spool.figures.total().events == 11


async def test_versions_and_their_barrier_survive_a_restart(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.send = main.raising(Later("down"))
        (before,) = await keep(context, "a", n=1)
        await keep(context, "gone", n=1)
        await context.keep([Change("things", "gone", None)])
    SPRINGS["in"] = Spring()
    async with theatre(tmp_path, keep=True) as on:
        context = await begun(on, stage="drained")
        (same,) = await keep(context, "a", n=1)
        (after,) = await keep(context, "b", n=1)
        main.send = main.shelve
        await settled(on)

        assert {key: last for key, (_, last) in main.shelf.items()} == {
            "a": document(1),
            "b": document(1),
            "gone": None,
        }
        assert same == before < after
        assert await rows(on, "keyed") == 2


async def test_nothing_is_kept_where_other_positions_are_stored(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        await context.keep([Change("things", "a", document(1))], {"at": b"1"}, {"at": None})
        with pytest.raises(Outdated):
            await context.keep([Change("things", "a", document(2))], {"at": b"3"}, {"at": b"2"})

        assert await context.positions() == {"at": b"1"}


@pytest.mark.parametrize(
    "change",
    [
        Change("things", "a", b'{ "n": 1}'),
        Change("things", "a", b"[]"),
        Change("things", "a", b'{"n":1'),
        Change("things", "", b"{}"),
        Change("", "a", b"{}"),
        Change("things", "a" * 5000, b"{}"),
        Change("things", "\ud800", b"{}"),
        Change("things", "a", b"{}", "berlin", 0),
        Change("things", "a", b"{}", "berlin", 2**63),
        Change("things", 7, b"{}"),  # type: ignore[arg-type]
        "a",
    ],
)
async def test_what_is_no_change_is_refused(tmp_path: Path, change: Any) -> None:
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        with pytest.raises(PluginFault):
            await context.keep([change])

        assert await rows(on, "keyed") == 0


async def test_a_refused_version_that_is_requeued_is_sent_as_it_is_now(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        main.send = refusing(main, document(1), document(2))
        await keep(context, "a", "b", n=1)
        await settled(on)
        await keep(context, "a", n=2)
        await settled(on)
        letters = await on.spool.letters.page(0, 10)
        main.send = main.shelve
        with trio.fail_after(ROOM):
            requeued = await on.requeuing.requeue(Wanted())
        await settled(on)

        assert [(letter["state"]["key"], letter["state"]["deleted"]) for letter in letters] == [
            ("a", False),
            ("b", False),
            ("a", False),
        ]
        assert requeued.requeued == 2
        assert {key: last for key, (_, last) in main.shelf.items()} == {"a": document(2), "b": document(1)}
        assert (await on.spool.letters.figures()).events == 0


async def test_before_its_revision_is_active_an_input_of_keyed_state_waits_or_is_turned_away(tmp_path: Path) -> None:
    async def on_open(context: InputContext) -> None:
        with pytest.raises(Backpressure, match="no revision"):
            await context.keep([Change("things", "a", document(1))], wait=False)
        nursery.start_soon(keep, context, "b")

    async with theatre(tmp_path) as on, trio.open_nursery() as nursery:
        main, SPRINGS["in"].on_open = script(), on_open
        await begun(on)
        await main.until(lambda: "b" in main.shelf)

        assert "a" not in main.shelf


async def test_what_waits_for_a_disk_and_is_stored_after_its_input_gave_up_is_told_to_the_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", 0.05)
    before, beside = Gate(), Gate()
    async with theatre(tmp_path) as on:
        main, context = script(), await begun(on)
        on.spool.store.post(before)
        await trio.to_thread.run_sync(before.entered.wait)
        on.spool.store.post(beside)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, context, "a")
            await trio.testing.wait_all_tasks_blocked()
            before.opened.set()
            await trio.to_thread.run_sync(beside.entered.wait)
            nursery.cancel_scope.cancel()
        beside.opened.set()
        await on.spool.store.do(lambda db: None)
        await settled(on)

        assert main.shelf.keys() == {"a"}


async def test_what_edges_hold_is_known_by_their_names(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        await context.keep([Change("things", "a", document(1), owner="berlin/mitte")])

        assert {owner: held.keys for owner, held in (await on.spool.state.holdings()).items()} == {"berlin": 1}


async def test_a_version_that_no_revision_takes_any_more_is_kept_under_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with theatre(tmp_path) as on:
        script()
        context = await begun(on)
        kept, entrance = list[int](), on.intake.entrance
        real = entrance.keep

        async def late(*what: Any, **how: Any) -> Any:
            if not kept:
                kept.append(1)
                await on.offer(2, policy(to="other"))
                await on.ack(2, "active")
                return None
            return await real(*what, **how)

        monkeypatch.setattr(entrance, "keep", late)
        script("other")
        await keep(context, "a")
        await settled(on)

        assert DESTINATIONS["other"].shelf.keys() == {"a"}
