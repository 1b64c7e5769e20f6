"""Which entries are sent in one request; what a session does with them is tested with its lane (`test_lane`)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.delivery import parcels
from shipper.pipeline.delivery.parcels import GATHERED_BYTES, GATHERED_EVENTS, TOGETHER_BYTES, WINDOW, Gathered
from shipper.plugin import Feeding
from shipper.spool.queue import Entry
from shipper.spool.schema import BARRIER, BATCH, SLOT
from shipper.values import Revision


def entry(seq: int, size: int, kind: int = BATCH) -> Entry:
    return Entry(seq, kind, Revision(0, 1), 1, size, 0.0)


_sizes = st.lists(st.one_of(st.integers(1, TOGETHER_BYTES * 2), st.integers(1, 500), st.just(-1)), max_size=40)


@given(_sizes)
def test_every_entry_is_in_one_parcel_in_its_order(sizes: list[int]) -> None:
    entries = [entry(n, max(size, 0), BARRIER if size < 0 else BATCH) for n, size in enumerate(sizes)]

    found = list(parcels.of(entries, Feeding()))

    assert [each for parcel in found for each in parcel] == entries
    for parcel in found:
        assert len(parcel) == 1 or not any(each.is_barrier for each in parcel)
        assert len(parcel) == 1 or sum(each.size for each in parcel) <= TOGETHER_BYTES


def test_small_entries_go_together() -> None:
    assert len(list(parcels.of([entry(n, 100) for n in range(50)], Feeding()))) == 1


def test_entries_go_apart_and_at_once_where_the_output_wants_it_so() -> None:
    entries, apart = [entry(n, 100) for n in range(50)], Feeding(apart=True, linger=0.5)

    assert list(parcels.of(entries, apart)) == [[one] for one in entries]
    assert Gathered(entries[:1]).until(handed=10.0, feeding=apart, linger=0.5) == -math.inf


def test_versions_of_keyed_state_go_together_where_batches_go_apart() -> None:
    kinds = [SLOT, SLOT, BATCH, BATCH, SLOT, BARRIER, SLOT, SLOT]
    entries = [entry(n, 100, kind) for n, kind in enumerate(kinds)]

    found = [[each.kind for each in parcel] for parcel in parcels.of(entries, Feeding(apart=True))]
    assert found == [[SLOT, SLOT], [BATCH], [BATCH], [SLOT], [BARRIER], [SLOT, SLOT]]


def test_entries_wait_for_more_since_the_last_were_handed_out() -> None:
    assert Gathered([entry(1, 100)]).until(handed=10.0, feeding=Feeding(), linger=0.5) == 10.5
    assert Gathered([entry(1, 100)]).until(handed=-math.inf, feeding=Feeding(), linger=0.5) == -math.inf
    assert Gathered([]).until(handed=10.0, feeding=Feeding(), linger=0.5) == math.inf


@pytest.mark.parametrize(
    "entries",
    [
        [entry(1, GATHERED_BYTES)],
        [entry(1, 100)._replace(events=GATHERED_EVENTS)],
        [entry(n, 1) for n in range(WINDOW)],
        [entry(1, 100), entry(2, 0, BARRIER)],
        [entry(1, 100), entry(2, 100)._replace(is_awaited=True)],
    ],
)
def test_what_is_full_or_awaited_or_has_a_barrier_does_not_wait(entries: list[Entry]) -> None:
    assert Gathered(entries).until(handed=10.0, feeding=Feeding(), linger=0.5) == -math.inf


def test_what_is_to_stay_the_same_is_joined_up_to_the_bounds_of_the_output() -> None:
    """Whatever is usual elsewhere; by sealed bytes where it asks for that, else by what they become at least."""
    text = Feeding(stable=True, bytes=16 << 20, events=1_000_000, linger=600.0)
    sealed = Feeding(stable=True, bytes=16 << 20, events=1_000_000, linger=600.0, compressed=True)
    some, more = [entry(n, 1 << 20) for n in range(3)], [entry(n, 1 << 20) for n in range(4)]

    assert Gathered(some).until(handed=10.0, feeding=text, linger=600.0) == 610.0
    assert Gathered(more).until(handed=10.0, feeding=text, linger=600.0) == -math.inf
    assert Gathered(more).until(handed=10.0, feeding=sealed, linger=600.0) == 610.0
    assert Gathered(more * 4).until(handed=10.0, feeding=sealed, linger=600.0) == -math.inf
    assert list(parcels.of(more, sealed)) == [more]
    assert [len(each) for each in parcels.of(more * 5, sealed)] == [16, 4]
