"""Of the sessions of an edge the newest one counts, and of its instances the one that is alive."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shipper_plugins.relay.frames import Generation
from shipper_plugins.relay.principal.generations import GONE_SECONDS, SILENT_SECONDS, Cloned, Sessions, Stale

ONE, OTHER = "1" * 32, "2" * 32
DOOR = "d" * 32


def test_a_newer_session_of_a_link_ends_the_older_one_and_no_other_links() -> None:
    sessions = Sessions(DOOR)
    old, beside = (sessions.begin(ONE, link, 0.0, is_connected=False) for link in (1, 2))
    new = sessions.begin(ONE, 1, 0.0, is_connected=True)

    with pytest.raises(Stale):
        sessions.check(1, old, 0, 0.0)
    sessions.check(1, new, 0, 0.0)
    sessions.check(2, beside, 0, 0.0)
    assert old < beside < new


def test_a_session_of_another_instance_of_the_door_is_stale() -> None:
    sessions = Sessions(DOOR)
    own = sessions.begin(ONE, 1, 0.0, is_connected=False)
    with pytest.raises(Stale):
        sessions.check(1, Generation("e" * 32, own.counter), 0, 0.0)


@pytest.mark.parametrize(("is_connected", "seconds"), [(True, SILENT_SECONDS), (False, GONE_SECONDS)])
def test_another_instance_is_refused_until_the_first_one_is_gone(is_connected: bool, seconds: float) -> None:
    sessions = Sessions(DOOR)
    first = sessions.begin(ONE, 1, 0.0, is_connected=False)
    sessions.check(1, first, 0, 10.0)
    with pytest.raises(Cloned) as refused:
        sessions.begin(OTHER, 1, 11.0, is_connected=is_connected)

    assert refused.value.seconds == seconds - 1.0
    sessions.check(1, first, 0, 10.0)
    sessions.begin(OTHER, 1, 10.0 + seconds, is_connected=is_connected)
    with pytest.raises(Stale):
        sessions.check(1, first, 0, 10.0 + seconds)
    with pytest.raises(Cloned):
        sessions.begin(ONE, 1, 10.5 + seconds, is_connected=True)


def test_a_heartbeat_keeps_the_place_of_an_instance_unless_its_session_has_ended() -> None:
    sessions = Sessions(DOOR)
    old, new = (sessions.begin(ONE, 1, 0.0, is_connected=True) for _ in range(2))
    with pytest.raises(Stale):
        sessions.hear(1, old, 50.0)
    sessions.hear(1, new, 10.0)

    with pytest.raises(Cloned):
        sessions.begin(OTHER, 1, 9.0 + SILENT_SECONDS, is_connected=True)
    sessions.begin(OTHER, 1, 10.0 + SILENT_SECONDS, is_connected=True)


def test_what_the_sender_has_confirmed_in_this_session_is_over() -> None:
    sessions = Sessions(DOOR)
    session = sessions.begin(ONE, 1, 0.0, is_connected=False)
    sessions.check(1, session, 7, 0.0)
    sessions.check(1, session, 5, 0.0)

    assert [place for place in range(10) if sessions.is_over(1, place)] == list(range(7))
    sessions.begin(ONE, 1, 0.0, is_connected=True)
    assert not sessions.is_over(1, 0)


class Many(RuleBasedStateMachine):
    """Sessions of two instances in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions(DOOR)
        self.begun: list[tuple[str, int, Generation]] = []
        self.newest: dict[int, Generation] = {}
        self.now = 0.0

    @rule(instance=st.sampled_from([ONE, OTHER]), link=st.integers(1, 2), is_connected=st.booleans())
    def begin(self, instance: str, link: int, is_connected: bool) -> None:
        try:
            generation = self.sessions.begin(instance, link, self.now, is_connected=is_connected)
        except Cloned:
            assert instance != self.begun[-1][0]
            return
        assert all(generation > older for _, _, older in self.begun)
        if self.begun and self.begun[-1][0] != instance:
            self.newest.clear()
        self.begun.append((instance, link, generation))
        self.newest[link] = generation

    @rule(seconds=st.floats(0, 70))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def only_the_newest_session_of_each_link_of_one_instance_may_say_anything(self) -> None:
        may = {}
        for _, link, generation in self.begun:
            try:
                self.sessions.check(link, generation, 0, 0.0)
            except Stale:
                continue
            may[link] = generation
        assert may == self.newest


TestMany = Many.TestCase
