"""What a destination does not take now is left behind, in any number, and comes again; the rest goes on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shipper.pipeline.delivery.backlog import ASK_SECONDS, ASKS, PLACES, Backlog, Question
from shipper.sdk.codes import Code
from shipper.spool.queue import Entry
from shipper.spool.schema import BARRIER, BATCH
from shipper.values import Revision

NAMES = ("a", "b", "c")


def entry(seq: int, kind: int = BATCH) -> Entry:
    return Entry(seq, kind, Revision(0, 1), 1, 100, 0.0)


def doubling() -> Iterator[float]:
    return (float(2**n) for n in itertools.count())


def handed_out(*seqs: int) -> Backlog:
    backlog = Backlog(doubling)
    for seq in seqs:
        backlog.at_front(entry(seq))
        backlog.hand_out([entry(seq)])
    return backlog


def left_at(target: str, *seqs: int, now: float = 0.0) -> Backlog:
    """Of all these entries, events of one target were refused."""
    backlog = handed_out(*seqs)
    backlog.refuse(target, "403", now, 0.0)
    for seq in seqs:
        backlog.left(seq, {target}, now, None, 0.0)
    return backlog


def test_all_below_the_lowest_entry_is_settled() -> None:
    backlog = handed_out(3, 5, 8)
    lowest = [backlog.lowest()]
    for seq in (5, 3, 8):
        backlog.settled(seq)
        lowest.append(backlog.lowest())

    assert lowest == [3, 3, 8, 9]
    assert Backlog(doubling).lowest() == 1


def test_what_was_left_behind_or_is_passed_again_is_not_below_the_lowest_entry() -> None:
    backlog = left_at("a", 3, 5)
    assert backlog.lowest() == 3
    backlog.ask(1.0)
    backlog.answered("a", 1.0, takes=True)
    assert backlog.lowest() == 3
    backlog = handed_out(4, 6)
    backlog.settled(6)
    backlog.left(4, {None}, 0.0, None, 0.0)
    assert backlog.lowest() == 4


# -- targets -----------------------------------------------------------------------------------------------------------


def test_a_place_is_asked_after_its_own_backoff_with_its_lowest_entry() -> None:
    backlog = left_at("a", 3, 5)

    assert (backlog.next_due(), backlog.ask(0.9)) == (1.0, None)
    assert backlog.ask(1.0) == ("a", 3)
    assert backlog.ask(1.0) is None
    backlog.refuse("a", "403", 1.0, 0.0)
    backlog.answered("a", 1.0, takes=False)
    assert backlog.next_due() == 3.0


def test_a_place_that_wishes_to_wait_is_left_alone_for_so_long() -> None:
    backlog = handed_out(1)
    backlog.refuse("a", "503", 0.0, 50.0)
    backlog.left(1, {"a"}, 0.0, None, 0.0)

    assert backlog.next_due() == 50.0


def test_a_place_that_takes_events_again_gets_all_that_was_left_behind_for_it() -> None:
    backlog = left_at("a", 3, 5)
    backlog.ask(1.0)
    backlog.hand_out([entry(3)])
    backlog.settled(3)
    backlog.answered("a", 1.0, takes=True)

    assert not backlog.closed
    assert backlog.passing_after(1.0) == 2
    assert backlog.passed(2, [entry(5)], frozenset()) == [entry(5)]
    assert not backlog.is_passing


def test_a_place_that_takes_events_again_has_the_others_asked_at_once() -> None:
    backlog = left_at("a", 1)
    for seq in (2, 3):
        backlog.at_front(entry(seq))
    backlog.refuse("b", "403", 0.0, 300.0)
    backlog.left(2, {"b"}, 0.0, None, 0.0)
    backlog.ask(1.0)
    backlog.answered("a", 1.0, takes=True)

    assert backlog.ask(1.0) == ("b", 2)


def test_one_pass_serves_all_places_that_take_events_again() -> None:
    backlog = left_at("a", 1)
    for seq in (2, 3):
        backlog.at_front(entry(seq))
    for target, seq in (("b", 2), ("c", 3)):
        backlog.refuse(target, "403", 0.0, 0.0)
        backlog.left(seq, {target}, 0.0, None, 0.0)
    backlog.ask(1.0)
    backlog.answered("a", 1.0, takes=True)
    assert backlog.passing_after(1.0) is None
    backlog.ask(1.0)
    assert backlog.passing_after(1.0) is None
    backlog.answered("b", 1.0, takes=False)

    assert backlog.passing_after(1.0) == 0


def test_places_that_refuse_are_asked_one_after_the_other() -> None:
    backlog = left_at("a", 1)
    backlog.refuse("b", "403", 0.0, 0.0)
    backlog.left(1, {"b"}, 0.0, None, 0.0)
    first = backlog.ask(5.0)
    assert first is not None
    backlog.answered(first[0], 5.0, takes=False)

    assert backlog.ask(5.0) is None
    assert backlog.is_worth_a_slot(5.0)
    assert backlog.ask(5.0 + ASK_SECONDS) is not None


def test_a_place_for_which_nothing_was_left_is_not_asked() -> None:
    backlog = handed_out(1)
    backlog.refuse("a", "403", 0.0, 0.0)

    assert (backlog.ask(100.0), backlog.next_due()) == (None, math.inf)


def test_a_place_that_takes_events_before_any_was_left_has_no_pass() -> None:
    backlog = handed_out(3)
    backlog.refuse("a", "403", 0.0, 0.0)
    backlog.answered("a", 1.0, takes=True)

    assert not backlog.closed
    assert not backlog.is_passing


def test_a_place_without_any_entry_left_is_forgotten() -> None:
    backlog = left_at("a", 3, 5)
    backlog.ask(1.0)
    backlog.nothing_asked(Question("a", 3), 3)
    assert backlog.ask(1.0) == ("a", 4)
    backlog.nothing_asked(Question("a", 4), 5)

    assert not backlog.has_left


def test_what_is_left_below_the_entry_that_is_asked_for_is_not_forgotten() -> None:
    backlog = handed_out(2)
    backlog.refuse("a", "403", 0.0, 0.0)
    backlog.at_front(entry(3))
    backlog.left(3, {"a"}, 0.0, None, 0.0)
    backlog.ask(1.0)
    backlog.left(2, {"a"}, 1.0, None, 0.0)
    backlog.nothing_asked(Question("a", 3), 3)

    assert backlog.ask(1.0) == ("a", 2)


def test_a_question_without_events_says_nothing_of_another_place_that_is_asked_by_now() -> None:
    backlog = left_at("a", 1)
    for seq in (2, 9):
        backlog.at_front(entry(seq))
    backlog.refuse("b", "403", 0.0, 0.0)
    backlog.left(2, {"b"}, 0.0, None, 0.0)
    question = backlog.ask(1.0)
    assert question == ("a", 1)
    backlog.answered("a", 1.0, takes=True)  # a slow request that was sent before
    assert backlog.ask(1.0) == ("b", 2)
    backlog.nothing_asked(question, 4)

    assert backlog.ask(1.0) is None
    backlog.answered("b", 1.0, takes=False)
    assert backlog.ask(100.0) == ("b", 2)


def test_a_entry_that_comes_back_after_its_place_took_others_is_put_off() -> None:
    backlog = handed_out(1)
    backlog.left(1, {"a"}, 7.0, None, 0.0)

    assert (set(backlog.closed), backlog.next_due()) == (set(), 8.0)


def test_a_question_has_no_place_asked_that_refused_nothing() -> None:
    """Else each answer of one has the other asked at once, for ever."""
    backlog = left_at("a", 1)
    backlog.left(1, {None}, 0.0, "the dead-letter store is full", 100.0)
    backlog.ask(1.0)
    backlog.hand_out([entry(1)])
    backlog.refuse("a", "403", 1.0, 0.0)
    backlog.left(1, {"a", "b"}, 1.0, "403", 0.0)
    backlog.answered("a", 1.0, takes=False)

    assert (set(backlog.closed), backlog.next_due()) == ({"a"}, 3.0)


def test_of_more_places_than_fit_the_events_are_put_off_singly() -> None:
    backlog = handed_out(1)
    for number in range(PLACES + 1):
        backlog.refuse(f"target-{number}", "403", 0.0, 0.0)

    assert len(backlog.closed) == PLACES


def test_a_lane_that_drains_asks_places_in_vain_only_so_often() -> None:
    backlog = left_at("a", 1)
    backlog.refuse("b", "403", 0.0, 0.0)
    backlog.left(1, {"b"}, 0.0, None, 0.0)
    now = 100.0
    for _ in range(ASKS):
        assert backlog.is_worth_a_slot(now)
        asked = backlog.ask(now)
        assert asked is not None
        backlog.answered(asked[0], now, takes=False)
        now += ASK_SECONDS

    assert not backlog.is_worth_a_slot(now)
    backlog.rewind()
    for _ in range(ASKS):
        assert backlog.is_worth_a_slot(now)
        backlog.answered("a", now, takes=False)


def test_the_problem_names_a_place_and_how_many_more() -> None:
    backlog = left_at("logs-app-default", 1)
    assert backlog.problem() == ("logs-app-default: 403", Code.REFUSED)
    backlog.refuse("x" * 1000, "404", 0.0, 0.0)
    assert backlog.problem() == ("logs-app-default (and 1 more): 403", Code.REFUSED)
    assert len(str(left_at("x" * 1000, 1).problem())) < 200


# -- events that are put off one by one --------------------------------------------------------------------------------


def test_events_that_are_put_off_come_again_by_a_pass_after_longer_and_longer_waits() -> None:
    backlog, now = handed_out(1), 0.0
    for wait in (1.0, 2.0, 4.0):
        backlog.left(1, {None}, now, "429", 0.0)
        assert backlog.next_due() == now + wait
        now += wait
        backlog.begin_due(now)
        assert backlog.passed(0, [entry(1)], frozenset()) == [entry(1)]
        backlog.hand_out([entry(1)])
        assert backlog.problem() == ("429", Code.UNAVAILABLE)
    backlog.settled(1)

    assert backlog.problem() is None
    backlog.hand_out([entry(1)])
    backlog.left(1, {None}, now, "429", 0.0)
    assert backlog.next_due() == now + 1.0


def test_newer_events_that_succeed_do_not_shorten_the_waits_of_those_that_are_put_off() -> None:
    backlog = handed_out(1)
    backlog.left(1, {None}, 0.0, "429", 0.0)
    backlog.begin_due(1.0)
    backlog.at_front(entry(2))
    backlog.hand_out([entry(2)])
    backlog.settled(2)
    backlog.passed(0, [entry(1)], frozenset())
    backlog.left(1, {None}, 1.0, "429", 0.0)

    assert backlog.next_due() == 3.0


def test_room_for_dead_letters_makes_due_what_waits_for_it_but_not_before_the_destination_wants_it() -> None:
    backlog = handed_out(1, 2)
    backlog.left(1, {None}, 0.0, "429", 50.0)
    assert not backlog.has_room(0.0)
    backlog.left_for_room(2, 0.0, "the dead-letter store is full")

    assert not backlog.has_room(49.0)
    assert backlog.next_due() == 50.0
    assert backlog.has_room(50.0)


def test_room_for_dead_letters_hastens_nothing_that_was_put_off_for_another_reason_since() -> None:
    backlog = handed_out(1)
    backlog.left_for_room(1, 0.0, "the dead-letter store is full")
    backlog.begin_due(1.0)
    backlog.left(1, {None}, 1.0, "429", 0.0)

    assert not backlog.has_room(1.5)
    assert backlog.next_due() == 3.0


def test_a_pass_goes_by_what_is_under_way_and_stops_before_what_came_back_meanwhile() -> None:
    backlog = handed_out(1, 2, 3, 4)
    backlog.left(1, {None}, 0.0, "429", 0.0)
    backlog.settled(4)
    backlog.begin_due(1.0)
    under_way = frozenset(backlog.outstanding)
    backlog.left(3, {None}, 1.0, "429", 0.0)

    assert backlog.passed(0, [entry(1), entry(2), entry(3)], under_way) == [entry(1)]
    assert backlog.passing_after(1.0) == 2


def test_a_pass_that_was_set_back_meanwhile_reads_again() -> None:
    backlog = left_at("a", 1, 2, 3)
    backlog.left(3, {None}, 0.0, "429", 0.0)
    backlog.begin_due(1.0)
    assert backlog.passing_after(0.9) == 2
    backlog.ask(1.0)
    backlog.answered("a", 1.0, takes=True)

    assert backlog.passed(2, [entry(3)], frozenset()) == []
    assert backlog.passing_after(0.9) == 0


# -- barriers and sessions ---------------------------------------------------------------------------------------------


def test_a_barrier_is_reached_when_all_below_it_is_settled() -> None:
    for what in ["outstanding", "left of a target", "put off", "in a pass", "settled"]:
        backlog = handed_out(1)
        backlog.at_front(entry(2, BARRIER))
        if what == "left of a target":
            backlog.refuse("a", "403", 0.0, 0.0)
            backlog.left(1, {"a"}, 0.0, None, 0.0)
        elif what in ("put off", "in a pass"):
            backlog.left(1, {None}, 0.0, None, 0.0)
            backlog.begin_due(1.0 if what == "in a pass" else 0.0)
        elif what == "settled":
            backlog.settled(1)

        assert backlog.barrier_is_reached() is (what == "settled")


def test_the_next_session_goes_on_where_everything_was_settled_or_left_behind() -> None:
    backlog = left_at("a", 1, 2)
    for seq in (3, 4, 5):
        backlog.at_front(entry(seq))
        backlog.hand_out([entry(seq)])
    backlog.settled(3)
    backlog.rewind()

    assert (backlog.front, backlog.outstanding, set(backlog.closed)) == (3, {}, {"a"})


def test_the_next_session_comes_to_a_barrier_again() -> None:
    backlog = handed_out(1)
    backlog.at_front(entry(2, BARRIER))
    backlog.rewind()

    assert (backlog.front, backlog.barriers) == (0, [])


# -- everything at once ------------------------------------------------------------------------------------------------


class Lanes(RuleBasedStateMachine):
    """A lane uses a backlog as a session does; targets refuse and take, and answers come in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(doubling)
        self.now = 0.0
        self.store: dict[int, set[str]] = {}
        """Of each entry that is not settled: the targets of its events."""
        self.refusing: set[str] = set()
        self.flaky = False
        self.with_worker: list[tuple[int, set[str], str | None]] = []
        """Entries, the targets that were left out, and the one that is asked."""
        self.next = 1
        self.read: tuple[int, list[Entry], frozenset[int]] | None = None

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1), gap=st.integers(1, 3))
    def enter(self, names: set[str], gap: int) -> None:
        self.store[self.next] = set(names)
        self.next += gap

    @rule(name=st.sampled_from(NAMES))
    def turn(self, name: str) -> None:
        self.refusing ^= {name}

    @rule()
    def put_off_singly(self) -> None:
        self.flaky = not self.flaky

    @rule(seconds=st.sampled_from([0.1, 1.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.read is None)  # the same task does both
    @rule()
    def front(self) -> None:
        above = self.window(self.backlog.front, 2)
        for each in above:
            self.backlog.at_front(each)
            self.give([each])

    @rule()
    def ask_the_store_for_a_pass(self) -> None:
        self.backlog.begin_due(self.now)
        if (after := self.backlog.passing_after(self.now)) is not None:
            self.read = after, self.window(after, 2), frozenset(self.backlog.outstanding)

    @precondition(lambda self: self.read is not None)
    @rule()
    def go_on_with_the_pass(self) -> None:
        assert self.read is not None
        (after, entries, under_way), self.read = self.read, None
        self.give(self.backlog.passed(after, entries, under_way))

    @precondition(lambda self: self.read is None)  # the same task does both
    @rule()
    def ask(self) -> None:
        if (due := self.backlog.ask(self.now)) is None:
            return
        target = due.target
        found = self.window(due.first - 1, 1)
        if not found or found[0].seq > self.backlog.front:
            self.backlog.nothing_asked(due, self.backlog.front)
        elif found[0].seq in self.backlog.outstanding:
            self.backlog.nothing_asked(due, found[0].seq - 1)
        elif target not in self.store[found[0].seq]:
            self.backlog.nothing_asked(due, found[0].seq)
        else:
            self.backlog.hand_out(found)
            self.with_worker.append((found[0].seq, set(NAMES) - {target}, target))

    @precondition(lambda self: self.with_worker)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        seq, left_out, asked = self.with_worker.pop(data.draw(st.integers(0, len(self.with_worker) - 1)))
        self.judge(seq, left_out, asked)

    @rule()
    def end_the_session(self) -> None:
        self.with_worker.clear()
        self.read = None
        self.backlog.rewind()

    def window(self, after: int, limit: int) -> list[Entry]:
        return [entry(seq) for seq in sorted(self.store) if seq > after][:limit]

    def give(self, entries: list[Entry]) -> None:
        self.backlog.hand_out(entries)
        self.with_worker += [(each.seq, set(self.backlog.closed), None) for each in entries]

    def judge(self, seq: int, left_out: set[str], asked: str | None) -> None:
        targets = self.store[seq]
        sent = targets - left_out
        refused = sent & self.refusing
        for target in sorted(refused):
            self.backlog.refuse(target, "403", self.now, 0.0)
        taken = set() if self.flaky else sent - refused
        self.store[seq] = targets - taken
        if not self.store[seq]:
            del self.store[seq]
            self.backlog.settled(seq)
        else:
            kept = {target for target in self.store[seq] if target in refused or target in left_out}
            singly: set[str | None] = {None} if self.store[seq] - kept else set()
            self.backlog.left(seq, {*kept, *singly}, self.now, "429", 0.0)
        if asked is not None:
            self.backlog.answered(asked, self.now, takes=asked not in refused)
        for target in sorted(taken & set(self.backlog.closed)):
            self.backlog.answered(target, self.now, takes=True)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        backlog = self.backlog
        firsts = [left.first for left in backlog._closed.values()]
        firsts += [] if backlog._put_off is None else [backlog._put_off.first]
        lowest = min([*firsts, backlog._pass + 1])
        for seq in self.store:
            assert seq > backlog.front or seq in backlog.outstanding or seq >= lowest

    def teardown(self) -> None:
        """When nothing is refused any more, all of it is delivered."""
        self.refusing, self.flaky = set(), False
        for _ in range(20 * self.next + 100):
            self.ask_the_store_for_a_pass()
            if self.read is not None:
                self.go_on_with_the_pass()
            self.front()
            self.ask()
            while self.with_worker:
                self.judge(*self.with_worker.pop(0))
            due = self.backlog.next_due()
            self.now = max(self.now, due) if due < math.inf else self.now
        assert not self.store
        assert not self.backlog.has_left
        assert not self.backlog.is_passing


TestLanes = Lanes.TestCase
