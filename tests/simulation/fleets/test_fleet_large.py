"""A fleet of some hundred hosts by its pure decisions alone, and faults that its judge must find."""

from msgspec.structs import replace

from shipper.fleet import judge
from shipper.fleet.member.fencing import Fencing
from tests.simulation.fleets import large


def test_a_large_fleet_answers_truly_through_cuts_kills_and_a_restore():
    said = []
    played = large.story(200, 0, said.append)

    assert played.wrong == []
    assert {"open", "closed", "store_restored"} == {*played.verdicts}
    assert len(said) == 8


def test_an_answer_that_opens_without_absent_members_is_found(monkeypatch):
    monkeypatch.setattr(judge, "OPENING", judge.OPENING | {"absent"})

    assert "has not said so" in large.story(100, 0, print).wrong[0]


def test_an_answer_that_opens_with_one_member_too_few_is_found(monkeypatch):
    def hasty(*question):
        verdict = judge.judge(*question)
        return replace(verdict, state="open") if verdict.counts.get("reached", 0) >= 99 else verdict

    monkeypatch.setattr(large, "judge", hasty)
    assert "has not said so" in large.story(100, 0, print).wrong[0]


def test_a_fenced_host_that_goes_on_sending_is_found(monkeypatch):
    monkeypatch.setattr(Fencing, "renew", lambda self, began: setattr(self, "renewed", began + 60.0))

    assert "counts as fenced" in large.story(100, 0, print).wrong[0]


def test_a_closed_answer_without_a_reason_is_found(monkeypatch):
    def silent(*question):
        verdict = judge.judge(*question)
        return replace(verdict, members=[replace(one, why="") for one in verdict.members])

    monkeypatch.setattr(large, "judge", silent)
    assert "without a reason" in large.story(100, 0, print).wrong[0]
