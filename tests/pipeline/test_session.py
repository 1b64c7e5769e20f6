"""What a session does next, step by step, without a destination."""

from __future__ import annotations

from itertools import repeat

import pytest

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.feed import Read
from shipper.pipeline.delivery.session import NOTED_WITHIN, End, Facts, Rest, Send, Session, Settle, Step, TakeSlot
from shipper.sdk.feeding import Feeding
from shipper.spool.inbox import PATIENT_SECONDS
from shipper.spool.queue import Entry
from shipper.spool.schema import BARRIER
from tests.pipeline.test_backlog import entry

NOW = 0.0
APART = Feeding(linger=0.0, in_flight=1, apart=True)


class Played:
    """A session over entries that lie in the store."""

    def __init__(self, *entries: Entry, feeding: Feeding = APART, facts: Facts | None = None, **more: object) -> None:
        self.entries, self.facts = list(entries), facts or Facts()
        self.session = Session(Backlog(lambda: repeat(1.0)), feeding, lambda: repeat(1.0), **more)  # type: ignore[arg-type]

    def next(self) -> Step:
        """The next step that is no reading."""
        while isinstance(step := self.session.next(NOW, self.facts), Read):
            found = [one for one in self.entries if one.seq > step.after][: step.limit]
            self.session.read(step, found, NOW)
        return step

    def sent(self) -> Send:
        """The next request begins."""
        step = self.next()
        assert isinstance(step, Send)
        self.session.begins(step, NOW)
        return step

    def done(self, send: Send) -> None:
        """It was delivered, and noted."""
        self.session.sent(send, [], (), NOW)
        for one in send.parcel.entries:
            self.session.backlog.settled(one.seq)
            self.entries.remove(one)
        self.session.noted(send)


def test_as_many_requests_are_under_way_as_the_output_wants() -> None:
    played = Played(entry(1), entry(2))

    first = played.sent()
    assert isinstance(played.next(), Rest)
    played.done(first)
    assert played.sent().parcel.entries[0].seq == 2


@pytest.mark.parametrize(("active", "step"), [(True, Settle(3)), (False, End())])
def test_a_barrier_is_settled_in_passing_or_ends_the_session_once_what_is_below_is_settled(
    active: bool, step: Step
) -> None:
    two = Feeding(linger=0.0, in_flight=2, apart=True)
    played = Played(entry(1), entry(2), entry(3, BARRIER), feeding=two, facts=Facts(is_active=active))
    first, second = played.sent(), played.sent()

    played.done(second)
    assert isinstance(played.next(), Rest)
    played.done(first)
    assert played.next() == step


def test_answers_wait_for_the_next_batch_only_while_nobody_waits_and_nothing_is_to_be_done() -> None:
    played = Played(entry(1), entry(2), facts=Facts(lingers=True))
    session, first = played.session, played.sent()
    session.sent(first, [], (), NOW)
    assert session.patience == PATIENT_SECONDS, "the first answers are told soon"
    session.feed.progressed = True
    session.noted(first)
    session.backlog.settled(1)
    second = played.sent()
    assert session.patience == PATIENT_SECONDS, "one more is under way"
    session.sent(second, [], (), NOW)
    session.feed.look()
    assert session.patience == PATIENT_SECONDS, "the store may have more"
    assert isinstance(played.next(), Rest)
    assert session.patience == NOTED_WITHIN
    played.facts = Facts()
    assert isinstance(played.next(), Rest)
    assert session.patience == PATIENT_SECONDS, "the process is stopping"
    session.end()
    assert session.patience == 0, "an end waits for them"


def test_a_retired_lane_takes_a_slot_before_it_sends() -> None:
    played = Played(entry(1), facts=Facts(is_active=False, needs_slot=True))

    assert played.next() == TakeSlot()
    played.facts = Facts(is_active=False)
    assert isinstance(played.next(), Send)


def test_what_has_no_memory_is_sent_next_and_what_is_under_way_ends_before_the_session() -> None:
    played = Played(entry(1), entry(2), feeding=Feeding(linger=0.0, in_flight=1))
    send = played.sent()
    assert [one.seq for one in send.parcel.entries] == [1, 2]

    played.session.sent(send, [], send.parcel.entries[1:], NOW)
    again = played.sent()
    assert [one.seq for one in again.parcel.entries] == [2]
    played.session.end()
    played.session.noted(send)
    assert isinstance(played.next(), Rest)
    played.done(again)
    assert played.next() == End()


@pytest.mark.parametrize(("last", "few"), [(Trouble("503"), None), (Trouble("403", held=True), 8)])
def test_after_trouble_one_request_asks_and_a_small_one_after_a_refusal(last: Trouble, few: int | None) -> None:
    played = Played(entry(1), entry(2), last=last)
    probe = played.sent()
    assert (probe.is_probe, probe.few, probe.parcel.entries[0].seq) == (True, few, 1)
    assert isinstance(played.next(), Rest)

    played.session.noted(probe)
    assert not played.sent().is_probe


def test_where_nothing_is_left_nobody_asks() -> None:
    played = Played(last=Trouble("503"))
    assert isinstance(played.next(), Rest)

    played.entries.append(entry(1))
    played.session.feed.look()
    assert not played.sent().is_probe


def test_others_go_once_the_destination_has_taken_the_question() -> None:
    played = Played(entry(1), entry(2), last=Trouble("503"))
    probe = played.sent()
    played.session.taken()

    assert played.sent().parcel.entries[0].seq == 2
    played.session.end()
    played.session.noted(probe)
    assert isinstance(played.next(), Rest)


def test_a_few_events_that_ask_after_a_refusal_are_answered_before_others_go() -> None:
    played = Played(entry(1), entry(2), last=Trouble("403", held=True))
    played.sent()
    played.session.taken()

    assert isinstance(played.next(), Rest)


def test_a_suspect_that_asks_is_answered_before_others_go() -> None:
    played = Played(entry(1), last=Trouble("a bug"))
    for _ in range(3):
        played.session.backlog.suspects.failed(1)
    played.sent()
    played.session.taken()

    assert isinstance(played.next(), Rest)


def test_witnesses_go_before_an_entry_on_which_the_output_has_failed() -> None:
    played = Played(entry(1), entry(2), entry(3), last=Trouble("a bug"))
    suspects = played.session.backlog.suspects
    for _ in range(3):
        suspects.failed(1)
    suspects.failed(2)

    witness = played.sent()
    assert (witness.is_witness, witness.parcel.entries[0].seq) == (True, 3)
    played.session.feed.progressed = True
    played.session.noted(witness)
    suspect = played.sent()
    assert (suspect.is_witness, suspect.parcel.entries[0].seq) == (False, 1)
    assert suspects.is_witnessed(1)


def test_the_first_trouble_counts_with_the_longest_wait_that_was_asked_for() -> None:
    session = Played().session
    session.end(Trouble("503"))
    session.end(Trouble("429", retry_after=9.0))
    session.end(Trouble("429", retry_after=3.0))

    assert session.trouble == Trouble("503", retry_after=9.0)
