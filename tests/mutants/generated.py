"""Faults made by rule: small changes of the syntax tree, each to be killed by the tests that mirror its module.

    negate      a condition
    never       an `if` whose condition does not hold, whatever it says; `always` is the other way round
    without     one of several conditions that `and` or `or` joins, or a `not`
    compare     < for <=, == for !=, is for is not, in for not in, and the other way round
    boolean     `and` for `or`, and the other way round
    extreme     `min` for `max`, and the other way round
    constant    one more, one less; True for False, and the other way round: of `shield=True`, too
    drop        a call, an awaited call, a step that is yielded, an assignment to an attribute or an item, a `del`, a
                `raise`, a `continue`, a `break`
    return      None; of a condition, True and False
    early       a function that returns at once
    finally     without what it does

Of the tools for this, mutmut (3) puts a wrapper around each function and switches mutants in forked children: here most
functions are asynchronous, and many tests start processes and threads, in which a switch of the parent has no say.
Cosmic Ray changes the checkout itself, has one command for all modules, and removes no statement, which in this program
(a sync, a lock, a shield) is the fault that matters. What remains of such a tool, the rules, is this module; copies,
checks, kept results and tables are those of the faults made by hand.

What is said to people (messages of errors and of the log, docstrings) is left alone, as are annotations.
"""

from __future__ import annotations

import ast
import hashlib
import io
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from tests.mutants.source import Program, Stale

_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATIONS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
F = TypeVar("F")
_HANGS = "--limit=20"
"""A test that takes longer has noticed."""
_ALSO = {"shipper/revisions/machine.py": ("tests/revisions/test_rollout.py",)}
"""Tests that judge a module together with what performs its decisions."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One fault: another text between two offsets of a module."""

    module: str
    line: int
    column: int
    number: int
    """Of those with the same place and rule."""
    kind: str
    old: str
    new: str
    start: int
    check: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}:{self.column} {self.kind}{f' {self.number}' if self.number > 1 else ''}"

    @property
    def fault(self) -> str:
        """Both texts, in one line each."""
        return f"{_short(self.old)}  →  {_short(self.new)}"

    @property
    def checks(self) -> tuple[str, ...]:
        return (self.check,)

    def changed(self, program: Program) -> dict[str, str]:
        """The module with this fault. Raises Stale."""
        text, end = program.texts[self.module], self.start + len(self.old)
        if text[self.start : end] != self.old:
            raise Stale(f"{self.module} has another text in line {self.line}")
        return {self.module: text[: self.start] + self.new + text[end:]}

    def digest(self) -> str:
        """Another one for each change of the fault."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def generated(program: Program, root: Path, names: Sequence[str], *, seed: int, count: int | None) -> list[Generated]:
    """So many faults, drawn with a seed, of the modules that are named or are below what is named; None: all."""
    chosen = [module for module in program.texts if _is_meant(module, names)]
    everything = [one for module in chosen for one in faults(module, program.texts[module], mirrored(module, root))]
    return drawn(everything, seed, count)


def drawn(everything: Sequence[F], seed: int, count: int | None) -> list[F]:
    """So many, in their order; a larger draw has all of a smaller one. None: all."""
    places = [*range(len(everything))]
    random.Random(seed).shuffle(places)
    return [everything[at] for at in sorted(places[:count])]


def _is_meant(module: str, names: Sequence[str]) -> bool:
    wanted = [name.rstrip("/") for name in names]
    return not names or any(module == name or module.startswith(f"{name}/") for name in wanted)


def mirrored(module: str, root: Path) -> str:
    """The tests whose names mirror a module, or its folder, as a check; without any, those of the whole room."""
    path = PurePosixPath(module)
    stem, folder, tests = path.stem, path.parent.name, root / "tests"
    above = ["plugins"] if path.parts[0] == "plugins" else [*path.parts[1:-1]]
    rooms = [tests.joinpath(*above[:many]) for many in range(len(above), 0, -1)]
    room = next((one for one in rooms if one.is_dir()), tests)
    written = sorted(room.glob("test_*.py"))
    names = (f"{folder}_{stem}", f"{folder.removesuffix('s')}_{stem}", stem, f"{room.name}_{stem}")
    for name in (*names, f"{room.name}_{folder}"):
        if found := [test for test in written if re.fullmatch(rf"test_{re.escape(name)}(_\w+)?\.py", test.name)]:
            return _check(root, *found, *(root / also for also in _ALSO.get(module, ())))
    wider = (room, tests / f"test_{folder}.py", tests / "test_run.py")
    return _check(root, next(one for one in wider if one != tests and one.exists()))


def _check(root: Path, *tests: Path) -> str:
    return " ".join([_HANGS, *(test.relative_to(root).as_posix() for test in tests)])


def faults(module: str, text: str, check: str) -> Iterator[Generated]:
    """Every fault that the rules make of a module, from its beginning to its end."""
    seen: Counter[tuple[int, str]] = Counter()
    lines = _Lines(text)
    for kind, first, last, new in sorted(_changes(ast.parse(text)), key=lambda one: (one[1].lineno, one[1].col_offset)):
        start, end = lines.start(first), lines.end(last)
        seen[start, kind] += 1
        column = start - lines.starts[first.lineno - 1] + 1
        yield Generated(module, first.lineno, column, seen[start, kind], kind, text[start:end], new, start, check)


_Node = ast.stmt | ast.expr
_Change = tuple[str, _Node, _Node, str]
"""The rule, the first and the last node that are replaced, and the new text."""


def _changes(node: ast.AST) -> Iterator[_Change]:
    for child in ast.iter_child_nodes(node):
        if not _is_said(child) and child is not getattr(node, "annotation", None) and not _is_returned(node, child):
            yield from _of(child)
            yield from _changes(child)
        elif isinstance(child, ast.Raise):
            yield "drop", child, child, "pass"


def _is_said(node: ast.AST) -> bool:
    """Whether it is for people, or checked by the type checker only."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_log" | "log")))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Import() | ast.ImportFrom():
            return True
    return False


