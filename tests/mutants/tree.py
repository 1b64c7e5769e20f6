"""Copies of the source tree, to put a fault into."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".cache", ".*_cache", ".hypothesis", "mutants")
_JUDGED = ("shipper", "plugins", "demo", "tests")


def digest(root: Path = ROOT) -> str:
    """Another one for each change of the program or its tests; these here are not among them."""
    found = hashlib.sha256((root / "pyproject.toml").read_bytes())
    for path in sorted(path for top in _JUDGED for path in (root / top).rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and "__pycache__" not in name.parts and name.parts[:2] != ("tests", "mutants"):
            found.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


@contextmanager
def copied(root: Path = ROOT) -> Iterator[Path]:
    """A copy of the tree, without these mutants, that is gone after the block.

    Times of files are copied too, so that what was compiled need not be compiled again.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory, "tree")
        shutil.copytree(root, copy, ignore=_LEFT_OUT)
        yield copy


def put(texts: Mapping[str, str], tree: Path) -> None:
    """Write other texts of modules into a tree."""
    for module, text in texts.items():
        (tree / module).write_text(text)
