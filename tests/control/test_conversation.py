"""The conversation, over real pipes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from shipper.control.conversation import (
    ACTIONS_AT_ONCE,
    ACTIONS_WAITING,
    LEAST_HEARTBEAT,
    LOOK_SECONDS,
    QUIET_SECONDS,
    Conversation,
    Observing,
    Performing,
)
from shipper.control.outbox import FULL, Outbox
from shipper.control.pipes import Stdin, Stdout
from shipper.protocol.bounds import IDS_BYTES
from shipper.protocol.messages import Action, Error, Hello, Observed, Outbound, Result, Stop
from shipper.revisions import statements
from shipper.revisions.offer import Offer
from shipper.sdk.codes import Code
from shipper.sdk.errors import CredentialError
from tests.control.test_outbox import closed, observed

PATIENCE = 60.0


class Ends:
    """The supervisor's ends of the two pipes."""

    def __init__(self) -> None:
        self.stdin, self.write = os.pipe()
        self.read, self.stdout = os.pipe()

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            os.write(self.write, (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    with closed((made.stdin, made.write), (made.read, made.stdout)):
        yield made


class SpyingOutbox(Outbox):
    """Keeps what was said; looks that it can be decided by its code."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.said: list[Outbound] = []

    def say(self, message: Outbound, written: Callable[[], None] = lambda: None) -> None:
        if isinstance(message, Error) or (isinstance(message, Result) and message.status == "FAILED"):
            assert message.code in set(Code)
        self.said.append(message)


class Parts:
    """A core, with its actions, that notes what it is asked."""

    def __init__(self) -> None:
        self.offered: list[int] = []
        self.asked = 0
        self.questions: list[set[str]] = []
        self.leases: list[float | None] = []
        self.gate = trio.Event()
        self.is_full = False
        self.room = trio.Event()
        self.act: Callable[[Action], None]

    async def has_room(self) -> None:
        await self.room.wait()

    async def offer(self, offer: Offer) -> None:
        self.offered.append(offer.at.number)

    def renew_lease(self, until: float | None) -> None:
        self.leases.append(until)

    def ask(self, ids: Collection[str]) -> None:
        self.questions.append({*ids})

    def observe(self, supervisor: object) -> None:
        self.asked += 1

    async def perform(self, action: Action) -> Result:
        await self.gate.wait()
        return Result(id=action.id, status="SUCCESS")


@asynccontextmanager
async def talking(ends: Ends) -> AsyncIterator[tuple[Conversation, SpyingOutbox, Parts]]:
    outbox = SpyingOutbox(Stdout(ends.stdout))
    with trio.fail_after(PATIENCE):
        yield Conversation(Stdin(ends.stdin), outbox), outbox, Parts()


def errors(outbox: SpyingOutbox) -> list[int]:
    return [message.line_number for message in outbox.said]  # type: ignore[attr-defined]


async def test_hello_comes_first_and_each_line_before_it_is_one_error(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, _):
        ends.send({"type": "stop"}, b"garbage", b"", {"type": "hello", "protocol": 1, "supervisor": "s"})

        assert await conversation.hello() == (4, Hello(protocol=1, supervisor="s"))
        assert errors(outbox) == [1, 2, 3]


async def test_ids_that_have_no_room_in_one_message_are_said_in_several(ends: Ends) -> None:
    ids = [f"{number:0100}" for number in range(IDS_BYTES // 100 + 1)]
    async with talking(ends) as (conversation, outbox, _):
        conversation.say(statements.Released(ids), lambda: None)
        conversation.observed(observed(""))
        conversation.result(Result(id="a1", status="SUCCESS"))

        *released, seen, last = outbox.said
        assert isinstance(seen, Observed)
        assert len(released) > 1
        assert [id for message in released for id in message.credentials] == ids  # type: ignore[union-attr]
        assert last == Result(id="a1", status="SUCCESS")


async def test_the_end_of_standard_input_is_a_stop(ends: Ends) -> None:
    async with talking(ends) as (conversation, _, parts):
        ends.send({"type": "policy", "revision": 1, "policy": ""})
        os.close(ends.write)

        assert await conversation.run(parts) == Stop()  # type: ignore[arg-type]
        assert parts.offered == [1]


async def test_lines_are_answered_in_their_order_and_bad_ones_change_nothing(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, parts):
        ends.send(
            {"type": "policy", "revision": 1, "policy": ""},
            {"type": "policy", "revision": "one"},
            {"type": "hello", "protocol": 1},
            {"type": "observe"},
            {"type": "policy", "revision": 2, "policy": ""},
            {"type": "stop", "within_seconds": 3},
        )

        assert await conversation.run(parts) == Stop(within_seconds=3.0)  # type: ignore[arg-type]
        assert (parts.offered, parts.asked, errors(outbox)) == ([1, 2], 1, [2, 3])


async def test_leases_are_passed_on_in_their_order_and_one_without_its_end_is_an_error(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, parts):
        ends.send(
            {"type": "lease", "until": 12.5},
            {"type": "lease"},
            {"type": "lease", "until": "soon"},
            {"type": "lease", "until": None},
            {"type": "lease", "until": 3},
            {"type": "stop"},
        )
        await conversation.run(parts)  # type: ignore[arg-type]

    assert (parts.leases, errors(outbox)) == ([12.5, None, 3.0], [2, 3])


async def test_an_error_that_quotes_much_is_shortened(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, _):
        conversation.error(1, "x" * (5 << 20), "malformed")

        (error,) = outbox.said
        assert len(error.line()) < 10_000


async def test_a_line_that_is_too_long_is_skipped_to_its_end(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, parts):

        def flood() -> None:
            for _ in range(65):
                os.write(ends.write, b"x" * 65536)
            ends.send(b"", {"type": "observe"}, {"type": "stop"})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, flood)
            await conversation.run(parts)  # type: ignore[arg-type]

        assert (errors(outbox), parts.asked) == ([1], 1)


async def test_a_signal_ends_it_though_standard_output_is_blocked_and_full(ends: Ends) -> None:
    outbox = Outbox(Stdout(ends.stdout))
    for number in range(FULL):
        outbox.say(Result(id=str(number), status="SUCCESS"))
    conversation, parts = Conversation(Stdin(ends.stdin), outbox), Parts()
    ends.send({"type": "observe"})
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conversation.run, parts)
            await trio.testing.wait_all_tasks_blocked(0.05)
            conversation.interrupt()


async def test_the_end_of_standard_input_is_seen_though_standard_output_is_blocked_and_full(ends: Ends) -> None:
    outbox, parts = SpyingOutbox(Stdout(ends.stdout)), Parts()
    for number in range(FULL):
        Outbox.say(outbox, Result(id=str(number), status="SUCCESS"))
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Conversation(Stdin(ends.stdin), outbox).run, parts)
            ends.send(*[b"garbage"] * 1500)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert outbox.said == []
            os.close(ends.write)

    assert errors(outbox) == [*range(1, 1501)]


async def test_no_line_is_read_while_policies_have_no_room(ends: Ends) -> None:
    async with talking(ends) as (conversation, _, parts):
        parts.is_full = True
        ends.send({"type": "observe"}, {"type": "stop"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conversation.run, parts)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert parts.asked == 0

            parts.is_full = False
            parts.room.set()

        assert parts.asked == 1


@pytest.mark.parametrize("by_signal", [True, False])
async def test_a_signal_and_the_end_of_standard_input_end_it_though_policies_have_no_room(
    ends: Ends, by_signal: bool
) -> None:
    async with talking(ends) as (conversation, _, parts):
        parts.is_full = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conversation.run, parts)
            await trio.testing.wait_all_tasks_blocked(0.05)
            if by_signal:
                conversation.interrupt()
            else:
                os.close(ends.write)


@asynccontextmanager
async def performing(outbox: Outbox, parts: Parts) -> AsyncIterator[Performing]:
    """Cancelled in the end, as at the end of the grace of a stop."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            acting = Performing(nursery, parts, outbox.say)  # type: ignore[arg-type]
            parts.act = acting.begin
            yield acting
            nursery.cancel_scope.cancel("the grace is over")


def results(outbox: SpyingOutbox) -> list[tuple[str, str]]:
    return [(message.id, message.status) for message in outbox.said if isinstance(message, Result)]


async def test_actions_run_beside_policies_and_a_flood_of_them_is_refused(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, parts):
        actions = [{"type": "action", "id": f"a{number}", "name": "tap"} for number in range(200)]
        async with performing(outbox, parts), trio.open_nursery() as nursery:
            nursery.start_soon(conversation.run, parts)
            ends.send(*actions, {"type": "policy", "revision": 1, "policy": ""}, {"type": "stop"})

        assert parts.offered == [1]
        refused = [message for message in outbox.said if isinstance(message, Result) and "too many" in message.message]
        assert len(refused) == 200 - ACTIONS_AT_ONCE - ACTIONS_WAITING
        assert sorted(results(outbox)) == sorted((action["id"], "FAILED") for action in actions)


@pytest.mark.parametrize("end", [b'{"type":"stop"}\n', b""])
async def test_an_action_before_the_end_gets_its_result(ends: Ends, end: bytes) -> None:
    async with talking(ends) as (conversation, outbox, parts), performing(outbox, parts) as acting:
        ends.send({"type": "action", "id": "a1", "name": "diagnostics"})
        os.write(ends.write, end)
        os.close(ends.write)
        parts.gate.set()
        await conversation.run(parts)  # type: ignore[arg-type]
        await acting.finished()

        assert results(outbox) == [("a1", "SUCCESS")]


async def test_an_action_that_is_not_done_when_the_grace_is_over_is_failed(ends: Ends) -> None:
    outbox, parts = SpyingOutbox(Stdout(ends.stdout)), Parts()
    async with performing(outbox, parts) as acting:
        acting.begin(Action(id="began", name="drop"))
        await trio.testing.wait_all_tasks_blocked()
        acting.begin(Action(id="did not begin", name="drop"))

    assert sorted(results(outbox)) == [("began", "FAILED"), ("did not begin", "FAILED")]


async def test_nothing_waits_for_taps(ends: Ends) -> None:
    class Tapping(Parts):
        async def perform(self, action: Action) -> Result:
            return await super().perform(action) if action.name == "tap" else Result(id=action.id, status="SUCCESS")

    outbox = SpyingOutbox(Stdout(ends.stdout))
    async with performing(outbox, Tapping()) as acting:
        for number in range(ACTIONS_AT_ONCE):
            acting.begin(Action(id=f"t{number}", name="tap"))
        await trio.testing.wait_all_tasks_blocked()
        acting.begin(Action(id="o1", name="drop"))
        await acting.finished()

        assert results(outbox) == [("o1", "SUCCESS")]


async def test_a_standard_input_that_is_not_blocking_is_read_on(ends: Ends) -> None:
    fcntl.fcntl(ends.stdin, fcntl.F_SETFL, fcntl.fcntl(ends.stdin, fcntl.F_GETFL) | os.O_NONBLOCK)
    async with talking(ends) as (conversation, _, parts), trio.open_nursery() as nursery:
        nursery.start_soon(conversation.run, parts)
        await trio.testing.wait_all_tasks_blocked(0.05)
        ends.send({"type": "policy", "revision": 7, "policy": ""})
        while not parts.offered:  # noqa: ASYNC110 - a pipe tells nobody
            await trio.sleep(0.01)
        ends.send({"type": "stop"})  # a reader that is left behind would take what the next test writes

    assert parts.offered == [7]


async def test_the_end_of_standard_input_before_a_hello_is_no_hello(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, _):
        ends.send({"type": "observe"})
        os.close(ends.write)

        assert await conversation.hello() is None
        assert errors(outbox) == [1]


async def test_a_locked_directory_nacks_policies_fails_actions_and_is_observed(ends: Ends) -> None:
    async with talking(ends) as (conversation, outbox, parts):
        refused: list[Offer] = []
        ends.send(
            {"type": "policy", "revision": 1, "policy": ""},
            {"type": "observe"},
            {"type": "action", "id": "a1", "name": "diagnostics"},
            {"type": "credentials", "credentials": {}},
            {"type": "stop"},
        )
        await conversation.locked(refused.append, parts.observe)  # type: ignore[arg-type]

        assert [offer.at.number for offer in refused] == [1]
        assert parts.asked == 1
        assert results(outbox) == [("a1", "FAILED")]
        assert [message.line_number for message in outbox.said if isinstance(message, Error)] == [4]


async def test_a_locked_directory_waits_no_longer_than_its_supervisor(ends: Ends) -> None:
    async with talking(ends) as (conversation, _, parts):
        os.close(ends.write)

        await conversation.locked(lambda offer: None, parts.observe)  # type: ignore[arg-type]


async def test_credentials_that_cannot_be_used_are_an_error_and_the_conversation_goes_on(ends: Ends) -> None:
    class Conflicting(Parts):
        async def supply(self, credentials: object) -> None:
            raise CredentialError("credential_conflict", "credential `k1` is known with another content")

    async with talking(ends) as (conversation, outbox, _):
        ends.send({"type": "credentials", "credentials": {"k1": {"api_key": "a:b"}}}, {"type": "stop"})
        parts = Conflicting()

        assert await conversation.run(parts) == Stop()  # type: ignore[arg-type]
        text = "credential `k1` is known with another content"
        assert outbox.said == [Error(line_number=1, message=text, code="credential_conflict")]


async def test_a_standard_input_that_cannot_be_read_has_ended(ends: Ends) -> None:
    directory = os.open(os.curdir, os.O_RDONLY)
    try:
        with trio.fail_after(PATIENCE):
            assert await Conversation(Stdin(directory), SpyingOutbox(Stdout(ends.stdout))).hello() is None
    finally:
        os.close(directory)


async def test_a_signal_before_the_first_line_ends_the_conversation_too(ends: Ends) -> None:
    async with talking(ends) as (conversation, _, _):
        ends.send({"type": "hello", "protocol": 1})
        conversation.interrupt()

        assert await conversation.hello() is None


# -- while it stops ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stopping(ends: Ends, within: float) -> AsyncIterator[tuple[Conversation, SpyingOutbox, Parts, list[float]]]:
    """In the end, standard input ended; the list then holds the seconds that the grace had."""
    async with talking(ends) as (conversation, outbox, parts):
        seconds: list[float] = []
        async with trio.open_nursery() as nursery:
            started = trio.current_time()
            grace = trio.CancelScope(deadline=started + within)
            nursery.start_soon(conversation.stopping, grace, parts)
            yield conversation, outbox, parts, seconds
        seconds.append(grace.deadline - started)


@pytest.mark.parametrize(("within", "wanted"), [(3600, 20), (5, 5)])
async def test_the_end_of_standard_input_after_a_stop_is_one_of_20_seconds(
    ends: Ends, within: float, wanted: float
) -> None:
    async with stopping(ends, within) as (_, _, _, seconds):
        os.close(ends.write)

    assert seconds[0] == pytest.approx(wanted, abs=2)


async def test_a_signal_after_a_stop_is_one_of_20_seconds(ends: Ends) -> None:
    async with stopping(ends, 3600) as (conversation, _, _, seconds):
        await trio.testing.wait_all_tasks_blocked(0.05)
        conversation.interrupt()
        ends.send(b"")  # for the reader that is left behind

    assert seconds[0] == pytest.approx(20, abs=2)


async def test_a_later_stop_ends_the_grace_sooner_and_never_later(ends: Ends) -> None:
    async with stopping(ends, 60) as (_, _, _, seconds):
        ends.send({"type": "stop", "within_seconds": 5}, {"type": "stop", "within_seconds": 3600})
        os.close(ends.write)

    assert seconds[0] == pytest.approx(5, abs=2)


async def test_what_is_said_while_it_stops_is_answered_and_has_no_effect(ends: Ends) -> None:
    async with stopping(ends, 60) as (_, outbox, parts, _):
        ends.send(
            {"type": "policy", "revision": 1, "policy": ""},
            {"type": "observe"},
            {"type": "action", "id": "a1", "name": "diagnostics"},
            b"garbage",
        )
        os.close(ends.write)

    assert (parts.offered, parts.asked, results(outbox)) == ([], 1, [("a1", "FAILED")])
    assert [message.line_number for message in outbox.said if isinstance(message, Error)] == [1, 4]


async def test_a_lease_is_renewed_while_it_stops(ends: Ends) -> None:
    async with stopping(ends, 60) as (_, outbox, parts, _):
        ends.send({"type": "lease", "until": 12.5})
        os.close(ends.write)

    assert (parts.leases, outbox.said) == ([12.5], [])


# -- observed ----------------------------------------------------------------------------------------------------------


class Looking:
    """An observer that sees what the test says, and counts how often it was asked."""

    def __init__(self) -> None:
        self.seen = observed("all is well")
        self.looks = 0
        self.takes = 0.0

    async def look(self, stopping: str | None) -> Observed:
        await trio.sleep(self.takes)
        self.looks += 1
        return self.seen


@asynccontextmanager
async def observing(ends: Ends, heartbeat: float = 25) -> AsyncIterator[tuple[Observing, Looking, SpyingOutbox]]:
    outbox, looking = SpyingOutbox(Stdout(ends.stdout)), Looking()
    watching = Observing(outbox.say, heartbeat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching.run, looking.look)
        await trio.testing.wait_all_tasks_blocked()
        yield watching, looking, outbox
        nursery.cancel_scope.cancel("the test is over")


async def test_what_changed_is_said_at_once_and_figures_wait_for_the_heartbeat(
    ends: Ends, autojump_clock: trio.testing.MockClock
) -> None:
    async with observing(ends) as (watching, looking, outbox):
        first = looking.seen
        assert outbox.said == [first]
        looking.seen = figures = replace(first, queue=replace(first.queue, disk_bytes=7))
        watching.changed()
        await trio.sleep(watching.heartbeat - 1)
        assert outbox.said == [first]
        await trio.sleep(2)
        assert outbox.said == [first, figures]

        looking.seen = news = replace(first, message="something is wrong")
        watching.changed()
        await trio.testing.wait_all_tasks_blocked()
        assert outbox.said == [first, figures, news]


async def test_the_lapse_of_a_lease_is_said_at_once_and_a_renewal_waits_for_the_heartbeat(
    ends: Ends, autojump_clock: trio.testing.MockClock
) -> None:
    async with observing(ends) as (watching, looking, outbox):
        for seconds in (10.0, 9.0, 30.0, 0.0, 5.0, None):
            looking.seen = replace(looking.seen, lease_seconds=seconds)
            watching.changed()
            await trio.sleep(0.5)

        assert [message.lease_seconds for message in outbox.said[1:]] == [10.0, 0.0, 5.0, None]  # type: ignore[union-attr]


async def test_a_heartbeat_has_a_least_length(ends: Ends, autojump_clock: trio.testing.MockClock) -> None:
    async with observing(ends, heartbeat=1e-9) as (_, looking, _):
        await trio.sleep(1)

        assert 2 <= looking.looks <= 1 + 1 / LEAST_HEARTBEAT


async def test_what_nobody_told_of_is_seen_by_looking(ends: Ends, autojump_clock: trio.testing.MockClock) -> None:
    async with observing(ends) as (_, looking, outbox):
        looking.seen = replace(looking.seen, message="the disk hangs")
        await trio.sleep(LOOK_SECONDS + 1)

        assert [message.message for message in outbox.said] == ["all is well", "the disk hangs"]  # type: ignore[union-attr]


async def test_who_asks_is_answered_though_nothing_changed(ends: Ends, autojump_clock: trio.testing.MockClock) -> None:
    async with observing(ends) as (watching, looking, outbox):
        watching.ask()
        await trio.testing.wait_all_tasks_blocked()

        assert outbox.said == [looking.seen] * 2


async def test_a_flood_of_changes_that_say_nothing_is_looked_at_now_and_then(
    ends: Ends, autojump_clock: trio.testing.MockClock
) -> None:
    async with observing(ends) as (watching, looking, _):
        for _ in range(1000):
            watching.changed()
            await trio.sleep(0.001)

        assert looking.looks <= 1 + 1 / QUIET_SECONDS + 1


@pytest.mark.parametrize("said", [None, 7, "x", ["y"], {"troubles": 5}, {"troubles": [{"kind": 1}]}, {"restarts": "x"}])
async def test_what_is_said_of_a_supervisor_and_cannot_be_understood_is_ignored(ends: Ends, said: Any) -> None:
    observing = Observing(SpyingOutbox(Stdout(ends.stdout)).say, 25)
    observing.heed({"restarts": 2, "troubles": [{"kind": "policy", "cause": "c", "more": 1}] * 500})
    before = observing.supervision
    observing.heed(said)

    assert before is not None
    assert observing.supervision == before
    assert (before.restarts, len(before.troubles)) == (2, 100)


async def test_under_steady_change_looking_has_a_fifth_of_the_time(
    ends: Ends, autojump_clock: trio.testing.MockClock
) -> None:
    """A look at hundreds of lanes takes its time, and revisions wait for it."""
    async with observing(ends) as (watching, looking, _):
        looking.takes = 0.05
        for number in range(1000):
            looking.seen = replace(looking.seen, message=f"{number}")
            watching.changed()
            await trio.sleep(0.01)

        assert 30 <= looking.looks <= 42


async def test_who_asks_about_credentials_has_their_destinations_asked(ends: Ends) -> None:
    async with talking(ends) as (conversation, _, parts):
        for ask in (["k1", "k2", 7], [], "k1"):
            ends.send({"type": "observe", "ask": ask})
        ends.send({"type": "stop"})
        await conversation.run(parts)  # type: ignore[arg-type]

        assert (parts.questions, parts.asked) == ([{"k1", "k2"}], 3)
