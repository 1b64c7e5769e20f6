"""Builds the site of docs/: `python -m tests.docs.site [DIRECTORY]` (default: build/site). A warning is an error.

The pages are written for readers of the repository: a link may lead out of `docs/`, and the first line of a block says
how tests run it. For the site they are copied, with such a link as the path that it is, and such a block with the name
of its file as its title. A page that the navigation of mkdocs.yml does not name gets a place in it: those of plugins at
theirs, others below More. A page that it names and that is not there is left out. README is a page, too.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+) (.+)$", re.M)
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s#]*)(?:#[^)]*)?\)")
README = "readme.md"
"""The page of the site that is README.md in the repository."""
KINDS = {"inputs": "Inputs", "processors": "Processors", "outputs": "Outputs"}


class SiteError(Exception):
    """The site could not be built without a warning; the text is what was warned of."""


def build(target: Path) -> None:
    """Writes the site into a directory, which is replaced.

    :raises SiteError: there was a warning.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        stage(place)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(place / "mkdocs.yml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        said = re.sub(r"\x1b\[[\d;]*m", "", ended.stdout + ended.stderr)
        if ended.returncode != 0 or "No issues found" not in said:
            raise SiteError(said)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place / "site", target)


def stage(place: Path) -> None:
    """Writes the pages as the site has them, and its settings, into a directory."""
    for path in sorted(DOCS.rglob("*")):
        relative = path.relative_to(DOCS)
        if path.is_file() and "examples" not in relative.parts:
            copy = place / "docs" / relative
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                copy.write_text(for_site(path.read_text(), relative.parent.as_posix()))
            else:
                shutil.copy(path, copy)
    (place / "docs" / README).write_text(for_site(_from_docs((ROOT / "README.md").read_text()), "."))
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings["nav"] = navigation(settings["nav"])
    (place / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))


def _from_docs(readme: str) -> str:
    """Returns README.md with its links as a page of docs/ would have them."""
    return re.sub(r"\]\((?!https?:|docs/)([^)#]+)", r"](../\1", readme).replace("](docs/", "](")


def navigation(nav: list[Any]) -> list[Any]:
    """Returns the navigation with the pages of plugins, and with the pages that nobody named."""
    for section in nav:
        if "Plugins" in section:
            section["Plugins"] += [
                {name: [{Path(page).stem: page} for page in pages(f"reference/{kind}")]} for kind, name in KINDS.items()
            ]
    there = set(pages(""))
    left = sorted(there - set(named(nav)))
    nav = _present(nav, {*there, README})
    return [*nav, {"More": left}] if left else nav


def _present(nav: list[Any], there: set[str]) -> list[Any]:
    """Returns the parts of a navigation whose pages are there."""
    kept: list[Any] = []
    for part in nav:
        if isinstance(part, str):
            kept += [part] if part in there else []
            continue
        ((name, below),) = part.items()
        below = below if isinstance(below, str) else _present(below, there)
        kept += [{name: below}] if not isinstance(below, str) or below in there else []
    return kept


def pages(under: str) -> list[str]:
    """Returns the pages of a folder, its folders included, as paths from docs/."""
    return sorted(page.relative_to(DOCS).as_posix() for page in (DOCS / under).rglob("*.md"))


def named(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case dict():
            yield from named(list(nav.values()))
        case list():
            for part in nav:
                yield from named(part)


def for_site(markdown: str, folder: str) -> str:
    """Returns the text of a page of a folder of docs/ as the site has it."""
    return LINK.sub(lambda link: _link(link, folder), FENCE.sub(_fence, markdown))


def _fence(fence: re.Match[str]) -> str:
    language, info = fence.groups()
    return f'```{language} title="{info.removeprefix("file=")}"' if info.startswith("file=") else f"```{language}"


def _link(link: re.Match[str], folder: str) -> str:
    text, target = link.groups()
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path.startswith("docs/"):
        return link[0]
    if path == "README.md":
        return f"[{text}]({posixpath.relpath(README, folder)})"
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"


if __name__ == "__main__":
    try:
        build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
    except SiteError as error:
        sys.exit(str(error))
