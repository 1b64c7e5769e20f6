"""What a docstring says of a value, beside the value's type: one that was moved or left behind says something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HAPPENS = ("Returns when", "Returns once", "Returns at once", "Returns after", "Returns within", "Returns as soon")
"""How the docstring of a function without a value may begin with this word: it says when the function ends."""


def described(tree: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """The name, the type and the docstring of each function, and of each attribute of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.name, node.returns, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            for field, said in pairwise(node.body):
                match field, said:
                    case ast.AnnAssign(ast.Name(name), type), ast.Expr(ast.Constant(str(words))):
                        yield name, type, words


def falsehoods(source: str) -> list[str]:
    return [
        f"line {type.lineno}: {name} is {ast.unparse(type)}, and is said to be: {said[:60]}"
        for name, type, said in described(ast.parse(source))
        if said.startswith(("Whether ", "Returns ")) and _is_false(ast.unparse(type), said)
    ]


def _is_false(type: str, said: str) -> bool:
    if said.startswith("Whether "):
        return "bool" not in type and "TypeGuard" not in type
    return type == "None" and not said.startswith(HAPPENS)


@pytest.mark.parametrize("room", ["shipper", "plugins"])
def test_a_docstring_says_what_the_type_says(room: str) -> None:
    found = {path: falsehoods(path.read_text()) for path in (ROOT / room).rglob("*.py")}

    assert {str(path.relative_to(ROOT)): what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("source", "are_found"),
    [
        ('def lowest() -> int:\n    """Whether all is settled."""', 1),
        ('def close() -> None:\n    """Returns what is left."""', 1),
        ('class Job:\n    size: int\n    """Whether it is large."""', 1),
        ('async def settled() -> None:\n    """Returns when all is settled."""', 0),
        ('class Job:\n    alone: bool\n    """Whether it is alone."""', 0),
    ],
)
def test_what_is_false_is_found(source: str, are_found: int) -> None:
    assert len(falsehoods(source)) == are_found
