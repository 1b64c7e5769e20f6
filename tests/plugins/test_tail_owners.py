"""What the parts of a stream may be changed by, and what decisions may use: read from the source of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from shipper_plugins.inputs import tail
from shipper_plugins.inputs.tail.assembly import Assembly
from shipper_plugins.inputs.tail.identity import Identity
from shipper_plugins.inputs.tail.place import Place
from shipper_plugins.inputs.tail.sighting import Sighting
from shipper_plugins.inputs.tail.stream import Kinship
from shipper_plugins.inputs.tail.turns import Turn

FOLDER = Path(tail.__path__[0])
MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))
OWNERS = {
    "stream": {field.name for field in fields(Kinship)} | {"kinship"},
    "sighting": {field.name for field in fields(Sighting)} | {"sighting"},
    "assembly": {field.name for field in fields(Assembly)} | {"assembly"},
    "turns": {field.name for field in fields(Turn)} | {"turn"},
    "known": {"identity"},
    "followed": {"place"},
}
"""Module → the attributes of a stream, and of its values, that nothing else may assign."""
DECISIONS = ["asks", "assembly", "chunk", "copying", "followed", "identity", "known", "place", "sighting", "stream"]
DECISIONS += ["survey", "turning"]
PURE = {"basename", "join", "split"}
WAITS = {"calls", "fcntl", "open_files", "socket", "subprocess", "tempfile", "threading", "time", "trio", "watch"}


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module}.py").read_text())


def assigned(module: str) -> Iterator[str]:
    """The attributes of other things than `self` that a module assigns."""
    for node in ast.walk(tree(module)):
        is_assigned = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if is_assigned and not is_named(node.value, "self"):
            yield node.attr


@pytest.mark.parametrize("module", MODULES)
def test_a_value_of_a_stream_is_changed_by_its_owner_only(module: str) -> None:
    of_others = set().union(*(names for owner, names in OWNERS.items() if owner != module))

    assert set(assigned(module)) & of_others == set()


@pytest.mark.parametrize("module", MODULES)
def test_no_module_uses_what_is_private_to_another(module: str) -> None:
    private = {
        node.attr
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", module))
    }

    assert private <= ({"_open", "_surplus", "_close"} if module == "open_files" else set())


def test_values_that_are_replaced_cannot_be_changed() -> None:
    assert all(value.__dataclass_params__.frozen for value in (Identity, Place))  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", DECISIONS)
def test_a_decision_waits_for_nothing_and_calls_no_file_system(module: str) -> None:
    nodes = list(ast.walk(tree(module)))
    used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}

    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes)
    assert {name.rpartition(".")[2] for name in imported(nodes)} & WAITS == set()
    assert {name for name in used if name.startswith("os.")} <= {"os.path", *(f"os.path.{name}" for name in PURE)}
    assert names & {"open", "open_content", "compare", "search"} == set()


def is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
