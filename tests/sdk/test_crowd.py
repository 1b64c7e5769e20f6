"""Of too many newcomers the oldest of the most crowded address goes."""

from shipper.sdk.crowd import Crowd, origin


def test_of_one_address_the_oldest_goes_once_there_is_no_room():
    crowd = Crowd[int](3)

    assert [crowd.add(n, "a") for n in range(6)] == [None] * 3 + [(0, "a"), (1, "a"), (2, "a")]


def test_an_address_displaces_its_own():
    """Whoever comes from elsewhere meanwhile keeps its place, however many they are."""
    crowd = Crowd[int](4)
    crowd.add(100, "b")
    displaced = [crowd.add(n, "a") for n in range(50)]

    assert [one for one in displaced if one] == [(n, "a") for n in range(47)]


def test_of_equally_crowded_addresses_the_one_that_came_first_loses():
    crowd = Crowd[int](2)

    assert [crowd.add(n, str(n)) for n in range(4)] == [None, None, (0, "0"), (1, "1")]


def test_who_is_gone_takes_no_room():
    crowd = Crowd[int](2)
    crowd.add(1, "a")
    crowd.add(2, "a")
    crowd.remove(1)
    crowd.remove(1)

    assert crowd.add(3, "b") is None
    assert crowd.add(4, "c") == (2, "a")


def test_hosts_of_one_network_are_one_address():
    for host, expected in [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ]:
        assert origin(host) == expected
