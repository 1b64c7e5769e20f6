"""What all pages have in common: commands that a test runs, policies that are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import hosts
from tests.docs.hosts import Host
from tests.docs.site import DOCS, ROOT, pages
from tests.readme import Page

TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
WITH_COMMANDS = [page for page in pages("") if re.search(r"^```sh", (DOCS / page).read_text(), re.M)]
POLICIES = [
    (page, block.info, block.text)
    for page in pages("")
    if not page.startswith("reference/")
    for block in Page(f"docs/{page}").blocks
    if block.language == "yaml" and block.text.startswith("version: 1\n")
]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_a_page_with_commands_has_a_test_that_runs_them(page: str) -> None:
    assert page in TESTS


@pytest.mark.parametrize(("page", "info", "text"), POLICIES, ids=[f"{page} {info}" for page, info, _ in POLICIES])
def test_a_policy_that_is_shown_is_valid(tmp_path: Path, page: str, info: str, text: str) -> None:
    """Its credentials, certificates and variables are there."""
    host = Host(tmp_path)

    assert hosts.problems(host.write(text), host) == []
