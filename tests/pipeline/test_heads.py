"""Log events and keyed state of one output go by each other: neither waits for what the other has under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from shipper.pipeline.memory.loans import Borrower
from shipper.plugin import Answer, Answers, Batch, InputContext, Later, Outcome
from shipper.plugin.state import Change
from shipper.protocol.messages import Ack
from shipper.values import Counts
from tests.fakes import SPRINGS, Destination, Theatre, theatre
from tests.pipeline.test_keyed_state import ROOM, begun, document, keep, policy, script, settled

INPUTS = "{in: {type: state}, log: {type: scripted, of: more}}"
MANY = 70
"""Batches or keys: more than there are requests under way, or answers that are noted, at once."""


class Mixed:
    """A destination that takes both. What is `held` (logs, state) gets no answer until `go` is set."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.held = ""
        self.go = trio.Event()
        self.answer: Callable[[Batch], Answers] = lambda batch: destination.answer(batch, {})
        """For log events."""
        destination.send = self._send

    async def _send(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        if self.held == ("logs" if batch.versions is None else "state"):
            await self.go.wait()
        return self.answer(batch) if batch.versions is None else self.destination.shelve_now(batch, ())


async def mixed(on: Theatre, **feeding: object) -> tuple[Mixed, InputContext, InputContext]:
    """A destination, an input of state, and one of log events that go there."""
    main = script()
    main.feeding = {"apart": True} | feeding
    context = await begun(on, 1, policy(inputs=INPUTS))
    await SPRINGS["more"].until(lambda: "run" in SPRINGS["more"].log)
    return Mixed(main), context, SPRINGS["more"].context


async def log(context: InputContext, count: int) -> None:
    for n in range(count):
        await context.emit(Batch.documents([document(n)]))


@pytest.mark.parametrize("in_flight", [1, 2, 32])
async def test_keys_are_delivered_while_log_events_get_no_answer(tmp_path: Path, in_flight: int) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=in_flight)
        at.held = "logs"
        await log(logs, MANY)
        await at.destination.until(lambda: at.destination.sending > 0)
        for n in range(5):
            await keep(state, *"abc", n=n)
            await at.destination.until(lambda n=n: at.destination.shelf.get("c", (0, None))[1] == document(n))  # type: ignore[misc]
        assert at.destination.received == []
        at.go.set()
        await settled(on)

        assert sorted(at.destination.received) == list(range(MANY))


@pytest.mark.parametrize("in_flight", [1, 2, 32])
async def test_log_events_are_delivered_while_keys_get_no_answer(tmp_path: Path, in_flight: int) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=in_flight, events=1)
        at.held = "state"
        await keep(state, *map(str, range(MANY)))
        await at.destination.until(lambda: at.destination.sending > 0)
        await log(logs, MANY)
        await at.destination.until(lambda: len(at.destination.received) == MANY)
        assert at.destination.shelf == {}
        at.go.set()
        await settled(on)

        assert len(at.destination.shelf) == MANY


async def test_both_have_requests_of_their_own(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=3, events=1)
        sending: list[bool] = []

        async def hang(batch: Batch) -> Answers:
            sending.append(batch.versions is None)
            await trio.sleep_forever()
            raise AssertionError

        at.destination.send = hang
        await log(logs, MANY)
        await at.destination.until(lambda: len(sending) == 3)
        await keep(state, *"abcdef")
        await at.destination.until(lambda: len(sending) == 6)
        await trio.testing.wait_all_tasks_blocked()

        assert sending == [True] * 3 + [False] * 3


@pytest.mark.parametrize("outcome", [Outcome.LATER, Outcome.HELD])
async def test_keys_are_delivered_while_log_events_are_put_off(tmp_path: Path, outcome: Outcome) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on)
        at.answer = lambda batch: Answers(batch.count, {0: Answer(outcome, "no")})
        await log(logs, MANY)
        for n in range(5):
            await keep(state, "a", n=n)
            await at.destination.until(lambda n=n: at.destination.shelf.get("a", (0, None))[1] == document(n))  # type: ignore[misc]
        at.answer = lambda batch: at.destination.answer(batch, {})
        await settled(on)

        assert sorted(at.destination.received) == list(range(MANY))


async def test_keys_are_delivered_while_each_request_of_log_events_fails(tmp_path: Path) -> None:

    def fail(batch: Batch) -> Answers:
        raise Later("503")

    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on)
        at.answer = fail
        await log(logs, MANY)
        for n in range(5):
            await keep(state, "a", n=n)
            await at.destination.until(lambda n=n: at.destination.shelf.get("a", (0, None))[1] == document(n))  # type: ignore[misc]
        at.answer = lambda batch: at.destination.answer(batch, {})
        await settled(on)

        assert sorted(at.destination.received) == list(range(MANY))


async def test_keys_are_delivered_while_others_hold_all_memory_that_is_shared(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on)
        lender = on.delivery.lender
        await Borrower(lender).borrow(lender.shared)
        at.held = "logs"
        await log(logs, MANY)
        await at.destination.until(lambda: at.destination.sending > 0)
        await keep(state, "a", n=1)
        await at.destination.until(lambda: "a" in at.destination.shelf)
        at.go.set()


