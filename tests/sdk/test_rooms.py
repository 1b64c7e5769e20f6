"""Who must go: a server's rooms against a model of them."""

from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.rooms import Rooms


class Guests:
    """Rooms with what was dropped, and a peer that has gone is removed, as a server does."""

    def __init__(self, clients=2, newcomers=2):
        self.dropped, self.crowded = [], 0
        self.rooms = Rooms(clients, newcomers, drop=self.dropped.append, crowded=self.crowd)

    def crowd(self):
        self.crowded += 1


def test_a_newcomer_too_many_displaces_the_oldest_of_the_address_that_has_most():
    guests = Guests()
    for name, address in (("a", "1"), ("b", "2"), ("c", "2")):
        guests.rooms.add(name, address)

    assert guests.dropped == ["b"]
    assert guests.rooms.tell() == (
        1,
        "connections closed to make room for others before they showed a valid request: 1, all from 2; "
        "see who connects there",
    )
    assert guests.rooms.tell() == (0, "")


def test_newcomers_displace_no_client():
    guests = Guests()
    guests.rooms.add("client", "1")
    guests.rooms.let_in("client")
    for number in range(5):
        guests.rooms.add(number, "1")

    assert guests.dropped == [0, 1, 2]


def test_a_client_too_many_displaces_the_one_that_was_idle_longest():
    guests = Guests()
    for name in ("a", "b", "a", "c"):
        assert guests.rooms.let_in(name)

    assert guests.dropped == ["b"]


def test_a_client_too_many_is_refused_where_all_are_busy():
    guests = Guests()
    guests.rooms.let_in("a")
    guests.rooms.let_in("b")
    with guests.rooms.busy("a"), guests.rooms.busy("b"):
        assert guests.rooms.are_full("c")
        assert not guests.rooms.let_in("c")
    assert not guests.rooms.are_full("c")
    assert guests.rooms.let_in("c")


def test_of_idle_clients_one_of_the_address_with_the_most_goes():
    guests = Guests(clients=3)
    for name in ("a1", "b1", "b2", "c1"):
        guests.rooms.add(name, name[0])
        assert guests.rooms.let_in(name)

    assert guests.dropped == ["b1"]


def test_where_all_are_busy_an_address_with_more_than_half_of_all_gives_way_to_another():
    guests = Guests(clients=3)
    for name in ("a1", "b1", "b2"):
        guests.rooms.add(name, name[0])
        assert guests.rooms.let_in(name)
    with guests.rooms.busy("a1"), guests.rooms.busy("b1"), guests.rooms.busy("b2"):
        guests.rooms.add("b3", "b")
        assert guests.rooms.are_full("b3")
        assert not guests.rooms.let_in("b3")
        guests.rooms.add("c1", "c")
        assert not guests.rooms.are_full("c1")
        assert guests.rooms.let_in("c1")
        assert guests.dropped == ["b1"]
        guests.rooms.remove("b1")
        with guests.rooms.busy("c1"):
            guests.rooms.add("d1", "d")
            assert not guests.rooms.let_in("d1")


def test_for_want_of_a_descriptor_a_newcomer_goes_before_an_idle_client():
    guests = Guests()
    guests.rooms.let_in("client")
    guests.rooms.add("newcomer", "1")
    guests.rooms.make_room("too few")
    guests.rooms.make_room("too few")

    assert guests.dropped == ["newcomer", "client"]
    assert guests.rooms.tell()[1].startswith("too few; ")


@given(st.lists(st.tuples(st.sampled_from(["add", "let_in", "busy", "idle", "remove"]), st.integers(0, 9))))
def test_there_are_never_more_than_the_limits_and_nobody_busy_is_dropped(steps):
    """Each is of an address of its own."""
    guests, here, clients, busy = Guests(3, 2), set(), set(), {}
    for step, number in steps:
        before = len(guests.dropped)
        if step == "add" and number not in here:
            here.add(number)
            guests.rooms.add(number, str(number))
        elif step == "let_in" and number in here:
            if guests.rooms.let_in(number):
                clients.add(number)
        elif step == "busy" and number in clients and number not in busy:
            busy[number] = guests.rooms.busy(number)
            busy[number].__enter__()
        elif step == "idle" and number in busy:
            busy.pop(number).__exit__(None, None, None)
        elif step == "remove" and number not in busy:
            guests.rooms.remove(number)
            here.discard(number)
            clients.discard(number)
        for gone in guests.dropped[before:]:
            assert gone not in busy
            here.discard(gone)
            clients.discard(gone)
        assert len(clients) <= 3
        assert len(here - clients) <= 2
