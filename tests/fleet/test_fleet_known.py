"""`known`: what shows that a store was restored. The rest of it is tried by its observer (`test_fleet_observer`)."""

from msgspec.structs import replace

from shipper.fleet.known import Known, went_back
from shipper.fleet.records import MEMBERS, RESTORED, Head, Refusal, Report, Restored, Version
from shipper.fleet.seal import Seals
from shipper.fleet.store import Change, Entry
from tests.fleet.test_fleet_observer import V6, V7, head

SEALS = Seals("prod", [b"k" * 32])


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


def change(key, record, at):
    value = record if isinstance(record, bytes) else SEALS.seal(key, record)
    return Change(key, Entry(key, value, at, None), at)


def test_a_refusal_counts_from_the_first_report_that_has_it():
    known = Known(SEALS)
    report = Report("a", "d", "b", "i", 1, 0, refusal=Refusal(V7, "failed", [], 0.0))
    for at, one in enumerate((report, replace(report, write=2), replace(report, write=3, refusal=None)), 1):
        known.changed(change(MEMBERS + "a", one, at), 100.0 * at)
        assert known.view().refused == ({"a": 100.0} if one.refusal else {})


def test_a_forged_mark_of_a_restore_sets_nobody_apart():
    known = Known(SEALS)
    mark = Restored("a", "d", 1, 0, V7, 1, "store", (0, 0), {})
    known.changed(change(RESTORED + "a", mark, 1), 100.0)
    assert known.view().apart == {"a": mark}
    known.changed(change(RESTORED + "a", b"forged", 2), 100.0)

    assert known.view().apart == {}


def test_a_member_is_named_while_a_record_of_it_is_forged():
    known = Known(SEALS)
    report = Report("a", "d", "b", "i", 1, 0)
    for at, record, named in [(1, report, set()), (2, b"forged", {"a"}), (3, report, set())]:
        known.changed(change(MEMBERS + "a", record, at), 100.0)
        assert known.view().unauthentic == named
