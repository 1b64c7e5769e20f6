"""Copies of the source tree, to put a fault into."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".cache", ".*_cache", ".hypothesis", "mutants")
_JUDGED = ("shipper", "plugins", "demo", "tests")


class Stale(Exception):
    """A patch does not apply to the tree as it is."""


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


def apply(patch: Path, tree: Path, *, check: bool = False) -> None:
    """Put a fault into a tree, or `check` only whether that could be done. Raises Stale."""
    # In a directory of some other repository, git would leave out what is not below that one's top.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", *(["--check"] if check else []), str(patch)]
    run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise Stale(run.stderr.strip().partition("\n")[0].removeprefix("error: "))
