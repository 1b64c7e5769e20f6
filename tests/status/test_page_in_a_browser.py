"""The page as a person sees it, in a real browser."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from shipper.fleet.page import Glances
from shipper.membership.door import Door
from shipper.membership.http import serve
from shipper.membership.page import Page
from shipper.sdk.aio import open_asyncio
from shipper.status.http import serve_status
from tests.fleet.test_fleet_page import Store
from tests.membership.test_membership_http import LOOPBACK, Asked
from tests.raw_http import http, raw_server, saying
from tests.status.browser import Browser, chromium
from tests.status.documents import EDGE, PRINCIPAL, SERVED, later

CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number);
    const part = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return a === 0 ? null : 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (one) => light(getComputedStyle(one).backgroundColor) ?? ground(one.parentElement);
  const low = [];
  for (const one of document.querySelectorAll('main *')) {
    const own = [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || one.closest('svg, [aria-label]')) continue;
    const [a, b] = [light(getComputedStyle(one).color), ground(one)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${one.className} ${one.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return low;
})()
"""
"""The texts that differ too little from their ground (WCAG AA)."""

MANY = 45
"""Edges or members, of which some are folded."""


class Served:
    """What a status server says, which can be replaced, and where."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.status = status
        self.address = ""


@contextmanager
def running(serve_all: Callable[[Callable[[str], None]], Awaitable[None]]) -> Iterator[str]:
    """Runs servers in a thread of their own; yields the address that they say when they are ready."""
    began: queue.Queue[tuple[trio.lowlevel.TrioToken, trio.CancelScope, str]] = queue.Queue()

    async def run() -> None:
        with trio.CancelScope() as scope:
            token = trio.lowlevel.current_trio_token()
            await serve_all(lambda address: began.put((token, scope, address)))

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    token, scope, address = began.get(timeout=60)
    try:
        yield address
    finally:
        trio.from_thread.run_sync(scope.cancel, trio_token=token)
        thread.join()


@contextmanager
def serving(status: Mapping[str, Any], address: str = "127.0.0.1:0") -> Iterator[Served]:
    """A status server."""
    served = Served(status)

    async def serve_all(ready: Callable[[str], None]) -> None:
        async with open_asyncio() as aio, serve_status(aio, address, lambda: served.status) as bound:
            assert bound is not None
            ready(bound)
            await trio.sleep_forever()

    with running(serve_all) as served.address:
        yield served


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def principal(edges: int) -> dict[str, Any]:
    """A shipper to which many relay."""
    found = [{**EDGE, "name": f"edge-{number:03}.example.org"} for number in range(edges)]
    for at in range(1, edges, 40):
        found[at] |= {"connected_seconds": None, "waiting_events": 812}
    return {**SERVED, "edges": found, "principals": [PRINCIPAL]}


def test_the_page_shows_the_shipper_and_changes_without_a_reload(browser):
    with serving(SERVED) as served, browser.tab() as tab:
        tab.open(f"http://{served.address}/")
        before = tab.text()
        tab.run("window.mark = 'still the same page'")
        served.status = later(message="output main: 503 from 127.0.0.1:9200", dead_letters={"events": 0, "bytes": 0})
        tab.until(lambda: "503 from" in tab.text("#head"))
        tab.until(lambda: "/s" in tab.text("#input-access"))
        after, mark, title = tab.text(), tab.run("window.mark"), tab.run("document.title")
        asked, complaints = set(tab.requests()), tab.complaints()

    for words in (
        "DEGRADED",
        "117.2KiB not read of 3 files",
        "401 × 8",
        "events held unauthorized",
        "drained: waits for 812 events",
        "needs es-3f9c0a7be2d1",
        "mapper_parsing_exception",
        "shipper order rebind --from es-3f9c0a7be2d1 --to es-81d04c5f6a77 --state /var/lib/shipper",
        "may go",
    ):
        assert words in before
    assert "503 × 5" in after
    assert "Dead letters" not in after
    assert mark == "still the same page"
    assert title.startswith("DEGRADED")
    assert asked == {f"http://{served.address}/{path}" for path in ("", "page.css", "page.js", "page.svg")}
    assert complaints == []


def test_what_a_person_has_selected_or_folded_stays_while_figures_change(browser):
    with serving(SERVED) as served, browser.tab() as tab:
        tab.open(f"http://{served.address}/")
        tab.run("getSelection().selectAllChildren(document.querySelector('.waits code'))")
        tab.run("document.querySelector('#letters details').open = false")
        selected = tab.run("getSelection().toString()")
        served.status = later()
        tab.until(lambda: "waits for 772 events" in tab.text("#revisions"))

        assert selected.startswith("shipper order rebind")
        assert tab.run("getSelection().toString()") == selected
        assert tab.run("document.querySelector('#letters details').open") is False


def test_a_click_on_a_command_copies_it(browser):
    with serving(SERVED) as served, browser.tab() as tab:
        tab.permit("clipboardReadWrite", "clipboardSanitizedWrite")
        tab.open(f"http://{served.address}/")
        tab.run(  # it is marked for a moment only
            "new MutationObserver(() => window.marked ||= document.querySelector('.waits code.copied') !== null)"
            ".observe(document, {attributes: true, subtree: true})"
        )
        tab.until(lambda: tab.click(".waits code") or tab.run("window.marked === true"))

        assert tab.run("navigator.clipboard.readText()").startswith("shipper order rebind --from es-3f9c0a7be2d1")


def test_a_command_is_copied_without_a_mouse_too(browser):
    with serving(SERVED) as served, browser.tab() as tab:
        tab.permit("clipboardReadWrite", "clipboardSanitizedWrite")
        tab.open(f"http://{served.address}/")
        tab.run("document.querySelector('#letters code').focus()")
        for kind in ("keyDown", "keyUp"):
            tab.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)

        assert tab.until(lambda: tab.run("navigator.clipboard.readText()")) == (
            "shipper order dead-letters --state /var/lib/shipper"
        )


def test_names_and_answers_of_others_are_text_and_run_nothing(browser):
    evil = f"{'long' * 100}</p><script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
    units = [{**unit, "message": evil, "id": f"{unit['kind']}s.{evil}"} for unit in SERVED["units"]]
    with serving({**principal(1), "message": evil, "units": units}) as served, browser.tab() as tab:
        tab.open(f"http://{served.address}/")
        served.status = {**served.status, "message": f"{evil} again"}
        tab.until(lambda: "again" in tab.text("#head"))

        for width in (390, 1280):
            tab.resize(width, 900)
            assert tab.run("document.documentElement.scrollWidth") <= width
        assert evil in tab.text("#inputs")
        assert tab.run("window.evil") is None
        assert tab.run("document.images.length + document.scripts.length") == 1


def test_a_shipper_that_does_not_answer_any_more_is_said_to_be_old_news(browser):
    with browser.tab() as tab:
        with serving(SERVED) as served:
            tab.open(f"http://{served.address}/")
            hidden = tab.run("document.getElementById('silent').hidden")
        tab.until(lambda: "No answer for" in tab.text("#silent"))
        kept = tab.text()
        with serving(later(message="back"), served.address):
            tab.until(lambda: "back" in tab.text("#head"))
            again = tab.run("document.getElementById('silent').hidden")

    assert hidden
    assert "DEGRADED" in kept
    assert again


def test_without_scripts_the_page_shows_all_the_same(browser):
    with serving(SERVED) as served, browser.tab(scripts=False) as tab:
        tab.open(f"http://{served.address}/")
        shown = tab.text()
        served.status = later()
        tab.until(lambda: "waits for 772 events" in tab.text("#revisions"))

    assert "waits for 812 events" in shown


FEW_AND_MANY = pytest.mark.parametrize(("rows", "dark"), [(3, True), (MANY, False)])


def check_readable(tab, *widths):
    for width in widths:
        tab.resize(width, 900)
        assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run(CONTRAST) == []


@FEW_AND_MANY
def test_it_is_readable_on_a_phone_and_on_a_screen_in_the_light_and_in_the_dark(browser, tmp_path, rows, dark):
    with serving(principal(rows)) as served, browser.tab(dark=dark) as tab:
        tab.open(f"http://{served.address}/")
        check_readable(tab, 390, 720, 1280, 1000)
        tab.picture(tmp_path / "page.png")  # for people
        folded, all_of_them = tab.text("#edges"), tab.run("document.querySelectorAll('#edges tbody tr').length")

    assert all_of_them == rows
    assert "edge-001.example.org" in folded, "it is not connected"
    assert f"edge-{MANY - 1:03}.example.org" not in folded
    assert ("more edges" in folded) is (rows == MANY)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_to_do_about_a_code_is_readable_on_a_phone_and_on_a_screen(browser, dark):
    with serving(SERVED) as served, browser.tab(dark=dark) as tab:
        tab.open(f"http://{served.address}/codes")
        check_readable(tab, 390, 720, 1280)
        assert "Check hosts, and proxies between" in tab.text("#refused")
        assert tab.complaints() == []


@FEW_AND_MANY
def test_a_fleet_says_who_is_behind_and_why_on_a_phone_and_on_a_screen(browser, rows, dark):
    with paged(rows) as address, browser.tab(dark=dark) as tab:
        tab.open(f"http://{address}/")
        check_readable(tab, 390, 1280)
        shown, all_of_them = tab.text("#fleet"), tab.run("document.querySelectorAll('#fleet tbody tr').length")
        complaints = tab.complaints()

    assert all_of_them == rows
    assert "its events drain: 401 from es-1:9200, events held" in shown
    assert ("web-17" in shown) is ("web-42" in shown) is (rows == MANY)
    assert complaints == []


@contextmanager
def paged(members: int, door: Door = LOOPBACK) -> Iterator[str]:
    """A member of a fleet, with its page."""
    said = json.dumps(SERVED).encode()

    async def serve_all(ready: Callable[[str], None]) -> None:
        async with (
            raw_server(saying(http(said))) as sidecar,
            serve(
                "127.0.0.1:0",
                door,
                Asked(),
                lambda: sidecar.removeprefix("http://"),
                page=Page(Glances(Store(members)).glance).answer,
            ) as address,
        ):
            assert address is not None
            ready(address)
            await trio.sleep_forever()

    with running(serve_all) as address:
        yield address


def test_a_browser_gives_the_token_as_a_password_and_the_page_stays_live(browser):
    """Of a member of a fleet whose address has a token."""
    with paged(3, Door("127.0.0.1", tokens=(b"t0ken",))) as address, browser.tab() as tab:
        tab.ask("Page.navigate", url=f"http://kim:t0ken@{address}/")
        tab.until(lambda: "web-1" in tab.text("#fleet"))
        tab.until(lambda: tab.run("Number(document.documentElement.dataset.looks ?? 0)") >= 2)
        ground = tab.run("getComputedStyle(document.querySelector('.badge')).borderRadius")
        is_live, complaints = tab.run("document.getElementById('silent').hidden"), tab.complaints()

    assert (is_live, complaints) == (True, [])
    assert ground != "0px", "the style sheet is there"
