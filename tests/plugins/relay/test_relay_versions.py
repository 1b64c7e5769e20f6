"""`acknowledge: delivered` for keyed state: an edge has its answers when the outputs of its principal have answered."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Answers, Asyncio, Later, Outcome
from shipper.plugin.relay import Ranked
from shipper_demo.ports import free_port
from shipper_plugins.relay import state
from shipper_plugins.relay.edge import awaited
from shipper_plugins.relay.edge import versions as relay_versions
from shipper_plugins.relay.edge.versions import VersionsJob, WaitingVersions
from shipper_plugins.relay.frames import Generation, Told, VersionOutcome, Welcome
from shipper_plugins.relay.principal import answers as relay_answers
from shipper_plugins.relay.principal import settled as relay_settled
from shipper_plugins.relay.principal.settled import Room, Settled
from tests.plugins.relay import pair
from tests.plugins.relay.pair import Principal
from tests.plugins.relay.test_relay_state import ONE, TWO, Here, door, edge, has, outcomes, versions
from tests.plugins.running import becomes

MODE: dict[str, Any] = {"acknowledge": "delivered"}


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(awaited, "LOOK_SECONDS", 0.2)


def settle(far: Principal, rank: int = 0, *, but: frozenset[str] | set[str] = frozenset()) -> None:
    """All outputs of the principal have answered for the versions that are open there, with this as the worst."""
    open = [key for key, said in far.context.awaited.items() if said is None and key not in but]
    far.context.awaited.update(dict.fromkeys(open, bytes([rank])))
    far.source.answered(open)


class Sending(pair.Sending):
    """The same for batches of versions, by the number of each; an answer has a word for each version."""

    count = 0

    def send(self, *those: tuple[str, int, bytes | None]) -> None:  # type: ignore[override]
        super().send(versions(*those), self.count)
        self.count += 1

    @property
    def said(self) -> dict[int, list[str]]:
        return {number: outcomes(answers) for number, answers in self.answers.items()}


def sending_to(aio: Asyncio, *urls: str, here: Here | None = None, **how: Any) -> AbstractAsyncContextManager[Any]:
    return pair.sending_to(aio, *urls, kind=Sending, here=here or Here(), **how)


async def asked(far: Principal) -> None:
    """All that was sent is awaited, and the edge asks for it."""
    await becomes(lambda: None in far.context.awaited.values())
    await trio.testing.wait_all_tasks_blocked(0.05)


async def test_a_version_is_confirmed_when_all_outputs_of_the_principal_have_answered(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        for number, rank in enumerate(Ranked):
            sending.send(("a", number + 1, b'{"n":%d}' % number))
            await asked(far)
            before = sending.said
            settle(far, rank)
            await sending.answered(number)
            assert number not in before

        found = [answer for number in range(len(Ranked)) for answer in sending.said[number]]
        assert found == ["stored", "duplicate", "superseded", "dead_letter", "dropped", "damaged"]


async def test_a_batch_ends_when_all_its_versions_are_answered(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(("a", 1, ONE), ("b", 2, ONE), ("c", 3, b'{"n":"%s"}' % (b"x" * 2000)))
        await asked(far)
        (first, second) = far.context.awaited
        settle(far, Ranked.DROPPED, but={first})
        await trio.testing.wait_all_tasks_blocked(0.05)
        before = sending.said
        settle(far)
        await sending.answered(0)

        assert before == {}
        assert sending.said[0] == ["stored", "dropped", "rejected"]
        assert second.startswith("berlin/")


async def test_t117_6_one_without_an_answer_delays_no_other_key_and_no_newer_version(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(("a", 1, ONE))
        await asked(far)
        held = set(far.context.awaited)
        sending.send(("b", 2, ONE))
        await becomes(lambda: len(far.context.awaited) == 2)
        settle(far, but=held)
        await sending.answered(1)
        assert sending.said == {1: ["stored"]}
        sending.send(("a", 3, TWO))
        await sending.answered(0)
        assert sending.said[0] == ["superseded"]
        await becomes(lambda: has(far) == {("berlin", "a"): TWO, ("berlin", "b"): ONE})
        assert 2 not in sending.answers
        settle(far)
        await sending.answered(2)


async def test_a_hot_key_waits_once(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        for place in range(1, 50):
            sending.send(("a", place, b'{"n":%d}' % place))
            await becomes(lambda place=place: has(far) == {("berlin", "a"): b'{"n":%d}' % place})
        await sending.answered(*range(48))
        assert [key.rpartition("/")[2] for key in far.context.awaited] == ["49"]
        settle(far)
        await sending.answered(48)


async def test_a_version_that_another_link_has_superseded_is_not_waited_for(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(("a", 1, ONE))
        await asked(far)
        async with sending_to(aio, far.url, credential="k2", lane=2) as other:
            other.send(("a", 2, TWO))
            await becomes(lambda: has(far) == {("berlin", "a"): TWO})
            settle(far)
            await sending.answered(0)

        assert sending.said[0] == ["superseded"]


async def test_a_version_that_is_in_no_slot_any_more_is_not_waited_for(aio: Asyncio) -> None:
    """As one that a newer version has superseded, which goes by another lane."""
    here = Here()
    async with door(aio, **MODE) as far, sending_to(aio, far.url, here=here) as sending:
        sending.send(("a", 1, ONE), ("b", 2, ONE))
        await asked(far)
        here.no_slot = {1}
        await becomes(lambda: len(sending.sender._awaited.versions.open()) == 1)
        settle(far)
        await sending.answered(0)

        assert sending.said[0] == ["superseded", "stored"]


async def test_a_principal_that_was_started_anew_gives_the_answers(aio: Asyncio) -> None:
    port = free_port()
    async with sending_to(aio, f"http://127.0.0.1:{port}") as sending:
        async with door(aio, port=port, **MODE) as before:
            sending.send(("a", 1, ONE))
            sending.send(("b", 2, ONE))
            await becomes(lambda: len(before.context.awaited) == 2)
        before.context.close()
        again = before.copied()
        (first,) = [key for key in again.awaited if key.endswith("/1")]
        again.awaited[first] = bytes([Ranked.DEAD_LETTER])
        async with door(aio, context=again, port=port, **MODE) as after:
            await sending.answered(0)
            assert sending.said == {0: ["dead_letter"]}
            settle(after, Ranked.DUPLICATE)
            await sending.answered(1)

    assert sending.said[1] == ["duplicate"]


async def test_an_edge_that_was_started_anew_has_the_answers(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far:
        async with sending_to(aio, far.url) as sending:
            sending.send(("a", 1, ONE), ("b", 2, ONE))
            await becomes(lambda: len(far.context.awaited) == 2)
        settle(far, Ranked.DROPPED)
        async with edge(aio, far.url) as sender:
            assert outcomes(await sender.send(versions(("a", 1, ONE), ("b", 2, ONE)))) == ["dropped", "dropped"]


async def test_a_send_that_was_cancelled_is_answered_when_it_comes_again(aio: Asyncio) -> None:
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        async with trio.open_nursery() as inner:
            Sending(sending.sender, inner).send(("a", 1, ONE))
            await asked(far)
            inner.cancel_scope.cancel()
        sending.send(("a", 1, ONE))
        await trio.testing.wait_all_tasks_blocked(0.05)
        before = sending.said
        settle(far)
        await sending.answered(0)

        assert (before, sending.said) == ({}, {0: ["stored"]})


async def test_the_mode_of_a_version_is_that_of_its_admission(aio: Asyncio) -> None:
    async with door(aio) as far, sending_to(aio, far.url) as sending:
        assert await sending.sender.send(versions(("a", 1, ONE))) == Answers(1, is_stored=True)
        far.change(**MODE)
        sending.send(("b", 2, ONE))
        await asked(far)
        far.change()
        assert await sending.sender.send(versions(("c", 3, ONE))) == Answers(1, is_stored=True)
        assert sending.said == {}
        settle(far)
        await sending.answered(0)


async def test_what_is_only_stored_is_not_worth_a_delivery(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the mode changes in the moment in which a session begins."""
    async with door(aio, **MODE) as far, edge(aio, far.url) as sender, trio.open_nursery() as nursery:
        monkeypatch.setattr(far.source._edges, "renew", lambda: None)
        answers: list[Answers] = []

        async def send() -> None:
            answers.append(await sender.send(versions(("a", 1, ONE))))

        nursery.start_soon(send)
        await asked(far)
        settle(far)
        await becomes(lambda: answers != [])
        far.change(acknowledge="stored")
        for place, key in ((2, "b"), (2, "b"), (1, "a")):
            answers.append(await sender.send(versions((key, place, ONE))))

    assert [one.is_stored for one in answers] == [False, True, True, False]


