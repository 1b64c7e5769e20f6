"""Gathering: what small requests bring together is one batch of one transaction, and each has its own answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import outcome
import trio
import trio.testing

from shipper.pipeline.intake.gathering import AT_ONCE, MOST_WEIGHT, Ended, Gathering, together
from shipper.pipeline.intake.stages import Emission
from shipper.plugin import Backpressure, PluginFault
from shipper.sdk.event import Batch
from shipper.spool.queue import Arrival
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Spring, Theatre, events, policy, slow_cut, theatre

CLIENTS = 8
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def running(on: Theatre, more: str = "") -> Spring:
    await on.offer(1, policy(more=more))
    await on.ack(1, "active")
    await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
    return SPRINGS["in"]


def stuck() -> None:
    DESTINATIONS["main"].send = DESTINATIONS["main"].hang


@contextmanager
def arrivals(on: Theatre) -> Iterator[list[Arrival]]:
    """The transactions that were asked for, while the clock stands still."""
    seen: list[Arrival] = []
    on.intake.entrance.now = lambda: NOW  # type: ignore[method-assign]
    enter = on.spool.queue.enter_soon

    def counted(arrival: Arrival, *rest: object) -> None:
        seen.append(arrival)
        enter(arrival, *rest)  # type: ignore[arg-type]

    on.spool.queue.enter_soon = counted  # type: ignore[method-assign]
    yield seen


@contextmanager
def storing(on: Theatre) -> Iterator[None]:
    """What is begun in this block is stored at its end."""
    enter, held = on.spool.queue.enter_soon, list[Any]()
    on.spool.queue.enter_soon = lambda *arrival: held.append(arrival)  # type: ignore[method-assign]
    yield
    on.spool.queue.enter_soon = enter  # type: ignore[method-assign]
    for arrival in held:
        enter(*arrival)


async def emitted(spring: Spring, *batches: Batch) -> list[str]:
    """Emits each on its own, all at once; returns the kind of each end, in the order of the batches."""
    ends = [""] * len(batches)

    async def emit(number: int) -> None:
        try:
            await spring.context.emit(batches[number], wait=False)
            ends[number] = "stored"
        except (Backpressure, PluginFault) as error:
            ends[number] = type(error).__name__

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for number in range(len(batches)):
                nursery.start_soon(emit, number)
    return ends


async def emitted_during_one(on: Theatre, spring: Spring, *batches: Batch) -> list[str]:
    """The same, while the first of them is being stored."""
    ends: list[str] = []

    async def emit() -> None:
        ends.extend(await emitted(spring, *batches))

    async with trio.open_nursery() as nursery:
        with storing(on):
            nursery.start_soon(emit)
            await trio.testing.wait_all_tasks_blocked(0)
    return ends


def stored(on: Theatre) -> int:
    return on.spool.figures.total().events


async def test_what_eight_clients_send_at_once_is_two_transactions_of_a_batch_each(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        with arrivals(on) as seen:
            ends = await emitted_during_one(on, spring, *[events(n) for n in range(CLIENTS)])

        assert ends == ["stored"] * CLIENTS
        assert [len(arrival.batches) for arrival in seen] == [1, 1]
        assert [arrival.batches[0].events for arrival in seen] == [1, CLIENTS - 1]
        assert stored(on) == CLIENTS


async def test_what_has_gathered_is_there_after_a_restart(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        await emitted(spring, *[events(n) for n in range(CLIENTS)])
    main = DESTINATIONS["main"]
    main.send = main.deliver  # before the next process, which sends at once
    async with theatre(tmp_path, keep=True):
        await main.until(lambda: len(main.received) >= CLIENTS)

        assert sorted(main.received) == list(range(CLIENTS))


async def test_batches_with_other_shared_fields_stay_apart_in_the_same_transaction(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        batches = [Batch.documents([b'{"n":%d}' % n], shared={"of": n % 2}) for n in range(CLIENTS + 1)]
        with arrivals(on) as seen:
            await emitted_during_one(on, spring, *batches)

        assert [len(arrival.batches) for arrival in seen] == [1, 2]
        assert stored(on) == len(batches)


async def test_an_invalid_batch_is_refused_alone(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        ends = await emitted(spring, events(1), Batch.documents([b"no object"]), events(3))

        assert ends == ["stored", "PluginFault", "stored"]
        assert stored(on) == 2


async def test_an_event_that_processors_cannot_even_tag_is_refused_alone(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, "processors:\n  - {type: scripted, does: fail}\n")
        stuck()
        broken = Batch.documents([b'{"n":'])
        ends = await emitted(spring, events(1), events(2), broken, events(4))

        assert ends == ["stored", "stored", "PluginFault", "stored"]
        assert stored(on) == 3


async def test_where_a_group_has_no_room_those_that_have_are_stored(tmp_path: Path) -> None:
    large = Batch.documents([b'{"n":3,"x":"%b"}' % b64encode(Random(1).randbytes(4000))])
    async with theatre(tmp_path) as on:
        spring = await running(on, "queue: {max_bytes: 2000B}\n")
        stuck()
        await emitted(spring, events(0))  # into an empty queue goes any batch
        ends = await emitted(spring, events(1), events(2), large, events(4))

        assert ends == ["stored", "stored", "Backpressure", "stored"]
        assert stored(on) == 4


async def test_what_is_cancelled_leaves_the_group_that_waits(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        emit = spring.context.emit
        async with trio.open_nursery() as nursery:
            with storing(on):
                nursery.start_soon(lambda: emit(events(1), wait=False))
                await trio.testing.wait_all_tasks_blocked(0)
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await emit(events(2), wait=False)
                nursery.start_soon(lambda: emit(events(3), wait=False))

        assert scope.cancelled_caught
        assert stored(on) == 2


async def test_what_gathers_during_a_cut_is_stored_under_the_new_revision(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        with arrivals(on) as seen, slow_cut(on) as (is_cut, go_on):
            async with trio.open_nursery() as nursery:
                await on.offer(2, policy(flavour="new"))
                await is_cut.wait()
                nursery.start_soon(emitted, spring, *[events(n) for n in range(CLIENTS)])
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert stored(on) == 0
                go_on.set()

        assert {group[0].number: count for group, count in on.spool.figures.events.items()} == {2: CLIENTS}
        assert len(seen) <= 5


async def test_a_disk_that_fills_while_a_group_is_stored_is_told_to_each_of_it(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()

        def full(arrival: Arrival, ended: Ended) -> None:
            ended(outcome.Error(Backpressure("no space is left on the disk")))

        on.spool.queue.enter_soon = full  # type: ignore[method-assign]

        assert await emitted(spring, events(1), events(2)) == ["Backpressure"] * 2
        assert stored(on) == 0


async def test_what_waits_goes_through_the_stages_of_a_newer_revision(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on)
        stuck()
        async with trio.open_nursery() as nursery:
            with storing(on):
                nursery.start_soon(emitted, spring, *[events(n) for n in range(CLIENTS)])
                await trio.testing.wait_all_tasks_blocked(0)
                await on.offer(2, policy(more="processors: [{type: stage}]\n"))
                await on.ack(2, "active")

        assert {group[0].number: count for group, count in on.spool.figures.events.items()} == {2: CLIENTS}


async def test_events_that_processors_drop_are_answered_and_not_stored(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        spring = await running(on, "processors:\n  - {type: scripted, does: drop}\n")
        ends = await emitted(spring, *[events(n) for n in range(CLIENTS)])

        assert ends == ["stored"] * CLIENTS
        assert stored(on) == 0


async def test_the_end_of_a_group_of_which_nothing_is_left_does_not_begin_the_next_within_itself() -> None:
    """After a failure of all together, that would be as deep as there are emissions."""
    ends: list[Ended] = []
    depths: list[int] = []

    class Dropping:
        most_gathered = 1 << 20
        depth = 0

        def begin(self, group: Sequence[Emission], ended: Ended) -> bool:
            if not ends:
                ends.append(ended)
                return True
            if len(group) > 1:
                raise PluginFault("one of them")
            self.depth += 1
            depths.append(self.depth)
            ended(outcome.Value(None))
            self.depth -= 1
            return True

    gathering = Gathering(Dropping())
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(gathering.enter, Emission([events(number)], NOW, {}, wait=False))
        await trio.testing.wait_all_tasks_blocked(0)
        ends[0](outcome.Value(None))

    assert depths == [1] * (CLIENTS - 1)


async def test_a_group_has_a_bounded_weight_whatever_its_events_share() -> None:
    groups: list[int] = []
    shared = {"resource": "r" * (MOST_WEIGHT // 3)}

    class Counting:
        most_gathered = 1 << 20

        def begin(self, group: Sequence[Emission], ended: Ended) -> bool:
            groups.append(len(group))
            if len(groups) > 1:
                ended(outcome.Value(None))
            else:
                first.append(ended)
            return True

    first: list[Ended] = []
    gathering = Gathering(Counting())
    async with trio.open_nursery() as nursery:
        for number in range(5):
            batch = replace(events(number), shared=shared)
            nursery.start_soon(gathering.enter, Emission([batch], NOW, {}, wait=False))
        await trio.testing.wait_all_tasks_blocked(0)
        first[0](outcome.Value(None))

    assert groups == [1, 2, 2]


def test_events_keep_the_time_at_which_they_came() -> None:
    times = [NOW, NOW + AT_ONCE / 2, NOW + AT_ONCE, NOW + AT_ONCE * 3 / 2, NOW + timedelta(seconds=5)]
    group = [Emission([events(n)], at, {}, wait=False) for n, at in enumerate(times)]

    assert [(at, [batch.count for batch in batches]) for at, batches in together(group)] == [
        (times[0], [2]),
        (times[2], [2]),
        (times[4], [1]),
    ]
