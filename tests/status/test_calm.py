"""A trouble that comes and goes is one line for people, and is never hidden."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shipper.protocol.messages import State, Unit
from shipper.sdk.codes import Code, Why
from shipper.status.calm import QUIET_SECONDS, RECENT_SECONDS, Calm

BUSY = "503 Service Unavailable"
FULL = Why("disk full: intake waits", Code.DISK_FULL)


def unit(state: State, message: str = "", code: str = "", *, at: int = 0) -> Unit:
    return Unit("outputs.main", "output", "fake", state, message, {"sent": at}, code)


WELL = unit("HEALTHY", code=Code.OK)
ILL = unit("DEGRADED", BUSY, Code.UNAVAILABLE)


def reported(*found: tuple[float, Unit]) -> list[State]:
    """The changes of the state of one unit, found at these times."""
    calm, states = Calm(), []
    for now, one in found:
        (state,) = [each.state for each in calm.units([one], now)]
        states += [state] if state not in states[-1:] else []
    return states


def test_a_trouble_and_its_end_are_reported_at_once() -> None:
    assert reported((0, WELL), (1, ILL), (2, WELL)) == ["HEALTHY", "DEGRADED", "HEALTHY"]


def test_a_destination_that_refuses_every_other_request_stays_degraded() -> None:
    flapping = [(float(second), ILL if second % 2 else WELL) for second in range(100)]

    assert reported(*flapping) == ["HEALTHY", "DEGRADED", "HEALTHY", "DEGRADED"]


def test_a_trouble_that_came_back_has_ended_once_it_was_absent_for_a_while() -> None:
    flapping = [(0, ILL), (1, WELL), (2, ILL), (3, WELL)]

    assert reported(*flapping, (2.9 + QUIET_SECONDS, WELL))[-1] == "DEGRADED"
    assert reported(*flapping, (3 + QUIET_SECONDS, WELL))[-1] == "HEALTHY"


def test_a_trouble_long_after_the_last_one_is_a_new_one() -> None:
    later = 2 + RECENT_SECONDS

    assert reported((0, ILL), (1, WELL), (later, ILL), (later + 1, WELL))[-1] == "HEALTHY"


def test_a_unit_in_trouble_for_a_moment_less_has_its_own_figures() -> None:
    calm = Calm()
    for now, one in ((0, ILL), (1, WELL), (2, ILL)):
        calm.units([one], now)

    assert calm.units([unit("HEALTHY", code=Code.OK, at=7)], 3) == [unit("DEGRADED", BUSY, Code.UNAVAILABLE, at=7)]


def test_an_input_that_has_ended_is_reported_as_it_is() -> None:
    assert reported((0, ILL), (1, WELL), (2, ILL), (3, unit("STOPPED")))[-1] == "STOPPED"


def test_a_stop_ends_the_troubles_of_outputs_only() -> None:
    def of_input(state: State) -> Unit:
        return Unit("inputs.a", "input", "fake", state, code=Code.QUEUE_FULL)

    calm = Calm()
    calm.units([of_input("DEGRADED"), ILL], 0)

    assert calm.units([of_input("HEALTHY"), WELL], 1, stopping=True) == [of_input("DEGRADED"), WELL]


def test_a_unit_that_is_made_anew_has_no_past() -> None:
    calm = Calm()
    for now, one in ((0, ILL), (1, WELL), (2, ILL)):
        calm.units([one], now)
    calm.units([], 3)

    assert calm.units([WELL], 4) == [WELL]


def test_a_full_disk_has_ended_once_there_was_room_for_a_while() -> None:
    """The room of the write-ahead log lets a batch in about once a second."""
    calm = Calm()
    found = [FULL if second % 2 else None for second in range(20)]

    assert {calm.failure(one, now) for now, one in enumerate(found)} == {None, FULL}
    assert calm.failure(None, 20) == FULL
    assert calm.failure(None, 20 + QUIET_SECONDS) is None
    assert calm.failure(Why("another", Code.DISK_FAILED), 21 + QUIET_SECONDS) == Why("another", Code.DISK_FAILED)


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from([WELL, ILL]))))
def test_a_trouble_is_never_hidden_and_ends_at_last(waits: list[tuple[float, Unit]]) -> None:
    calm, now = Calm(), 0.0
    for wait, one in waits:
        now += wait
        (told,) = calm.units([one], now)
        assert told == ILL or one == WELL
    calm.units([WELL], now)

    assert calm.units([WELL], now + 2 * QUIET_SECONDS) == [WELL]
