"""Tables and lines of a fleet, from values that the judge makes."""

import io
import re
from dataclasses import replace
from typing import get_args

import msgspec

from shipper.fleet import pictures
from shipper.fleet.changes import Changes, Plan
from shipper.fleet.judge import judge
from shipper.fleet.overview import overview
from shipper.fleet.pictures import line, progress
from shipper.fleet.records import Alive, Head, Line, Refusal, Release, Report, Undelivered, Version
from shipper.fleet.release import Obstacle, Retired, Why
from shipper.fleet.view import View
from shipper.supervise.show import Screen

OLD, NEW = Version(0, 6, "a"), Version(0, 7, "b")
HEAD = Head("prod", 0, 7, [Line(OLD, 0.0, "anna@ops", {}, "n"), Line(NEW, 1.0, "anna@ops", {}, "m", "rollback to 5")])


def report(name, at=NEW, **more):
    return Report(name, f"d-{name}", "b", "i", 1, 0, **{"state": "member", "stages": {"drained": at}} | more)


def seen(*reports, away=(), **more):
    alive = {one.name: Alive(one.directory, "b", "i") for one in reports if one.name not in away}
    return View(4711, HEAD, {one.name: one for one in reports}, alive, dict.fromkeys(away, 0.0), 100.0, **more)


def verdict(*reports, number=7, **more):
    return judge(seen(*reports, **more), number, "drained", 10.0)


def shown(tables):
    stream = io.StringIO()
    Screen(stream).draw(tables)
    return stream.getvalue()


def test_a_line_has_the_answer_the_counts_and_who_keeps_it_closed():
    text = line(verdict(report("web-1"), report("web-2", OLD), report("web-3", OLD), away=["web-3"]))

    assert text.startswith("version 7, drained: not yet; 1 of 3 reached, 1 absent, 1 waiting; web-3 (its lease is over")
    assert "web-2 (" in text


def test_the_worst_come_first_and_undelivered_events_stand_by_kind():
    answer = verdict(
        report("web-1", OLD, undelivered=Undelivered(3, 300)),
        report("web-2", OLD, undelivered=Undelivered(50, 5000)),
        report("web-3", OLD, refusal=Refusal(NEW, "invalid", ["outputs: no such type"]), stages={}),
        report("web-4", OLD, undelivered=Undelivered(8, 800)),
        away=["web-4"],
    )
    text = shown(pictures.verdict_tables(answer))
    names = [row.split()[0] for row in text.splitlines() if row.startswith("  web")]

    assert names == ["web-3", "web-4", "web-2", "web-1"]
    assert "absent: 8 events, 800B, waiting: 53 events, 5.2KiB" in text
    assert "invalid: it refused version 7; outputs: no such type" in text


def test_progress_has_no_more_rows_than_the_terminal():
    for height in [1, 2, 5, 24, 200]:
        found = progress(verdict(*(report(f"web-{number}", OLD) for number in range(100))), height)
        rows = 1 + len(found.lines) + len(found.rows)

        assert rows <= max(height, 4)
        assert (found.reached, found.members) == (0, 100)
        assert len(found.rows) == 100 or found.rows[-1][0].endswith(" more")


def test_the_status_of_a_fleet_has_versions_and_who_is_behind():
    view = seen(report("web-1"), report("web-2", OLD), report("web-3", NEW))
    text = shown(pictures.fleet_tables(overview(view)))

    assert text.startswith("fleet prod: version 7, behind\n  members  2 of 3 reached, 1 waiting\n")
    assert "versions, and how many of 3 members have reached each\n" in text
    assert "version 7  received 0  active 0  drained 2" in text
    assert "rollback to 5" in text
    assert "web-2  waiting  1 version behind" in text
    assert "web-1" not in text


def test_an_on_release_that_fails_is_a_warning_with_the_host_the_secret_and_the_instant():
    released = {"es-1": Release("es", 5.0, "begun", 17, failing=86400.0)}
    head = Head("prod", 0, 7, HEAD.history, {"es": "es-2"}, released=released, leader="web-3")
    text = shown(pictures.fleet_tables(overview(replace(seen(report("web-1")), head=head))))

    assert re.search(r"warning +on_release fails on web-3 for es es-1 since 1970-01-0\d", text)
    assert "it fails on web-3 since 1970-01-0" in shown(pictures.secret_tables(head, [], 0.0))


def test_a_plan_says_what_changes_and_on_how_many_members_it_drains():
    changes = Changes("barrier", added=["inputs.new"], changed=["outputs.main"], drained=["outputs.main"])
    more = {"new_secrets": {"es": "es-2"}, "dropped_secrets": {"es": "es-1"}}
    lines = pictures.plan_lines(Plan("7", msgspec.structs.replace(changes, **more), 500))

    assert lines == [
        "adds inputs.new",
        "changes outputs.main",
        "drains outputs.main on 500 members",
        "secret es is es-2 from now on",
        "es-1 is released when every member has drained it",
    ]


def test_a_plan_without_changes_says_so():
    assert pictures.plan_lines(Plan("7", Changes("none"), 1)) == ["changes nothing against version 7, on 1 member"]


def test_secrets_are_shown_by_name_and_id_with_what_was_released():
    head = Head(
        "prod",
        secrets={"es": "es-2"},
        released={"es-1": Release("es", 0.0, "done", despite=["web-9"]), "es-0": Release("es", 0.0)},
    )
    text = shown(pictures.secret_tables(head, [], 0.0))

    assert text.startswith("fleet prod: 1 secret\n  es  es-2\nearlier contents\n")
    assert re.search(r"es-1  released [0-9: -]+, on_release is done, despite web-9", text)


def test_who_delays_a_release_is_shown_with_the_reason_and_what_ends_it():
    obstacles = [
        Obstacle("web-1", "behind"),
        Obstacle("web-2", "undelivered", Undelivered(events=12), 3600.0),
        Obstacle("web-3", "absent"),
    ]
    one = Retired("es-1", "es", Version(0, 7, "g"), obstacles, [])
    text = shown(pictures.secret_tables(Head("prod", fingerprints={"es-1": "f"}), [one], 86400.0))

    assert re.search(r"es +es-1 +not released yet\n", text)
    assert "it has not reached version 7\n" in text
    assert re.search(r"12 events +it is fenced .* until 1970-01-02 .*, or by: .* release es-1 --despite web-2\n", text)
    assert re.search(r"es-1 +web-3 +absent .* by: shipper fleet forget web-3\n", text)


def test_every_reason_of_a_delay_has_its_words():
    for why in get_args(Why):
        one = Retired("es-1", "es", None, [Obstacle("web-1", why)], [])

        assert re.search(rf"{why} +(it|its) ", shown(pictures.secret_tables(Head("prod"), [one], 0.0)))
