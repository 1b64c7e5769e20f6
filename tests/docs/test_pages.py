"""The policies that pages show are valid."""

from __future__ import annotations

from pathlib import Path

from tests.docs import hosts
from tests.docs.hosts import Host
from tests.docs.site import pages
from tests.readme import Page

POLICIES = [
    (page, block.info, block.text)
    for page in pages("")
    if not page.startswith("reference/")
    for block in Page(f"docs/{page}").blocks
    if block.language == "yaml" and block.text.startswith("version: 1\n")
]


def test_a_policy_that_is_shown_is_valid(tmp_path: Path) -> None:
    """Its credentials, certificates and variables are there."""
    wrong = []
    for number, (page, info, text) in enumerate(POLICIES):
        (tmp_path / str(number)).mkdir()
        host = Host(tmp_path / str(number))
        wrong += [(page, info, problem) for problem in hosts.problems(host.write(text), host)]

    assert len(POLICIES) > 20
    assert wrong == []