@pytest.mark.parametrize("held", ["logs", "state"])
@pytest.mark.parametrize("is_back", [False, True])
async def test_a_barrier_waits_for_both(tmp_path: Path, held: str, is_back: bool) -> None:
    """Also that of a lane which is active again, and settles it as it goes on."""
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on)
        other = Mixed(script("other"))
        (lane,) = on.of_state()
        at.held = held
        await keep(state, "a", n=1)
        await log(logs, 1)
        await at.destination.until(lambda: len(at.destination.shelf) + len(at.destination.received) == 1)
        await at.destination.until(lambda: on.spool.figures.total().events == 1)
        await on.offer(2, policy(to="other", inputs=INPUTS))
        await on.ack(2, "active")
        await other.destination.until(lambda: "a" in other.destination.shelf)
        if is_back:
            await on.offer(3, policy(inputs=INPUTS))
            await on.ack(3, "active")
            await at.destination.until(lambda: lane.front > 0)
        await trio.testing.wait_all_tasks_blocked()
        newest = 3 if is_back else 2
        assert f"{newest} drained" not in on.lines()
        at.go.set()
        with trio.fail_after(ROOM):
            await on.ack(newest, "drained")
        await settled(on)

        ledgers = [one.ledger for one in on.said if isinstance(one, Ack) and one.ledger is not None]
        assert all(ledger.accepted == ledger.delivered + ledger.superseded for ledger in ledgers)
        assert sum(ledger.accepted for ledger in ledgers) > 0, "each revision counts what it found waiting"


async def test_a_retired_lane_is_drained_of_both_though_they_are_mixed_in_its_queue(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, backoff=(0.01, 0.01))
        script("other")
        Mixed(script("other"))
        at.destination.send = at.destination.raising(Later("down"))
        for n in range(MANY):
            await keep(state, str(n), n=n)
            await log(logs, 1)
        await on.offer(2, policy(to="other", inputs=INPUTS))
        await on.ack(2, "active")
        at.destination.send = at._send
        drained = await on.ack(2, "drained")

        assert drained.ledger == Counts(accepted=2 * MANY, delivered=2 * MANY)


async def test_state_is_kept_anew_while_log_events_stand_below_it(tmp_path: Path) -> None:
    """The front of the log events says nothing of slots."""
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=1, events=1)
        at.held = "state"
        await keep(state, "first")
        await at.destination.until(lambda: at.destination.sending == 1)
        await keep(state, "next")
        await keep(state, "waits", n=1)
        await keep(state, "after", n=1)
        await log(logs, 3)
        await at.destination.until(lambda: len(at.destination.received) == 3)
        await keep(state, "waits", n=2)
        at.go.set()
        await settled(on)

        assert [key for key, *_ in at.destination.shelved] == ["first", "next", "waits", "after"]
        assert at.destination.shelf["waits"][1] == document(2)


async def change_all(state: InputContext, keys: int) -> None:
    n = 0
    while True:
        n += 1
        await state.keep([Change("things", str(key), document(n)) for key in range(keys)])


async def test_log_events_go_on_while_many_keys_change_all_the_time(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=1, events=5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change_all, state, 50)
            await at.destination.until(lambda: len(at.destination.shelf) > 0)
            await log(logs, MANY)
            await at.destination.until(lambda: len(at.destination.received) == MANY)
            nursery.cancel_scope.cancel()


# -- a destination that answers later ----------------------------------------------------------------------------------


class Late:
    """Has an output take log events, and answer for them when `go` is set; `fails` first ends so many requests."""

    def __init__(self, at: Mixed, fails: int = 0) -> None:
        self.at, self.fails = at, fails
        self.taken: list[int] = []
        """The places of the batches that were taken, each time."""
        self.go, self._ending = trio.Event(), trio.Event()
        at.destination.send = self._send
        at.destination.on_ending = self._end

    async def _send(self, batch: Batch) -> Answers:
        ending = self._ending  # the lane may end what it has just begun
        await trio.lowlevel.checkpoint()
        if self.fails:
            self.fails -= 1
            raise Later("503")
        if batch.versions is not None:
            return self.at.destination.shelve_now(batch, ())
        self.taken.append(batch.place)
        self.at.destination.contexts[-1].taken()
        self.at.destination.notify()
        async with trio.open_nursery() as nursery:
            for event in (self.go, ending):
                nursery.start_soon(_cancel_after, event, nursery.cancel_scope)
        if not self.go.is_set():
            raise Later("the lane begins anew")
        return self.at.destination.answer(batch, {})

    def _end(self) -> None:
        self._ending.set()
        self._ending = trio.Event()


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_what_is_taken_after_trouble_need_not_be_answered_before_others_go(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=4)
        late = Late(at, fails=1_000_000)
        await log(logs, 3)
        late.fails = 0
        await at.destination.until(lambda: len(set(late.taken)) == 3)
        await keep(state, "a", n=1)
        await at.destination.until(lambda: "a" in at.destination.shelf)
        late.go.set()
        await settled(on)

        assert sorted(at.destination.received) == [0, 1, 2]
        assert len(late.taken) == 3


async def test_trouble_with_keys_does_not_wait_for_answers_that_come_later(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, state, logs = await mixed(on, in_flight=4)
        late = Late(at)
        await log(logs, 2)
        await at.destination.until(lambda: len(late.taken) == 2)
        late.fails = 1
        await keep(state, "a", n=1)
        await at.destination.until(lambda: "a" in at.destination.shelf)
        late.go.set()
        await settled(on)

        assert sorted(at.destination.received) == [0, 1]


async def test_what_was_taken_after_trouble_is_sent_again_after_other_trouble(tmp_path: Path) -> None:
    async with theatre(tmp_path) as on:
        at, _, logs = await mixed(on, in_flight=4)
        late = Late(at, fails=1)
        await log(logs, 3)
        await at.destination.until(lambda: len(set(late.taken)) == 3)
        places = set(late.taken)
        late.fails = 1
        await log(logs, 1)
        await at.destination.until(lambda: all(late.taken.count(place) > 1 for place in places))
        late.go.set()
        await settled(on)

        assert sorted(at.destination.received) == [0, 0, 1, 2]