async def test_a_version_whose_answers_are_lost_is_sent_again_after_a_while(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_versions, "AGAIN_SECONDS", 0.1)
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(("a", 1, ONE))
        await becomes(lambda: far.context.awaited != {})
        far.context.awaited.clear()
        await becomes(lambda: far.context.awaited != {})
        settle(far)
        await sending.answered(0)


async def test_many_answers_come_in_pages(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_answers, "MOST_VERSIONS_TOLD", 3)
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(*((f"k{n}", n, ONE) for n in range(1, 20)))
        await asked(far)
        settle(far)
        await sending.answered(0)


async def test_of_more_answers_than_are_remembered_an_edge_hears_in_another_session(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_settled, "MOST_SETTLED", 1)
    monkeypatch.setattr(relay_settled, "LEAST_SETTLED", 4)
    async with door(aio, **MODE) as far, sending_to(aio, far.url) as sending:
        sending.send(*((f"k{n}", n, ONE) for n in range(1, 20)))
        await asked(far)
        settle(far, Ranked.DROPPED)
        await sending.answered(0)

        assert sending.said[0] == ["dropped"] * 19


async def test_an_edge_is_told_of_its_own_versions_only(aio: Asyncio) -> None:
    async with (
        door(aio, **MODE) as far,
        sending_to(aio, far.url) as sending,
        sending_to(aio, far.url, credential="other", name="paris") as others,
    ):
        others.send(("a", 1, ONE))
        await asked(far)
        sending.send(("a", 1, ONE))
        await becomes(lambda: len(far.context.awaited) == 2)
        settle(far, but={key for key in far.context.awaited if key.startswith("berlin/")})
        await others.answered(0)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert sending.said == {}


