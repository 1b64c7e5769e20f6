"""Questions about a fleet, asked of members by HTTP over a store in memory."""

import json
import ssl
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from shipper.fleet.observer import Observers
from shipper.fleet.opening import Opened
from shipper.fleet.questions import Questions, answering, of_sidecar
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, Alive, Head, Line, Refusal, Report, Version
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings, Http
from shipper.fleet.store import PROMPT
from shipper.membership.door import Answer, Refused, Request
from shipper.membership.http import LONGEST_WAIT
from shipper.sdk.credentials import Credential
from tests.fleet.memory import MemoryStore
from tests.fleet.test_fleet_certificates import AUTHORITY, Files, serial
from tests.membership.test_membership_http import connected

PATIENCE = 2 * LONGEST_WAIT
SEALS = Seals("prod", [b"k" * 32])
OLD, NEW = Version(0, 6, "a"), Version(0, 7, "b")
HISTORY = [Line(OLD, 0.0, "anna@ops", {}, "n"), Line(NEW, 1.0, "anna@ops", {}, "m")]


class Fleet:
    """A store with members, written by the test, and members that answer."""

    def __init__(self, nursery):
        self.server = MemoryStore()
        self.writer = self.server.client()
        self.nursery = nursery

    async def write(self, key, record):
        found = await self.writer.read(key)
        expected = found.entry.revision if found.entry else 0
        lease = await self.writer.grant(1e6) if key.startswith(ALIVE) else None
        return (await self.writer.swap(key, SEALS.seal(key, record), expected=expected, lease=lease)).at

    async def report(self, name, at=NEW, **more):
        stages = {"received": at, "active": at, "drained": at}
        fields = {"state": "member", "stages": stages} | more
        await self.write(ALIVE + name, Alive(name, "b", "i"))
        return await self.write(MEMBERS + name, Report(name, name, "b", "i", 1, 0, **fields))

    def member(self, restored=lambda: False):
        client = self.server.client()
        return Questions(Observers(client, SEALS, self.nursery), restored), client


@asynccontextmanager
async def fleet(*, members=(("web-1", NEW), ("web-2", NEW))):
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            made = Fleet(nursery)
            await made.write(HEAD, Head("prod", 0, 7, HISTORY))
            for name, at in members:
                await made.report(name, at)
            yield made
            nursery.cancel_scope.cancel()


async def asked(questions, path, **query) -> tuple[int, dict]:
    try:
        answer = await questions.answer(Request(path, query))
    except Refused as refused:
        answer = refused.answer
    assert isinstance(answer, Answer)
    return answer.status, json.loads(answer.body)


async def test_an_open_answer_is_200_with_the_verdict_and_its_revision():
    async with fleet() as made:
        at = await made.report("web-2")
        questions, _ = made.member()
        status, verdict = await asked(questions, "/fleet/versions/7")

    assert status == 200
    assert (verdict["state"], verdict["at"], verdict["counts"]) == ("open", at, {"reached": 2})


async def test_t152_10_every_member_gives_the_same_answer():
    async with fleet(members=(("web-1", NEW), ("web-2", OLD))) as made:
        answers = [await asked(made.member()[0], "/fleet/versions/7", stage="active") for _ in range(3)]
        await made.report("web-2", NEW)
        later = [await asked(made.member()[0], "/fleet/versions/7", stage="active") for _ in range(3)]

    assert answers[0] == answers[1] == answers[2]
    assert later[0] == later[1] == later[2]
    assert (answers[0][0], later[0][0]) == (202, 200)


async def test_t152_10_a_member_that_is_cut_off_says_so(autojump_clock):
    async with fleet() as made:
        questions, client = made.member()
        client.set(cut=True)
        began = trio.current_time()
        answers = [await asked(questions, path) for path in ("/fleet/versions/7", "/fleet/members", "/fleet/versions")]

        assert trio.current_time() - began <= 3 * PROMPT
    assert {(status, answer["code"]) for status, answer in answers} == {(503, "store_unreachable")}


async def test_a_closed_answer_is_202_when_the_wait_is_over(autojump_clock):
    async with fleet(members=(("web-1", NEW), ("web-2", OLD))) as made:
        began = trio.current_time()
        status, verdict = await asked(made.member()[0], "/fleet/versions/7", wait="30s")

    assert status == 202
    assert 30 <= trio.current_time() - began < 31
    assert [member["name"] for member in verdict["members"]] == ["web-2"]


async def test_a_refused_version_is_409_with_the_member_and_its_reason(autojump_clock):
    refusal = Refusal(NEW, "invalid", ["outputs: no such type"])
    async with fleet(members=(("web-1", NEW),)) as made:
        await made.report("web-2", OLD, stages={}, refusal=refusal)
        status, verdict = await asked(made.member()[0], "/fleet/versions/7", wait="30s")

    assert status == 409
    assert [(member["name"], member["problems"]) for member in verdict["members"]] == [("web-2", refusal.problems)]


