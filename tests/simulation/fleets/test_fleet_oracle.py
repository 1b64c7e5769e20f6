"""That each law of a simulated fleet can be broken, in transcripts made by hand."""

from __future__ import annotations

from shipper.fleet.judge import Verdict
from shipper.fleet.records import Head, Report, Version
from shipper.fleet.standings import Standing
from tests.simulation.fleets.oracle import judge
from tests.simulation.fleets.transcript import Answer, Ran, Reached, Received, Transcript, Use, Written

ONE, TWO = Version(0, 1, "a"), Version(0, 2, "b")
AGAIN = Version(1, 2, "c")


def answer(state: str, *members: Standing, version: Version = TWO, asked: float = 10.0) -> Answer:
    verdict = Verdict(str(version), "drained", state, at=9, triple=version, members=list(members))  # type: ignore[arg-type]
    return Answer(asked, asked + 1.0, verdict)


def laws(transcript: Transcript) -> list[str]:
    return [violation.law for violation in judge(transcript)]


def report(version: Version, epoch: int = 0) -> Report:
    return Report("web-1", "dir", "boot", "i", 1, epoch, state="member", stages={"drained": version})


def test_l1_breaks_when_a_triple_has_two_contents_or_a_number_two_publishers() -> None:
    assert laws(Transcript(published=[(ONE, "a: 1"), (TWO, "a: 2")])) == []
    assert laws(Transcript(published=[(ONE, "a: 1")], received=[Received(1.0, "web-1#0", ONE, "a: 2")])) == ["L1"]
    assert laws(Transcript(published=[(ONE, "a: 1"), (Version(0, 1, "c"), "a: 1")])) == ["L1"]


def test_l2_breaks_after_a_restore_only_for_what_has_registered_for_the_later_epoch() -> None:
    transcript = Transcript(
        received=[Received(1.0, "web-1#0", ONE, ""), Received(1.0, "web-2#0", ONE, "")],
        heads=[Written(0.0, 1, Head("prod"))],
        answers=[answer("open", version=AGAIN), answer("open", version=TWO)],
        restored=[5.0],
    )
    assert laws(transcript) == []
    transcript.reports.append(Written(7.0, 8, report(ONE, 1)))
    assert laws(transcript) == ["L2"]
    transcript.reached.append(Reached(9.0, "web-1#0", "drained", AGAIN))
    assert laws(transcript) == []


def test_l4_breaks_when_a_fenced_member_sends_before_it_has_caught_up() -> None:
    fenced = Standing("web-1", "fenced", None, "its lease is over")
    late = Transcript(answers=[answer("open", fenced)], uses=[Use(20.0, "web-1#0", "es-1", 21.0)])
    assert laws(late) == ["L4"]
    late.reached.append(Reached(19.0, "web-1#0", "active", TWO))
    assert laws(late) == []


def test_l6_breaks_when_a_token_falls_or_two_hosts_have_it() -> None:
    heads = [Written(1.0, 1, Head("prod", token=7)), Written(2.0, 2, Head("prod", token=6))]
    assert laws(Transcript(heads=heads)) == ["L6"]
    assert laws(Transcript(heads=heads, restored=[1.5])) == []
    assert laws(Transcript(ran=[Ran(1.0, "web-1", "es-1", 7), Ran(2.0, "web-2", "es-1", 7)])) == ["L6"]


def test_l8_breaks_when_an_answer_stays_closed_without_a_reason_or_behind_its_own_revision() -> None:
    waiting = Standing("web-1", "waiting", None, "active, not yet drained")
    closed = Transcript(answers=[answer("closed", waiting)])
    assert laws(Transcript(answers=[answer("closed")])) == ["L8"]
    assert laws(closed) == []
    closed.reports.append(Written(9.0, 9, report(TWO)))
    assert laws(closed) == ["L8"]
    closed.reports[:] = [Written(11.0, 10, report(TWO))]
    assert laws(closed) == []