# -- without a wire ----------------------------------------------------------------------------------------------------


def welcome(counter: int = 1) -> Welcome:
    return Welcome(1, Generation("0" * 32, counter), "berlin", "delivered", 25.0, 1 << 16, "1" * 32)


def begun(waiting: WaitingVersions, session: Welcome, *those: tuple[str, int, bytes | None]) -> VersionsJob:
    job = VersionsJob(versions(*those))
    waiting.begin(job, job.open(), session)
    return job


def test_an_answer_that_overtakes_the_confirmation_counts() -> None:
    waiting, session = WaitingVersions(lambda: None), welcome()
    job = begun(waiting, session, ("a", 5, ONE))
    name = state.name_at("berlin", job.version(0))
    waiting.note(session, Told(0, [], [VersionOutcome(name, 4, Ranked.DAMAGED)], 1))
    waiting.note(session, Told(0, [], [VersionOutcome(name, 5, Ranked.DROPPED)], 2))
    waiting.said(job, {}, session)

    assert not waiting.is_any
    assert [answer.outcome for answer in job.answers().others.values()] == [Outcome.DROPPED]


def test_what_was_told_in_another_session_is_no_mark_for_this_one() -> None:
    waiting, first, second = WaitingVersions(lambda: None), welcome(1), welcome(2)
    before = waiting.told_in(first)
    waiting.note(first, Told(0, [], [], 7))

    assert (before, waiting.told_in(first), waiting.told_in(second)) == (0, 7, 0)


async def test_what_was_stored_in_another_session_is_sent_again() -> None:
    waiting, first, second = WaitingVersions(lambda: None), welcome(1), welcome(2)
    job = begun(waiting, first, ("a", 5, ONE), ("b", 6, ONE))
    waiting.said(job, {0: None}, first)
    waiting.leave_to(first)
    before = job.goes_again
    waiting.leave_to(second)
    with trio.fail_after(30):
        await job.wait()

    assert (before, job.open()) == (False, [1])


