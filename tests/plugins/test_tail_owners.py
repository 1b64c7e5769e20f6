"""What decides about a stream waits for nothing and calls no file system: read from the source of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from shipper_plugins.inputs import tail

FOLDER = Path(tail.__path__[0])
DECISIONS = ["asks", "assembly", "chunk", "copying", "followed", "identity", "known", "place", "sighting", "stream"]
DECISIONS += ["survey", "turning"]
PURE = {"basename", "join", "split"}
WAITS = {"calls", "fcntl", "open_files", "socket", "subprocess", "tempfile", "threading", "time", "trio", "watch"}


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module}.py").read_text())


def test_a_decision_waits_for_nothing_and_calls_no_file_system() -> None:
    for module in DECISIONS:
        nodes = list(ast.walk(tree(module)))
        used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        names = {node.id for node in nodes if isinstance(node, ast.Name)}

        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes)
        assert {name.rpartition(".")[2] for name in imported(nodes)} & WAITS == set()
        assert {name for name in used if name.startswith("os.")} <= {"os.path", *(f"os.path.{name}" for name in PURE)}
        assert names & {"open", "open_content", "compare", "search"} == set()


def imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
