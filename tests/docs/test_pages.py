"""What all pages have in common: commands that a test runs, policies that are valid."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs import hosts
from tests.docs.hosts import Host
from tests.docs.site import DOCS, ROOT, pages
from tests.readme import Page

WITH_COMMANDS = [page for page in pages("") if re.search(r"^```sh", (DOCS / page).read_text(), re.M)]
POLICIES = [
    (page, block.info, block.text)
    for page in pages("")
    if not page.startswith("reference/")
    for block in Page(f"docs/{page}").blocks
    if block.language == "yaml" and block.text.startswith("version: 1\n")
]


def test_a_page_with_commands_has_a_test_that_runs_them() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))

    assert [page for page in WITH_COMMANDS if page not in tests] == []


def test_a_policy_that_is_shown_is_valid(tmp_path: Path) -> None:
    """Its credentials, certificates and variables are there."""
    wrong = []
    for number, (page, info, text) in enumerate(POLICIES):
        (tmp_path / str(number)).mkdir()
        host = Host(tmp_path / str(number))
        wrong += [(page, info, problem) for problem in hosts.problems(host.write(text), host)]

    assert len(POLICIES) > 20
    assert wrong == []