@pytest.mark.parametrize(("version", "state"), [("8", "unknown"), ("5", "gone"), ("3.7", "unknown")])
async def test_t152_12_a_version_that_is_not_there_is_404(version, state):
    async with fleet() as made:
        status, verdict = await asked(made.member()[0], f"/fleet/versions/{version}", wait="30s")

    assert (status, verdict["state"]) == (404, state)


async def test_members_and_versions_have_their_revision():
    async with fleet(members=(("web-1", NEW), ("web-2", OLD))) as made:
        at = await made.report("web-1")
        questions, _ = made.member()
        _, members = await asked(questions, "/fleet/members")
        _, versions = await asked(questions, "/fleet/versions")

    assert [member["name"] for member in members["members"]] == ["web-2", "web-1"]
    assert (members["at"], versions["at"]) == (at, at)
    assert [row["version"] for row in versions["versions"]] == ["7", "6"]


async def test_a_member_that_saw_the_store_go_back_says_so():
    async with fleet() as made:
        status, answer = await asked(made.member(lambda: True)[0], "/fleet/versions/7")

    assert (status, answer["code"]) == (503, "store_restored")


async def test_a_head_that_is_not_sealed_by_the_fleet_is_no_answer():
    async with fleet() as made:
        found = (await made.writer.read(HEAD)).entry
        await made.writer.swap(HEAD, b"forged", expected=found.revision)
        status, answer = await asked(made.member()[0], "/fleet/versions/7")

    assert (status, answer["code"]) == (503, "unauthentic")


async def test_a_question_that_is_none_is_refused():
    for path, query, expected in [
        ("/fleet/", {}, 404),
        ("/fleet/versions/", {}, 400),
        ("/fleet/versions/x", {}, 400),
        ("/fleet/versions/-1", {}, 400),
        ("/fleet/versions/7", {"stage": "done"}, 400),
        ("/fleet/versions/7", {"wait": "30"}, 400),
        ("/fleet/versions/7", {"nack_grace": "-1s"}, 400),
        ("/fleet/versions/7", {"waits": "30s"}, 400),
        ("/fleet/members", {"a": "b"}, 400),
    ]:
        async with fleet() as made:
            status, answer = await asked(made.member()[0], path, **query)

        assert status == expected
        assert answer["code"] in ("bad_request", "not_found")


async def test_a_wait_without_end_is_cut(autojump_clock):
    async with fleet(members=(("web-1", OLD),)) as made:
        began = trio.current_time()
        status, _ = await asked(made.member()[0], "/fleet/versions/7", wait="30d")

    assert status == 202
    assert trio.current_time() - began < LONGEST_WAIT + 1


def opened(store, **more):
    fields = {"name": "prod", "member": "web-1", "etcd": ("http://127.0.0.1:2379",), "keys": (b"k" * 32,)}
    return Opened(FleetSettings(**fields, **more), store, SEALS)


async def test_a_member_answers_at_the_address_of_its_configuration():
    async with (
        fleet() as made,
        answering(opened(made.server.client()), "127.0.0.1:0", lambda: None) as address,
        connected(address) as client,
    ):
        status, _, body = await client.get("/fleet/versions/7?stage=active")

    assert (status, json.loads(body)["state"]) == (200, "open")


async def test_a_member_answers_at_an_address_of_its_own_with_a_token():
    own = Http(address="127.0.0.1:0", token=Credential({"bearer_token": "t" * 16}))
    async with (
        fleet() as made,
        answering(opened(made.server.client(), http=own), None, lambda: None) as address,
        connected(address) as client,
    ):
        without, _, _ = await client.get("/fleet/members")
        status, _, _ = await client.get("/fleet/members", f"Authorization: Bearer {'t' * 16}")

    assert (without, status) == (401, 200)


async def test_a_member_answers_with_a_renewed_certificate(tmp_path):
    files = Files(tmp_path)
    certificate, key = files.first
    own = Http(address="127.0.0.1:0", certificate=certificate, key=key)
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    async with (
        fleet() as made,
        answering(opened(made.server.client(), http=own), None, lambda: None) as address,
        connected(address, tls) as client,
    ):
        await client.get("/fleet/members")
        before = serial(client.stream)
        files.renew()
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await client.some()
        async with connected(address, tls) as new:
            status, _, _ = await new.get("/fleet/members")
            after = serial(new.stream)

    assert status == 200
    assert after != before


async def test_a_member_without_an_address_answers_nothing():
    async with fleet() as made, answering(opened(made.server.client()), None, lambda: None) as address:
        assert address is None


def test_the_sidecar_leaves_the_address_of_the_configuration_to_the_supervisor():
    own = Http(address="127.0.0.1:6781")

    assert of_sidecar(opened(None).settings, "127.0.0.1:6780") == "127.0.0.1:0"
    assert of_sidecar(opened(None, http=own).settings, "127.0.0.1:6780") == "127.0.0.1:6780"
    assert of_sidecar(opened(None).settings, None) is None
