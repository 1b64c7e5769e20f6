"""Reads strict YAML: a small tree of plain values, each with its place in the text.

A policy decides where log lines go, and with which credential, so nothing in it may be ambiguous. The accepted part of
YAML is mappings with string keys, lists and scalars. Anchors, aliases, tags, merge keys, duplicate keys and several
documents are refused. Plain scalars are resolved by the core schema of YAML 1.2, so `no`, `on`, `12:30` and dates are
strings; numbers are finite and fit into 64 bits.

libyaml scans and parses (its Python twin needs 30 times as long), and its events become nodes here: so a text that is
nested too deeply is refused while it is parsed, before a composer can recurse into it. Syntax and depth end the
reading; all other problems are collected. No problem quotes a value or a line of the text, which may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias

import yaml

from shipper.sdk.codes import Code
from shipper.sdk.errors import PolicyError, Problem

LARGEST = 1 << 20
DEEPEST = 32
_TOO_DEEP = f"the nesting is deeper than {DEEPEST}; flatten it"
MOST_PROBLEMS = 50


class Mark(NamedTuple):
    """A place in a text; lines and columns count from 1, columns in characters."""

    line: int
    column: int
    file: str | None = None


Value: TypeAlias = "bool | int | float | str | list[Node] | dict[str, Node] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place; `keys` holds the places of a mapping's keys."""

    value: Value
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)


def read(text: str | bytes, *, file: str | None = None) -> Node:
    """Returns the one document of `text`; an empty text is null. Raises PolicyError with all problems."""
    return _Reading(file).read(text)


def plain(node: Node) -> Any:
    """Returns the value without places: nested lists and dictionaries of scalars."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def write(value: object) -> str:
    """Returns YAML that reads back equal, for a Node or nested plain values."""
    nested = plain(value) if isinstance(value, Node) else value
    return str(yaml.dump(nested, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=-1))


def below(path: str, key: str | int) -> str:
    """Returns the path of a child: `outputs.main`, `hosts[0]`. A key that does not look like a name is not shown."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{shown(key)}" if path else shown(key)


def children_of(node: Node) -> Iterator[tuple[str | int, Node]]:
    """Yields the entries of a mapping or the items of a list, by key or position."""
    if isinstance(node.value, dict):
        yield from node.value.items()
    elif isinstance(node.value, list):
        yield from enumerate(node.value)


def followed(node: Node, path: str, keys: Iterable[str | int]) -> tuple[Node, str]:
    """Returns the node and path to which keys and positions lead, as far as they are in the text."""
    for key in keys:
        child = dict(children_of(node)).get(key)
        if child is None:
            break
        node, path = child, below(path, key)
    return node, path


_NAME = re.compile(r"[a-z][a-z0-9_.@-]{0,62}|[A-Za-z_][A-Za-z_.@-]{0,62}")


def shown(key: str) -> str:
    """Returns a key for a message: anything but a name (a pasted token, perhaps) becomes an ellipsis."""
    return key if _NAME.fullmatch(key) else "…"


def suggest(word: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean "hosts"?)` where one of the known words is close and can be shown, otherwise nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word[:64], filter(str.isprintable, known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


# -- scalars -----------------------------------------------------------------------------------------------------------

_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER = 40


def resolve(text: str) -> bool | int | float | str | None:
    """Returns a plain scalar by the core schema of YAML 1.2; raises ValueError for a number that is not finite or too
    large."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return _float(text)
    return text


def _integer(text: str) -> int:
    number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= _LONGEST_NUMBER else 2**64
    if not -(2**63) <= number < 2**63:
        raise ValueError("this number does not fit into 64 bits; quote it if it is a text")
    return number


def _float(text: str) -> float:
    number = math.inf if _NOT_FINITE.fullmatch(text) else float(text)
    if not math.isfinite(number):
        raise ValueError("a number is finite; quote it if it is a text")
    return number


class Quoted(str):
    """A text that `write` puts into quotes in any case."""

    __slots__ = ()


class _Dumper(yaml.CSafeDumper):
    """Quotes texts that this reader would not read back as the same string."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        plain = _stays(text) and not isinstance(text, Quoted)
        return self.represent_scalar("tag:yaml.org,2002:str", str(text), style=None if plain else '"')


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_representer(Quoted, _Dumper.text)


def _stays(text: str) -> bool:
    try:
        return text.isprintable() and resolve(text) == text
    except ValueError:
        return False


# -- reading -----------------------------------------------------------------------------------------------------------

_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REMEDIES = {
    "found a tab character that violates indentation": "indent with spaces, not with tabs",
    "found character that cannot start any token": "a tab, or one of @ ` % at the start of a value; indent with spaces "
    "and quote such a value",
    "mapping values are not allowed in this context": "check the indentation, and quote a text that contains `: `",
    "could not find expected ':'": "a key is followed by a colon and a space",
    "did not find expected key": "check the indentation of this line, and quote a text with special characters",
    "did not find expected '-' indicator": "check the indentation of this line",
    "did not find expected ',' or '}'": "close the mapping with }, put commas between its entries, and quote "
    "a value with braces, such as a variable",
    "did not find expected ',' or ']'": "close the list with ], and put commas between its items",
    "found unexpected end of stream": "a quote is not closed",
    "found unknown escape character": "write \\\\ for a backslash in double quotes, or use single quotes",
}


