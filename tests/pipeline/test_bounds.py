"""What a class of the pipeline holds, what a part of the spool offers, how long the way out is: all has bounds, since
whoever reads it has to keep it in mind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "shipper" / "pipeline"
SPOOL = ROOT / "shipper" / "spool"
MOST_ATTRIBUTES = 20
MOST_METHODS = 20
"""Public ones, of a class of the spool."""
MOST_ARGUMENTS = 8
MOST_DELIVERY = 2500
"""Lines of the room that decides and performs delivery."""
MOST_CODE = 2600
"""Of that room and those it stands on, without docstrings, comments and imports."""
MOST_MODULES = 12
"""On the way of a batch, beside the value itself."""
MOST_LINES = 60


def classes(of: Path) -> Iterator[tuple[str, ast.ClassDef]]:
    for path in sorted(of.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield f"{path.relative_to(of)}: {node.name}", node


def declared(of: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields in the body of a class."""
    fields = [node for node in of.body if isinstance(node, ast.AnnAssign)]
    return [field for field in fields if "ClassVar" not in ast.unparse(field.annotation)]


def attributes(of: ast.ClassDef) -> set[str]:
    """The names that the instances of a class have."""
    stored = [node for node in ast.walk(of) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    own = {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
    return own | {field.target.id for field in declared(of) if isinstance(field.target, ast.Name)}


def arguments(of: ast.ClassDef) -> int:
    """How many arguments its constructor has."""
    made = next((node for node in of.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if made is not None:
        return len(made.args.args) + len(made.args.kwonlyargs) - 1
    is_protocol = any("Protocol" in ast.unparse(base) for base in of.bases)
    return 0 if is_protocol else sum("init=False" not in ast.unparse(field) for field in declared(of))


def methods(of: ast.ClassDef) -> set[str]:
    """The public methods of a class, those included that are made of a transaction."""
    made = [node.targets[0] for node in of.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    written = {node.name for node in of.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names = written | {target.id for target in made if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def code(of: Path) -> int:
    """The lines of a module that do something."""
    tree = ast.parse(of.read_text())
    apart = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) or is_text(node)]
    left_out = {line for node in apart for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(of.read_text().splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in left_out for at, line in lines)


def is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether it is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_no_class_has_more_than_can_be_kept_in_mind() -> None:
    found = {name: (len(attributes(one)), arguments(one)) for name, one in classes(PIPELINE)}

    assert len(found) > 50
    assert not [name for name, (has, takes) in found.items() if has > MOST_ATTRIBUTES or takes > MOST_ARGUMENTS]


def test_delivery_is_short_enough_to_be_read_at_once() -> None:
    lines = sum(path.read_text().count("\n") for path in (PIPELINE / "delivery").glob("*.py"))
    rooms = ("delivery", "attempts", "destination", "memory")

    assert lines <= MOST_DELIVERY
    assert sum(code(path) for room in rooms for path in (PIPELINE / room).glob("*.py")) <= MOST_CODE


def test_no_class_of_the_spool_offers_more_than_can_be_kept_in_mind() -> None:
    found = {name: methods(one) for name, one in classes(SPOOL)}

    assert found["parts/queue.py: Queue"] >= {"enter", "settle", "window"}
    assert not [name for name, offered in found.items() if len(offered) > MOST_METHODS]


def test_whoever_follows_a_batch_reads_one_page_of_few_modules() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    way = page.partition("\n## The path of a batch\n")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([\w/]+\.py)(?:::\w+)?`", way) if (ROOT / "shipper" / name).exists()}

    assert 0 < len(named - {"sdk/event.py"}) <= MOST_MODULES
    assert way.count("\n") <= MOST_LINES
