"""The site is built without a warning, and its pages need nothing from elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from tests.docs import site


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    site.build(target)
    return target


def test_every_page_of_the_documents_is_a_page_of_the_site(built: Path) -> None:
    """Warnings of links to no page and to no heading are errors of the build."""
    assert [page for page in site.pages("") if not (built / page).with_suffix(".html").exists()] == []


def test_a_page_loads_nothing_from_a_foreign_address(built: Path) -> None:
    for page in built.rglob("*.html"):
        tags = re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", page.read_text())

        assert [tag for tag in tags if re.search(r"(?:src|href)=\"?(?:https?:)?//", tag)] == [], page.name


def test_no_block_shows_how_tests_run_it(built: Path) -> None:
    assert [page.name for page in built.rglob("*.html") if re.search(r"<p>```|<code>\w+ file=", page.read_text())] == []


def test_a_link_leads_to_a_file_that_exists() -> None:
    pages = [site.DOCS / page for page in site.pages("")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    ]

    assert [(page, link) for page, link in links if not Path(os.path.normpath(page.parent / link)).exists()] == []


def test_every_page_has_one_place_in_the_navigation() -> None:
    named = list(site.named(site.navigation(yaml.safe_load((site.ROOT / "mkdocs.yml").read_text())["nav"])))

    assert sorted(named) == sorted([*site.pages(""), site.README])
