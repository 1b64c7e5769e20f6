"""The page of a member: its sidecar and its fleet, for who may see them."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from shipper.fleet import page as module
from shipper.fleet.overview import Fleet as Overview
from shipper.fleet.page import FRESH_SECONDS, Glances
from shipper.fleet.questions import answering
from shipper.fleet.store import StoreRefused, StoreUnreachable
from shipper.membership.door import Door
from shipper.membership.http import serve
from shipper.membership.page import Page
from tests.fleet.test_fleet_questions import NEW, OLD, fleet, opened
from tests.membership.test_membership_http import Asked, Client, connected
from tests.raw_http import http, raw_server, saying
from tests.status.documents import SERVED, asked
from tests.status.documents import fleet as of_fleet

PATIENCE = 60
OPEN = Door("127.0.0.1")


class Store:
    """Returns the overview of a fleet, or raises what the test says; counts how often it is asked."""

    def __init__(self, members: int = 3) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.found = document(members)

    async def __call__(self) -> Overview:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.found


def document(members: int) -> Overview:
    said = of_fleet(members)
    for row in said["versions"]:
        row["ledger"] = {}
    return msgspec.convert(said, Overview)


def page(ask=None, told=None) -> Page:
    return Page(Glances(ask).glance if ask else None, told)


@asynccontextmanager
async def paged(ask=None, door=OPEN, said: bytes | None = None):
    """A client of a member with a page, whose sidecar says this of itself."""
    body = json.dumps(SERVED).encode() if said is None else said
    with trio.fail_after(PATIENCE):
        async with (
            raw_server(saying(http(body))) as sidecar,
            serve(
                "127.0.0.1:0", door, Asked(), lambda: sidecar.removeprefix("http://"), page=page(ask).answer
            ) as address,
            connected(address) as client,
        ):
            yield client


async def got(client: Client, path: str = "/", *headers: str) -> tuple[int, str]:
    status, _, body = await client.get(path, *headers)
    return status, body.decode()


async def test_the_page_shows_the_sidecar_and_the_fleet_with_who_is_behind_and_why():
    async with paged(Store()) as client:
        status, headers, body = await client.get("/")
        files = [(await got(client, path))[0] for path in ("/page.css", "/page.js", "/page.svg")]
    html = body.decode()

    assert (status, files) == (200, [200, 200, 200])
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "shipper order rebind --from es-3f9c0a7be2d1" in html
    for words in (
        "prod",
        "version 6",
        "web-1",
        "its events drain: 401 from es-1:9200, events held",
        "2 drained, 1 active",
    ):
        assert words in html


async def test_a_member_without_a_fleet_shows_its_sidecar():
    async with paged() as client:
        _, html = await got(client)

    assert "DEGRADED" in html
    assert 'id="fleet"' not in html


async def test_without_a_sidecar_the_fleet_is_still_shown():
    async with (
        serve("127.0.0.1:0", OPEN, Asked(), lambda: None, page=page(Store()).answer) as address,
        connected(address) as client,
    ):
        status, html = await got(client)

    assert status == 200
    assert "nothing is known of the sidecar: it does not run, or has no address" in html
    assert "web-1" in html


async def test_without_a_sidecar_that_answers_the_supervisor_says_what_it_knows_to_whom_it_may():
    """Where only the fleet has an address, the sidecar has no server at all."""

    async def told():
        return asked()

    for door, words in ((OPEN, "1 drain"), (Door("0.0.0.0"), "nothing is known of the sidecar")):
        answer = page(Store(), told).answer
        async with (
            serve("127.0.0.1:0", door, Asked(), lambda: None, page=answer) as address,
            connected(address) as client,
        ):
            _, html = await got(client)
            status, _ = await got(client, "/status")

        assert words in html
        assert status == 503


@pytest.mark.parametrize("said", [b"{}", b"[]", b"{", b'{"state": "HEALTHY", "units": 7}'])
async def test_a_sidecar_of_another_kind_is_no_error(said):
    async with paged(Store(), said=said) as client:
        status, html = await got(client)

    assert status == 200
    assert "its status is not understood" in html


async def test_a_store_that_is_away_leaves_what_was_seen_last_and_the_reason(monkeypatch):
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
    store = Store()
    async with paged(store) as client:
        await got(client)
        store.error = StoreUnreachable("etcd-1 does not answer")
        _, html = await got(client)

    assert "the fleet cannot be asked: etcd-1 does not answer" in html
    assert "web-1" in html


async def test_the_store_is_asked_once_for_all_who_look(autojump_clock):
    store = Store()
    shown = page(store)
    for _ in range(4):
        await shown.answer("/", None, "", may_ask=True)
    soon = store.asked
    await trio.sleep(FRESH_SECONDS + 1)
    store.error = StoreRefused("no right")
    await shown.answer("/", None, "", may_ask=True)
    await shown.answer("/", None, "", may_ask=True)

    assert (soon, store.asked) == (1, 2)


async def test_the_page_needs_the_token_that_the_status_needs_and_a_browser_is_asked_for_it():
    door = Door("127.0.0.1", tokens=(b"t:1",))
    given = base64.b64encode(b"kim:t:1").decode()
    wrong = base64.b64encode(b"kim:t").decode()
    async with paged(Store(), door) as client:
        without, headers, _ = await client.get("/")
        answers = [
            (await got(client, path, f"Authorization: {scheme}"))[0]
            for path in ("/", "/page.js", "/status")
            for scheme in (f"Basic {given}", "Bearer t:1", f"Basic {wrong}", "Basic ???", "Basic", "Digest x")
        ]

    assert without == 401
    assert headers["www-authenticate"].startswith('Basic realm="')
    assert answers == [200, 200, 401, 401, 401, 401] * 3


async def test_who_may_not_ask_about_the_fleet_sees_the_sidecar_alone():
    """That is how /status and /fleet/ are answered at an address that is not loopback, without a token."""
    store = Store()
    async with paged(store, Door("0.0.0.0")) as client:
        status, html = await got(client)
        members, _ = await got(client, "/fleet/members")

    assert (status, members) == (200, 403)
    assert "DEGRADED" in html
    assert "web-1" not in html
    assert store.asked == 0


async def test_a_web_page_with_a_name_of_its_own_reads_no_page():
    async with paged(Store()) as client:
        answers = [(await got(client, path, "Host: evil.example"))[0] for path in ("/", "/page.js")]
        head, _, body = await client.get("/", method="HEAD")

    assert answers == [421, 421]
    assert (head, body) == (200, b"")


async def test_a_member_of_a_real_fleet_has_its_page():
    async with fleet(members=(("web-1", NEW), ("web-2", OLD))) as made:
        here = opened(made.server.client())
        async with answering(here, "127.0.0.1:0", lambda: None) as address, connected(address) as client:
            _, html = await got(client)
        async with (
            answering(here, "127.0.0.1:0", lambda: None, restored=lambda: True) as address,
            connected(address) as client,
        ):
            _, restored = await got(client)

    assert "1 drained, 1 not yet received" in html
    assert "the store was restored from an older state" in restored
