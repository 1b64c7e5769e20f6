"""What `shipper top` shows of a fleet, and whom it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trio
from rich.cells import cell_len

from shipper.commands.top import looking
from shipper.commands.top.fleets import lines
from shipper.status import fleet
from tests.backends.etcd import Etcd
from tests.status.documents import fleet as document
from tests.story.fleet import busy, started_etcd


def drawn(members: int, width: int = 120) -> list[str]:
    return [line.plain for line in lines(fleet.of(document(members)), width)]


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """A member; yields its address, and what it was asked."""
    asked: list[str] = []

    class Member(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Member) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_each_version_says_how_many_members_have_got_how_far():
    assert drawn(200)[:3] == [
        "fleet prod  behind, 200 members, newest version 6, led by web-1",
        "  versions    members                                                             by   why",
        "  6           ████████████████████████████▓░ 197 drained, 1 active, 2 without it  kim  rotate es",
    ]


def test_those_that_are_behind_are_named_with_the_reason():
    found = [line.split() for line in drawn(200)]

    assert ["web-17", "absent", "3", "90", "its", "lease", "is", "over"] in found
    assert [line[0] for line in found if line[0].startswith("web-")] == ["web-1", "web-17", "web-42"]


def test_no_line_is_wider_than_the_terminal():
    for members in [0, 1, 3, 200]:
        for width in [40, 80, 120]:
            assert [line for line in drawn(members, width) if cell_len(line) > width] == []


def test_a_member_that_answers_everybody_is_asked_for_its_fleet():
    with answering(200, json.dumps(document(3)).encode()) as (address, asked):
        found = looking._fleet(address)

    assert found == fleet.of(document(3))
    assert asked == ["/fleet/members"]


@pytest.mark.parametrize(("status", "body"), [(401, b"{}"), (503, b"{}"), (200, b"rubbish"), (200, b"\xff")])
def test_a_member_that_does_not_answer_for_its_fleet_is_no_error(status: int, body: bytes):
    with answering(status, body) as (address, _):
        assert looking._fleet(address) is None
    assert looking._fleet(address) is None


def test_another_host_is_not_asked():
    assert looking._fleet("192.0.2.1:80") is None
    assert looking._fleet("example.org:443") is None


@pytest.fixture
def etcd() -> Iterator[Etcd]:
    yield from started_etcd(1)


@pytest.mark.backend
async def test_of_a_real_member_it_shows_itself_and_the_fleet(tmp_path: Path, etcd: Etcd):
    async with busy(tmp_path, etcd) as hosts:
        version = await hosts.begin()
        host = hosts.host("web-1")
        hosts.host("web-2")
        await hosts.started(version, "web-1", "web-2")
        await hosts.opens(version, "web-1", "web-2")
        looks = looking.Looking(host.state)
        with trio.fail_after(60):
            seen = await trio.to_thread.run_sync(looks.look)
            while seen.fleet is None or seen.view.outputs[0].delivered is None:
                await trio.sleep(0.1)
                seen = await trio.to_thread.run_sync(looks.look)
        await hosts.delivered()

    assert {member.name: member.kind for member in seen.fleet.members} == {"web-1": "reached", "web-2": "reached"}
    assert seen.fleet.versions[0].cells == ("drained", "drained")
