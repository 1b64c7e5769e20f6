"""Reads the mapping that the content of a secret may be: lines of `name: text`, YAML or JSON.

    username: ann
    password: secret of 42

A person, or a template, writes such lines with whatever a password has in it, and expects that to be sent. YAML would
read something else there: ` #` begins a comment, quotes go, digits are a number. So a line is what stands in it: digits
are text. Where the line may be meant either way, it is refused by the name of its field, since a wrong guess is another
secret, which nothing reveals before the destination refuses it:

    password: secret #1           the end of the secret, or a comment
    password: "secret"            a part of the secret, or a quoted text
    password: secret              it goes on in the next line
      of 42

JSON (`{"password": "secret #1"}`, also as YAML has it), a block (`key: |`) and PEM in quotes mean what YAML reads.
"""

from __future__ import annotations

import re

from shipper.policy import document
from shipper.policy.document import Node, shown
from shipper.sdk.errors import PolicyError

_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_ENTRY = re.compile(r"""\s*(?:"[^"]*"|'[^']*'|[^:]*?)\s*:(?:\s+(.*))?""")
_MAPPING = re.compile(r"\s*(?:\{|[A-Za-z_][A-Za-z0-9_.-]*:\s)")
_COMMENT = re.compile(r"(?:^|\s)#")
_PEM = "-----BEGIN"
_REMEDY = 'write the secret as JSON, such as {"username": "…", "password": "…"}'


def fields_of(text: str) -> dict[str, object] | None:
    """Returns the fields of a mapping, None for a text that is none; raises ValueError for one that may be meant
    otherwise, and for a broken one. Errors name the field, and quote nothing of it."""
    try:
        node = document.read(text)
    except PolicyError as error:
        if _MAPPING.match(text) is None:
            return None
        line = error.problems[0].line
        raise ValueError(f"it looks like a mapping, and cannot be read as one from line {line} on; {_REMEDY}") from None
    if not isinstance(node.value, dict):
        return None
    lines = [] if text.lstrip().startswith("{") else _LINE_END.split(text)
    return {name: _value(name, child, _rest(node, name, lines)) for name, child in node.value.items()}


def _rest(mapping: Node, name: str, lines: list[str]) -> str:
    """Returns what stands behind the name in its line; empty without lines, or if the value begins below."""
    mark = mapping.keys[name]
    entry = _ENTRY.fullmatch(lines[mark.line - 1][mark.column - 1 :]) if mark.line <= len(lines) else None
    return (entry[1] or "").strip() if entry is not None else ""


def _value(name: str, node: Node, rest: str) -> object:
    value = document.plain(node)
    if not rest or rest[0] in "|>":
        return _text(name, value)
    if rest[0] in "\"'":
        if isinstance(value, str) and _PEM in value:
            return value
        raise ValueError(f"the value of `{shown(name)}` is in quotes, which may belong to it: omit them, or {_REMEDY}")
    if _COMMENT.search(rest):
        raise ValueError(
            f"the value of `{shown(name)}` has a # that may begin a comment: omit the comment, or {_REMEDY}"
        )
    if isinstance(value, str) and value != rest:
        raise ValueError(f"the value of `{shown(name)}` goes on in the next line: write it in one, or {_REMEDY}")
    return _text(name, value) if isinstance(value, dict | list) else rest


def _text(name: str, value: object) -> object:
    """Returns a text as it is; raises ValueError for what is none."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"the value of `{shown(name)}` must be a text that is not empty, and in JSON in quotes")
    return value
