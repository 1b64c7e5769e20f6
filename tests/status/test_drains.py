"""Revisions as people see them."""

from __future__ import annotations

from shipper.status import drains
from shipper.status.rates import Rates, sample
from tests.status.documents import SERVED, later


def of(**more):
    document = {**SERVED, **more}
    found = drains.waits(document, directory="DIR", orders=("rebind", "drop"))
    return drains.revisions(document, found, more.get("wanted"))


def test_each_revision_has_its_step_and_what_it_waits_for():
    found = {revision.name: revision for revision in of(wanted=[0, 9])}

    assert [(name, one.step, one.is_active) for name, one in found.items()] == [
        ("9", "sent", False),
        ("8", "received", False),
        ("7", "active", True),
        ("6", "active", False),
        ("5", "drained", False),
    ]
    assert [(wait.revision, wait.output, wait.events) for wait in found["7"].waits] == [("6", "main", 812)]
    assert (found["7"].waits_for, found["7"].is_held, found["8"].waits) == (812, True, ())
    assert (found["6"].events, found["6"].waits) == (812, ())


def test_a_drain_comes_with_the_commands_that_end_it():
    ((wait,),) = drains.waits(SERVED, directory="DIR", orders=("rebind", "drop")).values()

    assert [remedy.command.split()[2] for remedy in wait.remedies] == ["rebind"]


def test_a_drain_that_moves_says_when_it_ends():
    rates = Rates(sample(later(), 10.0), sample(SERVED, 6.0))
    ((wait,),) = drains.waits(later(), rates).values()
    ((still,),) = drains.waits(SERVED, Rates(sample(SERVED, 10.0), sample(SERVED, 6.0))).values()

    assert (wait.per_second, wait.seconds_left) == (10.0, 77.2)
    assert (still.per_second, still.seconds_left) == (None, None)


def test_drains_that_are_not_listed_count_for_the_newest_revision():
    more = {"revisions": 3, "events": 100, "bytes": 1}
    newest, *_ = of(revisions={"received": [0, 300], "active": [0, 300], "drained": None}, draining_left_out=more)

    assert (newest.name, newest.waits_for) == ("300", 912)


def test_a_revision_of_a_later_epoch_is_newer():
    names = [one.name for one in of(revisions={"received": [1, 2], "active": [1, 2], "drained": [0, 9]}, draining=[])]

    assert names == ["1:2", "9"]
