"""The program's text: finds a fragment by the definition that it is in and by its words, wherever that stands.

A definition is named as Python names it, without its module: `Session._hand_out`, `PARTS`. It is a function, a class,
or a name that a module or a class assigns. A fragment matches by its tokens: indentation, line breaks, comments and the
comma before a closing bracket do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

TOPS = ("shipper", "plugins/shipper_plugins")
_BLANK = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Stale(Exception):
    """The program has no such definition or fragment any more, or more than one."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`new` for the fragment `old` of a definition; `module` says which one, where several have a definition so named.

    The lines of both fragments are indented relative to each other.
    """

    function: str
    old: str
    new: str
    module: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text; `start` and `end` are offsets."""

    word: str
    start: int
    end: int


class Program:
    """Every module below a root, and where each definition is."""

    def __init__(self, root: Path) -> None:
        paths = sorted(path for top in TOPS for path in (root / top).rglob("*.py"))
        self.texts = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
        self._places: dict[str, list[tuple[str, Lines]]] = defaultdict(list)
        for module, text in self.texts.items():
            for name, lines in definitions(ast.parse(text)):
                self._places[name].append((module, lines))

    def changed(self, edits: Sequence[Edit]) -> dict[str, str]:
        """The texts of the modules that some edits change, by module. Raises Stale if one does not apply."""
        texts: dict[str, str] = {}
        for edit in edits:
            module, lines = self._place(edit)
            if module in texts:
                lines = next(lines for name, lines in definitions(ast.parse(texts[module])) if name == edit.function)
            texts[module] = replaced(texts.get(module, self.texts[module]), lines, edit)
        return texts

    def _place(self, edit: Edit) -> tuple[str, Lines]:
        found = [place for place in self._places.get(edit.function, ()) if edit.module in ("", place[0])]
        if len(found) != 1:
            places = f"in {', '.join(module for module, _ in found)}" if found else "nowhere"
            raise Stale(f"{edit.function} is defined {places}")
        return found[0]


Lines = tuple[int, int]
"""The number of the first and of the last line, from 1."""


def definitions(node: ast.AST, above: str = "") -> Iterator[tuple[str, Lines]]:
    """Each definition below a node: its qualified name, and where it is."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            continue
        lines = child.lineno, child.end_lineno or child.lineno
        if isinstance(child, (*_FUNCTION, ast.ClassDef)):
            yield f"{above}{child.name}", lines
            yield from definitions(child, f"{above}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            if not isinstance(node, _FUNCTION):
                yield from ((f"{above}{target.id}", lines) for target in targets if isinstance(target, ast.Name))
        else:
            yield from definitions(child, above)


def replaced(text: str, lines: Lines, edit: Edit) -> str:
    """The text of a module after an edit of the definition in some of its lines.

    Raises Stale unless the fragment is there exactly once, or if the result is no Python or the same program.
    """
    old = [token.word for token in fragment(edit.old)]
    tokens = _tokens(text, lines)
    found = [at for at in range(len(tokens)) if [one.word for one in tokens[at : at + len(old)]] == old]
    if not old or len(found) != 1:
        raise Stale(f"{edit.function} has the fragment {len(found)} times: {' '.join(edit.old.split())}")
    if [token.word for token in fragment(edit.new)] == old:
        raise Stale(f"{edit.function}: the edit changes nothing")
    first, last = tokens[found[0]], tokens[found[0] + len(old) - 1]
    changed = text[: first.start] + _indented(edit, _indent(text, first.start)) + text[last.end :]
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise Stale(f"{edit.function}: the result is no Python: {error.msg}") from None
    return changed


def fragment(text: str) -> list[Token]:
    """The words of a fragment, which need not be whole statements. Raises Stale if it is none."""
    try:
        words = _words(f"({text}\n)")[1:-1]  # between brackets, neither line breaks nor indentation have a meaning
        brackets = [token.word for token in words if token.word in "()[]{}"]
        is_balanced = all(brackets.count(opening) == brackets.count(closing) for opening, closing in ("()", "[]", "{}"))
    except (tokenize.TokenError, SyntaxError):
        is_balanced = False
    if not is_balanced:
        raise Stale(f"no fragment of Python: {' '.join(text.split())}")
    return _without_last_commas(words)


def _tokens(text: str, lines: Lines) -> list[Token]:
    """Those of some whole lines, with their offsets in the whole text."""
    every = list(io.StringIO(text))
    before = sum(map(len, every[: lines[0] - 1]))
    words = _words("".join(every[lines[0] - 1 : lines[1]]))
    return _without_last_commas([Token(one.word, before + one.start, before + one.end) for one in words])


def _words(text: str) -> list[Token]:
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    return [
        Token(one.string, starts[one.start[0] - 1] + one.start[1], starts[one.end[0] - 1] + one.end[1])
        for one in tokenize.generate_tokens(io.StringIO(text).readline)
        if one.type not in _BLANK
    ]


def _without_last_commas(words: Sequence[Token]) -> list[Token]:
    kept = [word for word, following in pairwise(words) if word.word != "," or following.word not in ")]}"]
    return [*kept, *words[-1:]]


def _indent(text: str, at: int = 0) -> int:
    """Of the line in which that stands."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return len(line) - len(line.lstrip(" "))


def _indented(edit: Edit, column: int) -> str:
    """`new` as deep as its place: `old`, whose first line is there in `column`, says how deep it was."""
    first, *others = edit.new.strip("\n").split("\n")
    shift = column - _indent(edit.old.lstrip("\n"))
    return "\n".join([first.lstrip(), *(line and " " * (shift + _indent(line)) + line.lstrip() for line in others)])
