"""A disk that is full again and again is one line for people; no trouble is hidden."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.protocol.messages import State, Unit
from shipper.sdk.codes import Code, Why
from shipper.status.calm import QUIET_SECONDS, Calm

FULL = Why("disk full: intake waits", Code.DISK_FULL)


def unit(state: State, code: str, *, at: int = 0, kind: str = "input") -> Unit:
    return Unit(f"{kind}s.main", kind, "fake", state, str(code), {"read": at}, code)


WELL = unit("HEALTHY", Code.OK)
ILL = unit("DEGRADED", Code.DISK_FULL)
BUSY = unit("DEGRADED", Code.UNAVAILABLE)


def reported(*found: tuple[float, Unit]) -> list[State]:
    """The changes of the state of one unit, found at these times."""
    calm, states = Calm(), []
    for now, one in found:
        (state,) = [each.state for each in calm.units([one], now)]
        states += [state] if state not in states[-1:] else []
    return states


def test_a_trouble_and_its_end_are_reported_at_once() -> None:
    flapping = [(0, WELL), (1, BUSY), (2, WELL), (3, BUSY), (4, WELL)]

    assert reported(*flapping) == ["HEALTHY", "DEGRADED", "HEALTHY", "DEGRADED", "HEALTHY"]


def test_a_disk_that_lets_a_batch_in_now_and_then_stays_full() -> None:
    flapping = [(float(second), ILL if second % 2 else WELL) for second in range(100)]

    assert reported(*flapping) == ["HEALTHY", "DEGRADED"]


def test_a_full_disk_has_ended_once_there_was_room_for_a_while() -> None:
    full = [(0, ILL), (1, WELL), (2, ILL), (3, WELL)]

    assert reported(*full, (2.9 + QUIET_SECONDS, WELL)) == ["DEGRADED"]
    assert reported(*full, (3 + QUIET_SECONDS, WELL)) == ["DEGRADED", "HEALTHY"]


def test_another_trouble_after_a_full_disk_ends_when_it_ends() -> None:
    assert reported((0, ILL), (1, BUSY), (2, WELL)) == ["DEGRADED", "HEALTHY"]


def test_a_unit_in_trouble_for_a_moment_less_has_its_own_figures() -> None:
    calm = Calm()
    calm.units([ILL], 0)

    assert calm.units([unit("HEALTHY", Code.OK, at=7)], 1) == [unit("DEGRADED", Code.DISK_FULL, at=7)]


def test_an_input_that_has_ended_is_reported_as_it_is() -> None:
    assert reported((0, ILL), (1, unit("STOPPED", Code.OK))) == ["DEGRADED", "STOPPED"]


def test_a_stop_ends_the_full_disk_of_outputs_only() -> None:
    output = unit("HEALTHY", Code.OK, kind="output")
    calm = Calm()
    calm.units([ILL, unit("DEGRADED", Code.DISK_FULL, kind="output")], 0)
    later = 2 * QUIET_SECONDS
    calm.units([WELL, output], 1, stopping=True)

    assert calm.units([WELL, output], later, stopping=True) == [ILL, output]


def test_a_unit_that_is_made_anew_has_no_past() -> None:
    calm = Calm()
    calm.units([ILL], 0)
    calm.units([], 1)

    assert calm.units([WELL], 2) == [WELL]


def test_the_failure_of_the_process_by_a_full_disk_ends_in_the_same_way() -> None:
    calm = Calm()
    found = [FULL if second % 2 else None for second in range(20)]

    assert {calm.failure(one, now) for now, one in enumerate(found)} == {None, FULL}
    assert calm.failure(None, 20) == FULL
    assert calm.failure(None, 20 + QUIET_SECONDS) is None
    assert calm.failure(Why("another", Code.DISK_FAILED), 21 + QUIET_SECONDS) == Why("another", Code.DISK_FAILED)


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from([WELL, ILL, BUSY]))))
def test_a_trouble_is_never_hidden_and_ends_at_last(waits: list[tuple[float, Unit]]) -> None:
    calm, now = Calm(), 0.0
    for wait, one in waits:
        now += wait
        (told,) = calm.units([one], now)
        assert told == one or one == WELL
    calm.units([WELL], now)

    assert calm.units([WELL], now + 2 * QUIET_SECONDS) == [WELL]