async def test_what_is_on_its_way_in_this_session_is_not_sent_once_more_after_it() -> None:
    waiting, first, second = WaitingVersions(lambda: None), welcome(1), welcome(2)
    job = begun(waiting, first, ("a", 5, ONE))
    waiting.said(job, {}, first)
    waiting.leave_to(second)
    await job.wait()
    waiting.begin(job, job.open(), second)
    waiting.leave_to(second)

    assert not job.goes_again


async def test_what_nobody_can_ask_for_fails_and_is_not_asked_for() -> None:
    waiting, session = WaitingVersions(lambda: None), welcome()
    job = begun(waiting, session, ("a", 5, ONE))
    with waiting.of(job):
        waiting.said(job, {}, session)
        waiting.fail(Later("gone"))
        assert not waiting.is_any
        with pytest.raises(Later):
            await job.wait()
    assert waiting._named == {}


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 5))
def test_each_settled_version_is_told_once_in_the_order_of_the_last_word(numbers: list[int], most: int) -> None:
    room = Room()
    settled, told = Settled(room), list[str]()
    for number in numbers:
        settled.note(f"berlin/{number}/1")
    after = 0
    while (page := settled.above(1, after, most, 0.0)) is not None and page.keys:
        told += page.keys
        after = page.upto
    last = list(dict.fromkeys(f"berlin/{number}/1" for number in reversed(numbers)))[::-1]

    assert told == last
    assert (settled.upto, room.held) == (len(numbers), 0)


def test_an_edge_that_is_too_late_is_not_told_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_settled, "LEAST_SETTLED", 2)
    monkeypatch.setattr(relay_settled, "MOST_SETTLED", 2)
    pages: list[Any] = []
    settled = Settled(Room())
    for key in "abc":
        settled.note(key)
        pages.append(settled.above(1, 0, 10, 0.0))

    assert [page and list(page.keys) for page in pages] == [["a"], ["a", "b"], None]
    assert list((settled.above(1, 1, 10, 0.0) or pages[0]).keys) == ["b", "c"]


def test_what_others_wait_for_leaves_each_edge_its_own_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_settled, "LEAST_SETTLED", 2)
    monkeypatch.setattr(relay_settled, "MOST_SETTLED", 6)
    room = Room()
    one, other = Settled(room), Settled(room)
    for key in "abcdef":
        one.note(key)
    for key in "gh":
        other.note(key)
    few = other.above(1, 0, 10, 0.0)
    one.above(1, 6, 10, 0.0)
    for key in "ijkl":
        other.note(key)
    many = other.above(1, 0, 10, 0.0)

    assert [list(page.keys) if page else None for page in (few, many)] == [["g", "h"], ["g", "h", "i", "j", "k", "l"]]


def test_what_one_link_was_told_is_there_for_another_until_that_is_gone() -> None:
    room = Room()
    settled = Settled(room)
    marks = [settled.begin(link, 0.0) for link in (1, 2)]
    settled.note("a")
    settled.above(1, 1, 10, 0.0)
    for_the_other = settled.above(2, marks[1], 10, 0.0)
    settled.leave(2)
    settled.above(1, 1, 10, 0.0)

    assert for_the_other is not None
    assert (list(for_the_other.keys), room.held) == (["a"], 0)


def test_a_link_that_asks_no_more_keeps_nothing() -> None:
    room = Room()
    settled = Settled(room)
    settled.begin(2, 0.0)
    settled.note("a")
    settled.above(1, 1, 10, 30.0)
    before = room.held
    settled.above(1, 1, 10, 61.0)

    assert (before, room.held) == (1, 0)


def test_a_question_that_comes_again_late_ends_no_session() -> None:
    settled = Settled(Room())
    settled.begin(1, 0.0)
    for key in "ab":
        settled.note(key)
    for number in (0, 1):
        settled.above(1, number, 1, 0.0)
    late = settled.above(1, 0, 10, 0.0)

    assert late is not None
    assert list(late.keys) == ["b"]


def test_a_version_that_is_settled_again_is_told_again_and_takes_the_room_of_one() -> None:
    room = Room()
    settled = Settled(room)
    settled.begin(1, 0.0)
    for _ in range(2):
        settled.note("berlin/a/1")
    page = settled.above(1, 1, 10, 0.0)

    assert (page and list(page.keys), room.held) == (["berlin/a/1"], 1)
