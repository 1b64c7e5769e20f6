"""What the documents name exists, and their sketches of plugins hold to the public names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKETCHES = re.findall(r"^```python file=(\S+)\n(.*?)^```$", (ROOT / "docs/plugins.md").read_text(), re.S | re.M)
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
from uuid import uuid4
import trio
from shipper.plugin import *
from shipper.plugin import NATS, CredentialId
from shipper.sdk.http import Client

@dataclass(eq=False)
class Group:
    bodies: list[bytes] = field(default_factory=list)
    done: trio.Event = field(default_factory=trio.Event)
    failure: str | None = "the object was not finished"

"""
"""What the sketches leave out: imports, and a record with obvious fields."""
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)(?:::(\w+))?`")


def exists(name: str, function: str) -> bool:
    path = next((path for path in (ROOT / name, ROOT / "shipper" / name) if path.exists()), None)
    return path is not None and (not function or f"def {function}(" in path.read_text())


def test_every_module_and_function_that_a_document_names_exists() -> None:
    named = [(page.name, *names) for page in (ROOT / "docs").glob("*.md") for names in NAMED.findall(page.read_text())]

    assert len(named) > 100
    assert [one for one in named if not exists(*one[1:])] == []


def test_every_fault_of_a_relay_has_a_test_and_every_test_that_has_its_number_is_named() -> None:
    text = (ROOT / "docs/relay-history.md").read_text()
    faults = dict(re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", text, re.M | re.S))
    numbered = {
        (function, number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for function, number in re.findall(r"^(?:async )?def (test_a(\d+)_\w+)", path.read_text(), re.M)
    }

    assert list(faults) == [str(number) for number in range(1, 21)]
    assert all(NAMED.search(fault) for fault in faults.values())
    assert len(numbered) > 10
    assert [function for function, number in sorted(numbered) if f"::{function}`" not in faults[number]] == []


def test_every_fault_of_other_fleets_has_the_issue_or_the_program_and_tests() -> None:
    text = (ROOT / "docs/fleet-history.md").read_text().partition("## Not covered")[0]
    faults = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^## |\Z)", text, re.M | re.S)

    assert [number for number, _ in faults] == [str(number) for number in range(1, len(faults) + 1)]
    assert [number for number, fault in faults if not NAMED.search(fault)] == []
    assert [number for number, fault in faults if not re.search(r"[\w-]+/[\w-]+\s+#\d+|Consul", fault)] == []


def test_every_fault_and_every_law_of_objects_of_kubernetes_has_tests() -> None:
    text = (ROOT / "docs/kubernetes-history.md").read_text()
    told = dict(re.findall(r"^- \*\*([A-Z][\d.]*\d)\. (.*?)(?=^- \*\*|^## |\Z)", text, re.M | re.S))

    assert list(told) == [*(f"K{number}" for number in range(1, 9)), *(f"T844.{number}" for number in range(1, 11))]
    assert [label for label, fault in told.items() if not NAMED.search(fault)] == []


def test_the_sketches_are_programs_of_the_public_names(tmp_path: Path) -> None:
    """mypy reads them, those of one file together."""
    assert len(SKETCHES) >= 6
    for file, _ in SKETCHES:
        (tmp_path / file).write_text(PREAMBLE + "\n\n".join(text for name, text in SKETCHES if name == file))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-incremental"]
    files = sorted({str(tmp_path / file) for file, _ in SKETCHES})
    ended = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert ended.returncode == 0, ended.stdout