def _is_returned(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, _FUNCTION) and (child is node.returns or child in node.decorator_list)


def _of(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.If(test=test):
            yield from _negated(test)
            yield "never", test, test, "False"
            yield "always", test, test, "True"
        case ast.While(test=test) | ast.IfExp(test=test):
            yield from _negated(test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from _negated(test)
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                others = [*ops[:at], _OTHER[type(op)](), *ops[at + 1 :]]
                yield "compare", node, node, ast.unparse(ast.Compare(node.left, others, node.comparators))
        case ast.BoolOp(op=op, values=values):
            other = ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            yield "boolean", node, node, f"({ast.unparse(other)})"
            for at in range(len(values)):
                fewer = [*values[:at], *values[at + 1 :]]
                less = ast.unparse(fewer[0] if len(fewer) == 1 else ast.BoolOp(op, fewer))
                yield "without", node, node, f"({less})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "without", node, node, f"({ast.unparse(operand)})"
        case ast.Name(id="min" | "max" as name):
            yield "extreme", node, node, "max" if name == "min" else "min"
        case ast.Constant(value=bool() as value):
            yield "constant", node, node, str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, node, str(value + 1)
            yield "constant", node, node, str(value - 1)
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield "drop", node, node, "yield from ()"  # what had no step any more would be no generator
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Continue() | ast.Break():
            yield "drop", node, node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield "drop", node, node, "pass"
        case ast.AugAssign():
            yield "drop", node, node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", node, node, "return None"
            if isinstance(value, ast.Compare | ast.BoolOp) or _is_negation(value):
                yield "return", node, node, "return True"
                yield "return", node, node, "return False"
        case ast.Try(finalbody=[first, *others]) if others:
            yield "finally", first, others[-1], "pass"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _early(node)


def _negated(test: ast.expr) -> Iterator[_Change]:
    if not isinstance(test, ast.Constant) and not _is_negated_otherwise(test):
        yield "negate", test, test, f"(not ({ast.unparse(test)}))"


def _is_negation(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_negated_otherwise(test: ast.expr) -> bool:
    """By a comparison that is turned round, or a `not` that is left out."""
    is_turned = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _NEGATIONS)
    return is_turned or _is_negation(test)


def _early(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    if len(body) > 1 and not is_generator:
        yield "early", body[0], body[-1], "return None"


class _Lines:
    """Offsets in a text by the lines and columns of its nodes, which count bytes."""

    def __init__(self, text: str) -> None:
        self._lines = list(io.StringIO(text))
        self.starts = [0]
        for line in self._lines:
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: _Node) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: _Node) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:69]}…"
