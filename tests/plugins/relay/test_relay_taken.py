"""Each event is taken once, however often and in whatever parts it comes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shipper.plugin import Batch
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import FrameError, Generation, digest
from shipper_plugins.relay.principal.taken import (
    MOST_ENTRIES,
    MOST_SPANS,
    Conflict,
    Crowded,
    Memory,
    Taken,
    fresh,
    numbers,
    spans,
    taken,
)

ORIGIN = b"O" * 16
EMPTY = Memory(Generation("ab" * 16, 1))


def batch(*items: int, seq: int = 1, salt: int = 0) -> Batch:
    documents = [b'{"n":%d}' % (item + salt) for item in items]
    return replace(Batch.documents(documents), origin=ORIGIN, seq=seq, items=list(items))


def judged(memory: Memory, part: Batch) -> list[int]:
    return list(fresh(part, digest(part), memory.of(part.origin, part.seq), digest))


def with_part(memory: Memory, part: Batch, place: int = 1) -> Memory:
    return memory.taking([taken(part, place, digest(part))])


@given(st.lists(st.integers(0, 60)))
def test_items_become_runs_and_come_back(items: list[int]) -> None:
    runs = spans(items)

    assert list(numbers(runs)) == sorted(set(items))
    assert all(one[1] + 1 < other[0] for one, other in pairwise(runs))


def test_another_part_under_the_same_identity_is_refused() -> None:
    memory = with_part(EMPTY, batch(0, 1))
    for other in (batch(0, 1, salt=1), batch(0, 1, 2, salt=1)):
        with pytest.raises(Conflict):
            judged(memory, other)


def test_of_a_part_that_comes_with_more_or_fewer_events_only_the_new_ones_are_taken() -> None:
    memory = with_part(with_part(EMPTY, batch(0, 1)), batch(4, 5))

    assert judged(memory, batch(0, 1, 2, 3, 4, 5)) == [2, 3]
    assert judged(memory, batch(5, 6)) == [1]
    assert judged(memory, batch(1)) == []


def test_a_link_that_confirms_nothing_is_put_off_in_the_end() -> None:
    memory = EMPTY.taking([taken(batch(0, seq=n), n, bytes(32)) for n in range(MOST_ENTRIES)])
    with pytest.raises(Crowded):
        with_part(memory, batch(0, seq=MOST_ENTRIES))
    with_part(memory.above(1), batch(0, seq=MOST_ENTRIES))


def test_parts_of_many_runs_are_put_off_before_there_are_as_many_as_may_be() -> None:
    scattered = taken(batch(*range(0, 2 * MOST_SPANS, 2)), 1, bytes(32))
    memory = EMPTY.taking([msgspec.structs.replace(scattered, place=place) for place in range(32)])
    with pytest.raises(Crowded):
        with_part(memory, batch(0))
    with_part(memory.above(1), batch(0))


def test_answers_of_one_link_take_a_bounded_room() -> None:
    most = frames.MOST_EVENTS
    scattered = taken(batch(0, *range(2, most + 1)), 1, b"", awaited=True)
    memory = EMPTY.taking([msgspec.structs.replace(scattered, place=place) for place in range(32)])
    assert memory.room == 32 * 10 * most
    assert memory.above(30).room == memory.without(memory.entries[2:]).room == 2 * 10 * most
    with pytest.raises(Crowded):
        memory.taking([msgspec.structs.replace(scattered, spans=((1, most),), place=place) for place in range(32, 64)])
    whole = taken(batch(*range(8192)), 1, b"", awaited=True)
    EMPTY.taking([msgspec.structs.replace(whole, place=place) for place in range(MOST_ENTRIES)])
    unawaited = msgspec.structs.replace(whole, spans=((0, most - 1),), awaited=False)
    EMPTY.taking([unawaited] * MOST_ENTRIES)


def test_items_in_too_many_runs_are_refused() -> None:
    with pytest.raises(FrameError, match="runs"):
        taken(batch(*range(0, 2 * MOST_SPANS + 2, 2)), 1, bytes(32))


@given(st.lists(st.builds(taken, st.builds(batch, st.integers(0, 9)), st.integers(0, 2**60), st.just(b"d" * 32))))
def test_a_memory_is_packed_and_unpacked(entries: list[Taken]) -> None:
    memory = msgspec.structs.replace(EMPTY.taking(entries), used=7)

    assert Memory.unpack(memory.pack()) == memory


@given(st.binary(max_size=40))
def test_other_bytes_are_no_memory(packed: bytes) -> None:
    with pytest.raises(ValueError, match="memory"):
        Memory.unpack(packed)


class Sending(RuleBasedStateMachine):
    """A sender that halves, leaves out and repeats, whose answers are lost, and that confirms what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = EMPTY
        self.entered: Counter[tuple[int, int]] = Counter()
        self.queue: dict[int, list[int]] = {}
        self.sent: set[tuple[int, int]] = set()
        self.place = 0

    @rule(count=st.integers(1, 6))
    def accept(self, count: int) -> None:
        self.place += 1
        self.queue[self.place] = list(range(count))

    @rule(data=st.data(), answered=st.booleans())
    def send(self, data: st.DataObject, answered: bool) -> None:
        if not self.queue:
            return
        place = data.draw(st.sampled_from(sorted(self.queue)))
        open = self.queue[place]
        items = data.draw(st.sets(st.sampled_from(open), min_size=1))
        part = batch(*sorted(items), seq=place)
        new = part.pick(judged(self.memory, part))
        self.entered.update((place, item) for item in new.items or ())
        if new.count:
            self.memory = self.memory.taking([taken(new, place, digest(new))])
        self.sent |= {(place, item) for item in items}
        if answered:
            self.queue[place] = [item for item in open if item not in items]
            if not self.queue[place]:
                del self.queue[place]

    @rule()
    def confirm(self) -> None:
        self.memory = self.memory.above(min(self.queue, default=self.place + 1))

    @invariant()
    def each_event_entered_once(self) -> None:
        assert self.entered == Counter(self.sent)

    @invariant()
    def it_is_stored_and_found_again(self) -> None:
        self.memory = Memory.unpack(self.memory.pack())


TestSending = Sending.TestCase


def test_a_memory_of_another_version_of_the_program_is_none() -> None:
    _, *rest = msgspec.msgpack.decode(EMPTY.pack())

    with pytest.raises(ValueError, match="another version"):
        Memory.unpack(msgspec.msgpack.encode([99, *rest]))