class _Reading:
    """One reading of one text."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def read(self, text: str | bytes) -> Node:
        self.events = yaml.CSafeLoader(self.checked(text))
        try:
            root = self.document()
        except yaml.MarkedYAMLError as error:
            self.stop("", self.inside(self.mark(error.problem_mark or error.context_mark)), _syntax(error))
        except yaml.reader.ReaderError as error:
            at = _place(self.raw, error.position)
            self.stop("", Mark(*at, self.file), "a control character; remove it, or escape it in double quotes")
        if self.problems:
            raise PolicyError(self.problems)
        return root

    def checked(self, text: str | bytes) -> str:
        """Returns the text, if it is UTF-8 and small enough to be parsed."""
        self.raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        if len(self.raw) > LARGEST:
            self.stop("", Mark(1, 1, self.file), "the text is larger than 1MiB; make it shorter, or split it")
        try:
            return self.raw.decode()
        except UnicodeDecodeError as error:
            at = _place(self.raw, error.start)
            self.stop("", Mark(*at, self.file), "the text is not UTF-8; save it in that encoding")

    def document(self) -> Node:
        """Returns the root; raises the errors of libyaml."""
        self.next()
        first = self.next()
        if not isinstance(first, yaml.DocumentStartEvent):
            return Node(None, Mark(1, 1, self.file))
        root = self.node(self.next(), "", 0)
        self.next()
        after = self.next()
        if not isinstance(after, yaml.StreamEndEvent):
            self.stop("", self.mark(after.start_mark), "there is a second document; keep one, without a `---` after it")
        return root

    def node(self, event: Any, path: str, depth: int) -> Node:
        at = self.mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self.problem(path, at, "an alias is refused; write the value out")
            return Node(None, at)
        if event.anchor is not None:
            self.problem(path, at, "an anchor is refused; remove it, and write the value out where it is wanted again")
        if event.tag is not None:
            self.problem(path, at, "a tag is refused; remove it (quote a value to make it a string)")
        if isinstance(event, yaml.ScalarEvent):
            return Node(self.scalar(event, path, at), at)
        if depth >= DEEPEST:
            self.stop(path, at, _TOO_DEEP)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path, at, depth + 1)
        return self.mapping(path, at, depth + 1)

    def scalar(self, event: yaml.ScalarEvent, path: str, at: Mark) -> Value:
        if not event.implicit[0]:
            return str(event.value)
        try:
            return resolve(event.value)
        except ValueError as error:
            self.problem(path, at, str(error))
            return None

    def sequence(self, path: str, at: Mark, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            items.append(self.node(event, below(path, len(items)), depth))
        return Node(items, at)

    def mapping(self, path: str, at: Mark, depth: int) -> Node:
        children: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            mark = self.mark(event.start_mark)
            key = self.key(event, path, mark, depth)
            child = self.node(self.next(), path if key is None else below(path, key), depth)
            if key in keys:
                first = keys[key].line
                self.problem(below(path, key), mark, f"this key is written twice (first in line {first}); keep one")
            elif key is not None:
                children[key], keys[key] = child, mark
        return Node(children, at, keys)

    def key(self, event: Any, path: str, at: Mark, depth: int) -> str | None:
        """Returns the key, or None after adding its problem."""
        key = self.node(event, path, depth).value
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and key == "<<":
            self.problem(path, at, "a merge key (<<) is refused; write the entries out")
            return None
        if not isinstance(key, str):
            self.problem(path, at, "a key is a string; quote it if it is meant")
            return None
        return key

    def next(self) -> Any:
        return self.events.get_event()

    def mark(self, mark: Any) -> Mark:
        return Mark(mark.line + 1, mark.column + 1, self.file) if mark else Mark(1, 1, self.file)

    def inside(self, at: Mark) -> Mark:
        """Returns the mark, or the text's end: libyaml sees one more line where a text ends without a line end."""
        lines = _LINE_END.split(self.raw.decode())
        return at if at.line <= len(lines) else Mark(len(lines), len(lines[-1]) + 1, self.file)

    def problem(self, path: str, at: Mark, message: str) -> None:
        self.problems.append(Problem(path, at.line, at.column, message, at.file, Code.SYNTAX))
        if len(self.problems) >= MOST_PROBLEMS:
            raise PolicyError(self.problems)

    def stop(self, path: str, at: Mark, message: str) -> NoReturn:
        """Adds a problem, and ends the reading."""
        self.problem(path, at, message)
        raise PolicyError(self.problems)


def _syntax(error: yaml.MarkedYAMLError) -> str:
    remedy = _REMEDIES.get(error.problem or "")
    if error.problem == "exceeded maximum nesting depth":  # of libyaml, which reads ahead
        return _TOO_DEEP
    if error.problem == "did not find expected <document start>":
        return "the document ends before this line; check the indentation, and keep one document"
    # libyaml's own words are constants: they never quote the text.
    return f"not YAML: {remedy or error.problem}"


def _place(raw: bytes, offset: int) -> tuple[int, int]:
    """Returns the line and column of a byte of a text."""
    before = raw[:offset]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode(errors="replace")) + 1
