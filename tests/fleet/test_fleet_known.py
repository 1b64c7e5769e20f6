"""`known`: what shows that a store was restored. The rest of it is tried by its observer (`test_fleet_observer`)."""

from shipper.fleet.known import went_back
from shipper.fleet.records import Head, Version
from tests.fleet.test_fleet_observer import V6, V7, head


def test_a_head_that_has_lost_the_newest_version_went_back():
    for now, expected in [
        (head(V6, V7), False),
        (head(V7, Version(0, 8, "eight")), False),
        (head(Version(0, 9, "nine")), False),
        (head(V6), True),
        (Head(fleet="prod"), True),
        (head(V6, Version(0, 7, "another")), True),
        (head(V6, Version(0, 7, "another"), Version(0, 8, "eight")), True),
    ]:
        assert went_back(now, V7) is expected
