"""Elements of a page. All text is escaped, whoever wrote it: names of files and answers of destinations are foreign."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeAlias

from shipper.process.log import printable

MOST = 1000
"""Rows of a table or list."""
_SHORT = 12
"""Characters of a text that is not broken into lines."""
_VOID = frozenset({"link", "meta"})


class Markup(str):
    """Text that is an element already, or several."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
"""Text, an element, nothing, or several of them."""


def text(child: Child) -> Markup:
    """Returns children as markup; text in them cannot become an element."""
    if child is None:
        return Markup("")
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return Markup(escape(printable(child)))
    return Markup("".join(text(one) for one in child))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Returns an element. An attribute that is None or False is left out; `class_` is `class`, `data_x` is `data-x`."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{text(children)}</{name}>")


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(printable(value if isinstance(value, str) else f"{value:g}"))}"'


def table(headings: Iterable[str], rows: Iterable[Child], **attributes: str) -> Markup:
    """Returns a table; each row is made by `row`."""
    head = tag("tr", [tag("th", heading, scope="col") for heading in headings])
    return tag("table", tag("thead", head), tag("tbody", rows), **attributes)


def row(cells: Iterable[tuple[str, Child]], **attributes: str | None) -> Markup:
    """Returns a row of cells, each with the heading that a narrow screen shows beside it; the first one names the
    row."""
    (_, first), *others = cells
    found = [_cell(heading, content) for heading, content in others]
    return tag("tr", tag("th", first, scope="row"), found, **attributes)


def _cell(heading: str, content: Child) -> Markup:
    found = text(content)
    is_short = isinstance(content, str) and not isinstance(content, Markup) and len(content) <= _SHORT
    short = "short" if is_short else None
    return tag("td", tag("div", found), data_label=heading, class_=short) if found else tag("td", class_="none")


def folded(rows: Sequence[Child], whole: Callable[[Sequence[Child]], Markup], first: int, what: str) -> Markup:
    """Returns the first rows, and all others up to MOST behind a fold; `whole` makes a table or list of rows."""
    shown, hidden = rows[:first], rows[first:MOST]
    left_out = len(rows) - len(shown) - len(hidden)
    more = f" ({left_out:,} more are not shown here)" if left_out else ""
    fold = tag("details", tag("summary", f"{len(hidden):,} more {what}{more}"), whole(hidden)) if hidden else None
    return tag("div", whole(shown) if shown else None, fold)


def badge(words: str, tone: str) -> Markup:
    """Returns a word in the colour of its tone."""
    return tag("span", words, class_=f"badge {tone}")


def quiet(words: str) -> Markup | None:
    """Returns words that are less important; None if there are none."""
    return tag("span", words, class_="quiet") if words else None


def section(id: str, title: str, *children: Child, note: str = "") -> Markup:
    """Returns a section with its heading; nothing without content."""
    content = text(children)
    return (
        tag("section", tag("h2", title, [" ", quiet(note)] if note else None), content, id=id)
        if content
        else Markup("")
    )


def bar(share: float, tone: str, words: str) -> Markup:
    """Returns a bar that is full by this share of it, from 0 to 1; `words` say it to those who do not see it."""
    return strip([(share, tone)], words)


def strip(shares: Iterable[tuple[float, str]], words: str) -> Markup:
    """Returns a bar of several parts, each with its share of the whole and its tone."""
    found, at = [], 0.0
    for share, tone in shares:
        found.append(tag("rect", x=f"{at * 100:.2f}%", width=f"{share * 100:.2f}%", height="100%", class_=tone))
        at += share
    return tag("svg", found, class_="bar", role="img", aria_label=words)
