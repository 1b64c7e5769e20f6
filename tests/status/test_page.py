"""The page, as it is written: what its headers permit, and that no text of others becomes an element."""

from __future__ import annotations

import re
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from shipper.process.log import printable
from shipper.sdk.aio import open_asyncio
from shipper.status import fleet, http, view
from shipper.status.http import serve_status
from shipper.status.page import document
from shipper.status.page.markup import tag
from shipper.status.rates import Rates, sample
from shipper.supervise.config import read_config
from tests.status.documents import EDGE, SERVED
from tests.status.documents import fleet as of_fleet
from tests.status.test_http import ask, get


class Elements(HTMLParser):
    """The elements and the text of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def shown(**more) -> str:
    return document.page(view.of({**SERVED, **more}), name="web-1").body.decode()


@given(st.text(), st.text())
def test_whatever_is_text_stays_text(name, words):
    found = Elements(tag("p", words, title=name, data_x=words))

    assert found.elements == ["p"]
    assert found.words == printable(words)


@pytest.mark.parametrize("members", [0, 1, 3, 200])
def test_the_page_is_well_formed_and_has_no_inline_style_or_script(members):
    """Its policy forbids these, and a browser would leave them out."""
    edges = [{**EDGE, "name": f"edge-{number}"} for number in range(members)]
    found = fleet.of(of_fleet(members))
    page = document.page(view.of({**SERVED, "edges": edges}), found, problem="the store is away", name="web-1")
    html = page.body.decode()
    seen = Elements(html)

    assert seen.open == []
    assert not {"style", *(name for name in seen.attributes if name.startswith("on"))} & seen.attributes
    assert "style" not in seen.elements
    assert re.findall("<script[^>]*>(.*?)</script>", html) == [""]
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)


def test_the_document_of_the_page_says_where_it_is(tmp_path):
    text = (Path(__file__).parents[2] / "docs/page.md").read_text()
    (written,) = re.findall(r"^```yaml file=supervise.yaml\n(.*?)^```$", text, re.S | re.M)
    (tmp_path / "supervise.yaml").write_text(written)
    address = read_config(tmp_path / "supervise.yaml", {}).http

    assert f"http://{address}/" in text
    assert f"shipper run --http {address}" in text


async def test_the_page_comes_with_a_policy_that_permits_its_own_two_files_alone():
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: SERVED) as address:
        head = {path: await headers(address, path) for path in document.PATHS}

    for path, found in head.items():
        policy = dict(rule.split(" ", 1) for rule in found["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in found["content-security-policy"]
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert (found["x-content-type-options"], found["cache-control"]) == ("nosniff", "no-store")
    assert [head[path]["content-type"].partition(";")[0] for path in document.PATHS] == [
        "text/html",
        "text/css",
        "text/javascript",
        "image/svg+xml",
        "text/html",
    ]


async def headers(address, path):
    host, _, port = address.partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        with trio.fail_after(60):
            answer = b"".join([block async for block in stream])
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def test_the_page_has_the_rules_of_access_of_the_status():
    """A web page whose name resolves to 127.0.0.1 reads neither; and nothing can be changed."""
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: SERVED) as address:
        for path in ("/status", *document.PATHS):
            assert (await ask(address, path))[0] == 200
            assert (await ask(address, path, headers={"Host": "evil.example"}))[0] == 421
            assert (await ask(address, path, method="POST"))[0] == 405


async def test_a_shipper_that_is_silent_has_a_page_that_says_so(monkeypatch):
    monkeypatch.setattr(http, "_ANSWER_SECONDS", 0.2)
    answers = []
    async with open_asyncio() as aio, serve_status(aio, ":0", lambda: SERVED) as address:
        reader = threading.Thread(target=lambda: answers.append(get(address, "/")))
        reader.start()
        reader.join()  # trio answers nobody meanwhile

    ((status, body),) = answers
    assert status == 503
    assert b"the shipper has not answered" in body


def test_a_refused_credential_has_its_command_on_the_page():
    assert "shipper test credential /etc/shipper/policy.d --output main" in shown(draining=[])


def test_a_page_of_thousands_of_edges_has_a_bound():
    edges = [{**EDGE, "name": f"edge-{number}"} for number in range(8_000)]

    assert len(shown(edges=edges)) < 1 << 20


def test_a_dead_destination_says_for_how_long_and_what_ends_it_and_when_the_queue_is_full():
    units = [{**unit, "message": "connection refused", "code": "unreachable"} for unit in SERVED["units"][2:3]]
    served = {"units": units, "outputs": {"main": {**SERVED["outputs"]["main"], "ill_seconds": 720.0}}}
    before = {**SERVED, "queue": {**SERVED["queue"], "bytes": (1 << 29) - (1 << 20)}}
    rates = Rates(sample({**SERVED, **served}, 15.0), sample(before, 5.0))
    words = Elements(document.page(view.of({**SERVED, **served}, rates), name="web-1").body.decode()).words

    assert "connection refused, for 12 min; ends when the host answers" in words
    assert "512MiB of 1GiB, full in 85 min" in words


def test_deliveries_to_several_outputs_are_not_said_to_be_events():
    one = {"main": SERVED["counters"]["main"]}

    assert "29,000 to 2 outputs" in Elements(shown()).words
    assert "9,000 events" in Elements(shown(counters=one)).words


def test_a_drained_revision_with_events_of_its_own_is_drained_of_older_ones():
    drained = Elements(shown(revisions={"received": [0, 7], "active": [0, 7], "drained": [0, 6]})).words

    assert "drained of older events" in drained
    assert "812 events of its own wait" in drained


def test_the_reasons_of_many_dead_letters_are_those_of_the_newest():
    letters = {"events": 1001, "bytes": 1, "oldest_seconds": 1.0}

    assert "reasons of the newest 1,000" in shown(dead_letters=letters)
    assert "reasons of the newest" not in shown()


def test_a_code_links_to_its_meaning_and_one_of_a_plugin_does_not():
    units = [
        {**unit, "message": "x", "code": code}
        for unit, code in zip(SERVED["units"][2:], ("refused", "own"), strict=True)
    ]
    html = shown(units=units)
    codes = document.file(document.CODES).body.decode()

    assert re.findall('href="codes#([^"]*)"', html) == ["refused"]
    assert 'id="refused"' in codes
    assert "A destination refuses requests for another cause" in codes
    assert Elements(codes).open == []


def test_a_code_that_a_unit_may_have_is_shown_with_what_docs_troubles_md_says_to_do():
    codes = document.file(document.CODES).body.decode()
    refused = codes.partition('id="refused"')[2].partition("</tr>")[0]

    assert "<pre><code>curl --include https://es-1:9200</code></pre>" in refused
    assert "Check <code>hosts</code>, and proxies between" in refused
    assert set(re.findall(r'href="#([^"]+)"', codes)) <= set(re.findall(r'<tr id="([^"]+)"', codes))
    assert "](" not in codes
    assert "`" not in codes
