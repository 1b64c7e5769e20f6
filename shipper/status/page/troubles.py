"""What to do about each code: its section of docs/troubles.md, to which a symbolic link lies here.

Of Markdown, a section has paragraphs, `code`, links and commands between fences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from shipper.sdk.codes import Code
from shipper.status.page.markup import Child, Markup, tag, text

_SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.M | re.S)
_FENCED = re.compile(r"^```\w*\n(.*?)\n```$", re.M | re.S)
_INLINE = re.compile(r"(`[^`]+`|\[[^]]+\]\([^)]+\))")
_LINK = re.compile(r"\[([^]]+)\]\(#?([^)]+)\)")
_CODES = frozenset(map(str, Code))


@cache
def sections() -> Mapping[str, Markup]:
    """Returns what to do, by code; codes that only an answer has are not there."""
    found = dict(_SECTION.findall(Path(__file__).with_name("troubles.md").read_text()))
    return {code: text(_blocks(found[code])) for code in map(str, Code) if code in found}


def _blocks(body: str) -> list[Child]:
    """Paragraphs and commands take turns, since what a fence holds is a group of the pattern that splits."""
    blocks: list[Child] = []
    for at, part in enumerate(_FENCED.split(body)):
        if at % 2:
            blocks.append(tag("pre", tag("code", part)))
        else:
            blocks += (tag("p", words(one)) for one in part.split("\n\n") if one.strip())
    return blocks


def words(paragraph: str) -> list[Child]:
    """Returns a paragraph with its `code` and links as elements; a link that leads to no code is its words."""
    return [_inline(part) for part in _INLINE.split(paragraph.replace("\n", " "))]


def _inline(part: str) -> Child:
    if part.startswith("`"):
        return tag("code", part.strip("`"))
    link = _LINK.fullmatch(part)
    if link is None:
        return part
    return tag("a", words(link[1]), href=f"#{link[2]}") if link[2] in _CODES else words(link[1])
