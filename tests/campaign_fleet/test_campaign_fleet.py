"""The campaign, for a short while; and its judge must be able to find something wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shipper.fleet.judge import Verdict
from shipper.fleet.records import Version
from shipper.fleet.standings import Standing
from shipper.process.environment import boottime
from tests.backends.etcd import Etcd
from tests.campaign_fleet.campaign import opened_campaign
from tests.campaign_fleet.oracle import Answer, Published, Revoked, Seen, Use, faults
from tests.campaign_fleet.transcript import Transcript, What, mark
from tests.story.fleet import started_etcd

ONE, TWO, THREE = (Version(0, number, f"digest-{number}") for number in (1, 2, 3))


@pytest.fixture
def nodes() -> Iterator[Etcd]:
    yield from started_etcd(3)


@pytest.mark.backend
@pytest.mark.timeout(600)
async def test_a_fleet_keeps_its_word_whatever_fails(tmp_path: Path, nodes: Etcd) -> None:
    async with opened_campaign(tmp_path, nodes, seed=4, hosts=5) as campaign:
        await campaign.run(seconds=12, versions=6)

    assert len(campaign.seen.history) > 5
    assert campaign.seen.revoked
    assert any(answer.verdict.state == "open" for answer in campaign.seen.answers)


# -- the judge ---------------------------------------------------------------------------------------------------------


class Told:
    """A transcript that a test writes."""

    def __init__(self, directory: Path, name: str = "web-1") -> None:
        self.transcript = Transcript(directory / name)

    def _write(self, at: float, direction: str, message: dict[str, Any]) -> None:
        with self.transcript.path.open("a") as file:
            file.write(f"{at:.6f} {direction} {json.dumps(message)}\n")

    def hears(self, at: float, revision: int, name: str, *ids: str) -> None:
        policy = {"type": "policy", "epoch": 0, "revision": revision, "policy": mark(name)}
        self._write(at, "<", policy | {"credentials": {id: {"api_key": "a:b"} for id in ids}})

    def says(self, at: float, revision: int, stage: str = "drained") -> None:
        self._write(at, ">", {"type": "ack", "epoch": 0, "revision": revision, "stage": stage})


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


@pytest.fixture
def seen(told: Told) -> Seen:
    """Three versions: the third is the first one again."""
    secrets = frozenset({"es-1"})
    whats = [What("a", secrets), What("b", secrets), What("a", secrets)]
    pairs = enumerate(zip((ONE, TWO, THREE), whats, strict=True), 1)
    history = [Published(one, at * 10.0, what) for at, (one, what) in pairs]
    return Seen({"web-1": told.transcript}, {"web-1": 0.0}, history)


def answer(at: float, version: Version, state: Any = "open", *members: Standing) -> Answer:
    verdict = Verdict(str(version), "drained", state, 1, triple=version, members=[*members])
    return Answer(at, verdict, "somebody")


def test_an_answer_that_opens_before_a_member_has_said_so_is_found(told: Told, seen: Seen) -> None:
    told.hears(21, 1, "b", "es-1")
    told.says(22, 1, "active")
    told.says(24, 1)
    seen.answers = [answer(23, TWO), answer(25, TWO)]
    (fault,) = faults(seen)
    assert "web-1 had not said so" in fault
    assert "23.000" in fault


def test_an_answer_that_is_closed_without_a_reason_is_found(seen: Seen) -> None:
    waiting = Standing("web-1", "waiting", None, "not yet")
    seen.answers = [answer(23, TWO, "closed"), answer(24, TWO, "closed", waiting)]
    (fault,) = faults(seen)
    assert "closed without a reason" in fault


def test_a_use_of_a_revoked_key_is_found_unless_its_member_was_named(told: Told, seen: Seen) -> None:
    seen.revoked = {"k1": Revoked(20.0, "a reason", "es-1", ["web-2"])}
    seen.uses = [Use(19, "web-1", "k1", 200), Use(21, "web-2", "k1", 401), Use(22, "web-1", "k1", 401)]
    told.hears(23, 1, "a", "es-1")
    assert faults(seen) == [
        "web-1 used k1 2.000 s after it was revoked, for a reason: 401",
        "the sidecar of web-1 was given es-1 3.000 s after it was revoked",
    ]
    seen.uses, seen.revoked = [Use(22, "web-1", "k1", 401)], {}
    assert faults(seen) == ["web-1 was refused at 22.000, with the key 'k1'"]


def test_a_use_without_a_lease_is_found(told: Told, seen: Seen) -> None:
    ahead = boottime() - time.monotonic()
    told._write(10.0, "<", {"type": "hello", "lease": True})
    told._write(11.0, "<", {"type": "lease", "until": 14.0 + ahead})
    told._write(30.0, "<", {"type": "lease", "until": None})
    seen.uses = [Use(at, "web-1", "k1", 200) for at in (9.0, 10.5, 12.0, 15.0, 17.0, 31.0)]
    faulty = [fault.rpartition(" ")[2] for fault in faults(seen)]
    assert faulty == ["10.500", "17.000"]
