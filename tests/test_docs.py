"""What the documents name exists, and their sketches of plugins hold to the public names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKETCHES = re.findall(r"^```python file=(\S+)\n(.*?)^```$", (ROOT / "docs/plugins.md").read_text(), re.S | re.M)
RECIPES = re.findall(
    r"^```python file=(shipper_\S+)\n(.*?)^```$", (ROOT / "docs/plugin-recipes.md").read_text(), re.S | re.M
)
PREAMBLE = """from __future__ import annotations
import asyncio, hmac, json, subprocess, time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b, sha256
from itertools import islice
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit
import trio
from shipper.plugin import *
from shipper.plugin import NATS, CredentialId
from shipper.sdk.http import Client

"""
"""What the sketches leave out: imports."""
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)(?:::(\w+))?`")


def exists(name: str, function: str) -> bool:
    path = next((path for path in (ROOT / name, ROOT / "shipper" / name) if path.exists()), None)
    return path is not None and (not function or f"def {function}(" in path.read_text())


def test_every_module_and_function_that_a_document_names_exists() -> None:
    named = [(page.name, *names) for page in (ROOT / "docs").glob("*.md") for names in NAMED.findall(page.read_text())]

    assert len(named) > 100
    assert [one for one in named if not exists(*one[1:])] == []


def test_the_sketches_and_recipes_are_programs_of_the_public_names(tmp_path: Path) -> None:
    """mypy reads them, those of one file together."""
    assert len(SKETCHES) >= 6
    assert len(RECIPES) >= 5
    for file, text in RECIPES:
        (tmp_path / file).write_text(text)
    for file, _ in SKETCHES:
        (tmp_path / file).write_text(PREAMBLE + "\n\n".join(text for name, text in SKETCHES if name == file))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    files = sorted({str(tmp_path / file) for file, _ in [*SKETCHES, *RECIPES]})
    ended = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert ended.returncode == 0, ended.stdout
