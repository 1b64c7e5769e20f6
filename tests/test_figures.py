"""No figure is read before an `await` and written after it: what others added meanwhile would be lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for place in ("shipper", "plugins", "demo") for path in (ROOT / place).rglob("*.py"))


def lost_updates(tree: ast.AST) -> Iterator[int]:
    """Lines that read an attribute or an item, wait, and write it: `x.n += await …`, `x.n = x.n + await …`."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Attribute() | ast.Subscript(), value=value) if _waits(value):
                yield node.lineno
            case ast.Assign(targets=targets, value=value) if _waits(value):
                shared = [ast.unparse(to) for to in targets if isinstance(to, ast.Attribute | ast.Subscript)]
                if _read_before_waiting(value).intersection(shared):
                    yield node.lineno


def _waits(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Await) for node in ast.walk(value))


def _read_before_waiting(value: ast.expr) -> set[str]:
    """What the expression reads to the left of its first `await`."""
    first = min((node.lineno, node.col_offset) for node in ast.walk(value) if isinstance(node, ast.Await))
    reads = (node for node in ast.walk(value) if isinstance(node, ast.Attribute | ast.Subscript))
    return {ast.unparse(node) for node in reads if (node.lineno, node.col_offset) < first}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_figure_is_updated_in_one_step(path: Path) -> None:
    assert [f"{path}:{line}" for line in lost_updates(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self.n += await f()", True),
        ("self.n[x] += g(await f())", True),
        ("self.n = self.n + await f()", True),
        ("self.n = await f() + self.n", False),
        ("n += await f()", False),
        ("self.n = await f()", False),
        ("self.n += 1", False),
    ],
)
def test_the_pattern_is_found(line: str, found: bool) -> None:
    assert bool(list(lost_updates(ast.parse(f"async def f():\n    {line}")))) == found
