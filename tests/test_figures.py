"""No figure is read before an `await` and written after it: what others added meanwhile would be lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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


def test_a_figure_is_updated_in_one_step() -> None:
    assert [f"{path}:{line}" for path in MODULES for line in lost_updates(ast.parse(path.read_text()))] == []


def test_the_pattern_is_found() -> None:
    lines = ["self.n += await f()", "self.n[x] += g(await f())", "self.n = self.n + await f()"]
    lines += ["self.n = await f() + self.n", "n += await f()", "self.n = await f()", "self.n += 1"]
    text = "async def f():\n    " + "\n    ".join(lines)

    assert list(lost_updates(ast.parse(text))) == [2, 3, 4]
