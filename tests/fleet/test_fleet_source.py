from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from shipper.fleet.source import FleetSource
from shipper.policy.registry import Registry
from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError
from shipper.supervise.answers import Answer
from shipper.supervise.ledger import Wanted
from shipper.supervise.secrets import SecretsAbsent
from shipper.supervise.shared_source import LEAVE_SECONDS
from shipper.supervise.watch import Watch
from shipper.values import Counts, Revision
from tests.fleet.offering import Offering

POLICY = """version: 1
outputs:
  main: {type: elasticsearch, hosts: ["https://${HOST_OF_ES}:9200"], credential: {fleet: es}}
  own: {type: elasticsearch, hosts: ["https://127.0.0.1:9201"], credential: {file: OWN}}
"""
SECRETS = {"es": ("es-7f", b"k1:hunter2")}


class Host:
    """A source with one membership, and a secret of its own."""

    def __init__(self, directory: Path, watch: Watch) -> None:
        self.own = directory / "own"
        self.own.write_text("k2:hunter3")
        self.own.chmod(0o600)
        self.fleet = Offering()
        self.said: list[tuple[str, Any]] = []
        self.source = FleetSource(
            "prod",
            self.fleet,
            watch,
            {"HOST_OF_ES": "127.0.0.1"},
            lambda what, fields: self.said.append((what, fields)),
            registry=Registry.installed(),
        )

    def offer(self, number: int, policy: str = POLICY) -> str:
        return self.fleet.offer(number, policy.replace("OWN", str(self.own)), SECRETS).name

    async def read(self) -> Wanted:
        return await self.source.read(dict)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Watch() as watch:
        yield Host(tmp_path, watch)


async def test_a_version_becomes_a_policy_with_the_ids_of_the_fleet_for_its_secrets(host: Host) -> None:
    name = host.offer(7)

    wanted = await host.read()

    assert wanted.version == name
    assert {id for id, kept in wanted.credentials.items() if kept.shared} == {"es-7f"}
    assert len(wanted.credentials) == 2
    assert host.said == [("fleet_version", {"version": "7"})]


async def test_a_mistake_has_its_place_in_the_text_of_the_fleet_and_is_a_refusal_once(host: Host) -> None:
    name = host.offer(7, POLICY.replace("HOST_OF_ES", "NO_SUCH"))

    for _ in range(2):
        with pytest.raises(PolicyError, match=r"version 7:3:.*NO_SUCH is not set"):
            await host.read()

    ((version, stage, reason, problems),) = host.fleet.answers
    assert (version, stage, reason) == (name, "refused", "invalid")
    assert problems[0].startswith("version 7:3:")
    assert host.source.problems[0].file == "version 7"


async def test_a_secret_of_this_host_that_is_absent_refuses_the_version_as_missing(host: Host) -> None:
    host.own.unlink()
    host.offer(7)

    with pytest.raises(SecretsAbsent):
        await host.read()

    assert [(stage, reason) for _, stage, reason, _ in host.fleet.answers] == [("refused", "credential_missing")]
    assert "hunter" not in str(host.fleet.answers)


async def test_the_refused_version_is_read_again_when_its_secret_appears(host: Host) -> None:
    host.own.unlink()
    name = host.offer(7)
    with pytest.raises(SecretsAbsent):
        await host.read()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.source.changed)
        await trio.testing.wait_all_tasks_blocked()
        host.own.write_text("k2:hunter3")

    assert (await host.read()).version == name


async def test_a_version_that_this_host_uses_is_not_refused_when_its_secret_goes(host: Host) -> None:
    host.offer(7)
    await host.read()
    host.own.write_text("")

    with pytest.raises(PolicyError):
        await host.read()

    assert host.fleet.answers == []


async def test_a_version_of_an_earlier_process_is_neither_reported_nor_refused(host: Host) -> None:
    host.source.resume(host.offer(7), may_run=True)
    host.own.write_text("")

    with pytest.raises(PolicyError):
        await host.read()

    assert (host.fleet.answers, host.said) == ([], [])


async def test_before_the_fleet_has_supplied_a_version_there_is_nothing_to_read(host: Host) -> None:
    with pytest.raises(PolicyError, match=r"fleet prod.*has not supplied any version yet"):
        await host.read()

    assert host.fleet.answers == []


async def test_it_waits_for_another_version_and_not_for_the_same_again(host: Host) -> None:
    host.offer(7)
    await host.read()
    ended = trio.Event()

    async def wait() -> None:
        await host.source.changed()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not ended.is_set()
        host.offer(8)

    assert (await host.read()).version.startswith("0.8.")


async def test_a_version_that_came_during_a_reading_is_a_change(host: Host) -> None:
    host.offer(7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.read)
        while not host.said:  # it has begun with version 7
            await trio.lowlevel.checkpoint()
        host.offer(8)

    assert await host.source.changed() is False


async def test_a_host_without_a_membership_runs_nothing_before_the_store_has_answered(host: Host) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.source.may_run)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        host.offer(7)
    host.source.resume("", may_run=True)
    host.fleet.offered = None
    await host.source.may_run()


async def test_it_leaves_when_the_store_knows(host: Host) -> None:
    host.fleet.may_leave.set()

    assert (await host.source.leave()).status == "SUCCESS"
    assert host.said == [("fleet_left", {"fleet": "prod"})]


async def test_a_store_that_does_not_answer_keeps_nobody_from_ending(host: Host, autojump_clock: object) -> None:
    began = trio.current_time()

    result = await host.source.leave()

    assert (result.status, result.code) == ("FAILED", Code.TIMED_OUT)
    assert trio.current_time() - began == LEAVE_SECONDS
    assert host.said == []


async def test_the_ledger_and_the_rotation_of_an_answer_reach_the_membership(host: Host) -> None:
    answer = Answer("0.7.a", Revision(0, 1), "drained", ledger=Counts(5, 5), local="drained 2")

    host.source.answered("m", answer)

    assert host.fleet.ledgers == [(Counts(5, 5), "drained 2")]
