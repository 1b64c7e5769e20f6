"""What a member reports of its sidecar's answers, on a store in memory."""

import trio

from shipper.fleet.member.answers import Answers
from shipper.fleet.records import Report, Version
from shipper.values import Counts
from tests.fleet.hosts import LEASE, running, until


async def test_t152_3_a_member_reports_a_stage_only_after_the_sidecar_has_answered(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        await trio.sleep(3 * LEASE)
        assert fleet.report().stages == {}
        for stage in ("received", "active", "drained"):
            one.answer(stage)
            await until(lambda stage=stage: fleet.report().stages.get(stage) == version, 1)
            assert len(fleet.report().stages) == ("received", "active", "drained").index(stage) + 1


async def test_answers_during_an_outage_are_stored_after_it(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        fleet.server.stop()
        one.answer("active")
        await trio.sleep(3600)
        one.answer("drained")
        fleet.server.start()
        await until(lambda: fleet.report().stages.get("drained") == version, LEASE)


async def test_an_older_answer_never_replaces_a_newer_one(fleet, place, autojump_clock):
    first = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(first)
        second = fleet.publish()
        await one.offered(second)
        one.answer("drained", second)
        one.answer("drained", first)
        await trio.sleep(LEASE)
        assert fleet.report().stages["drained"] == second


async def test_a_refusal_is_reported_and_cleared_by_a_later_stage(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.answer("refused", None, "failed", "the port is taken")
        await until(lambda: fleet.report().refusal is not None, 1)
        assert (fleet.report().refusal.version, fleet.report().refusal.reason) == (version, "failed")
        one.answer("received")
        await until(lambda: fleet.report().refusal is None, 1)


async def test_a_version_costs_at_most_five_writes_and_rest_one_in_a_third_of_a_lease(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        await trio.sleep(LEASE)
        before = one.client.calls["written"]
        await trio.sleep(100 * LEASE)
        assert 295 <= one.client.calls["written"] - before <= 301

        before = one.client.calls["written"]
        version = fleet.publish()
        await one.offered(version)
        for _ in range(20):
            one.answer("received")
            one.answer("refused", None, "failed")
            await trio.sleep(0.05)
        for stage in ("received", "active", "drained"):
            one.answer(stage)
            await trio.sleep(0.05)
        await until(lambda: fleet.report().stages.get("drained") == version and not fleet.report().refusal)
        assert one.client.calls["written"] - before <= 5


async def test_other_names_than_those_of_versions_are_ignored(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        for name in ("", "7", "a.b.c", "1.2", "١.1.x"):
            one.member.answered(name, None, "drained")
        await trio.sleep(LEASE)
        assert fleet.report().stages == {}


def test_the_ledger_is_the_first_one_of_the_newest_drained_version_also_over_a_restart():
    first, second = Version(0, 1, "one"), Version(0, 2, "two")
    before, after = Answers(), Answers()

    def drained(answers: Answers, version: Version, ledger: Counts | None) -> Counts | None:
        answers.take(version, "drained", "", (), ledger, "", 0.0)
        return answers.ledger

    assert drained(before, first, Counts(7, 7)) == Counts(7, 7)
    assert drained(before, first, Counts(9, 9)) == Counts(7, 7)
    after.recall(Report("a", "d", "b", "i", 1, 0, stages=before.stages, ledger=before.ledger))
    assert drained(after, first, None) == Counts(7, 7)
    assert drained(after, second, None) is None
