"""The whole page, its headers and its files."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from shipper import __version__
from shipper.sdk.codes import Code
from shipper.status.fleet import Fleet
from shipper.status.page import others, parts
from shipper.status.page.markup import Markup, row, section, table, tag
from shipper.status.page.troubles import sections, words
from shipper.status.view import View

PAGE = "/"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Of the page and its files."""
_TYPES = {"/page.css": "text/css", "/page.js": "text/javascript", "/page.svg": "image/svg+xml"}
CODES = "/codes"
FILES = (*_TYPES, CODES)
"""The paths of the files, which say nothing of any shipper."""
PATHS = (PAGE, *FILES)
RELOAD_SECONDS = 5
"""Without scripts."""


class Content(NamedTuple):
    """What is sent: its type and its bytes, both in UTF-8."""

    type: str
    body: bytes


@cache
def file(path: str) -> Content:
    """Returns one of FILES."""
    if path == CODES:
        return _codes()
    return Content(f"{_TYPES[path]}; charset=utf-8", Path(__file__).with_name(path[1:]).read_bytes())


def page(view: View, fleet: Fleet | None = None, *, problem: str = "", name: str | None = None) -> Content:
    """Returns the page. `problem` is why the fleet cannot be asked; `name` is that of this host."""
    host = socket.gethostname() if name is None else name
    body = tag(
        "main",
        parts.head(view, host),
        parts.troubles(view),
        parts.tiles(view),
        parts.inputs(view),
        parts.outputs(view),
        parts.revisions(view),
        parts.credentials(view),
        parts.letters(view),
        others.relays(view),
        others.fleet(fleet, problem),
        id="main",
    )
    return _whole(f"{view.state} · {host} · shipper", body)


def unanswered(reason: str, name: str | None = None) -> Content:
    """Returns the page while nothing is known of the shipper."""
    host = socket.gethostname() if name is None else name
    return page(View("UNKNOWN", reason, ""), name=host)


def _codes() -> Content:
    """Returns the list of codes, to which the page links, with what to do about each."""
    todo = sections()
    rows = [
        row(
            [
                ("code", tag("code", code)),
                ("meaning", words(code.meaning)),
                ("what to do", todo.get(code)),
            ],
            id=str(code),
        )
        for code in Code
    ]
    body = tag(
        "main",
        tag("h1", "codes of shipper"),
        section("codes", "Codes", table(("code", "meaning", "what to do"), rows)),
    )
    return _whole("codes · shipper", body, moves=False)


def _whole(title: str, body: Markup, *, moves: bool = True) -> Content:
    """`moves`: what it shows changes, so it is loaded again and again."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="page.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="page.css"),
        tag("noscript", tag("meta", http_equiv="refresh", content=str(RELOAD_SECONDS))) if moves else None,
        tag("script", src="page.js", defer=True) if moves else None,
    )
    quiet = tag("p", "This page does not answer.", id="silent", role="status", hidden=True)
    links = [tag("a", path, href=path[1:]) for path in ("/status", "/metrics", "/livez", "/readyz", CODES)]
    foot = tag("footer", f"shipper {__version__} · ", tag("nav", links))
    html = tag("html", head, tag("body", quiet, body, foot), lang="en")
    return Content("text/html; charset=utf-8", f"<!doctype html>\n{html}\n".encode(errors="replace"))
