"""The examples of README.md and of the pages in docs/, for the tests that execute them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    text: str

    @property
    def file(self) -> str | None:
        return self.info.removeprefix("file=") if self.info.startswith("file=") else None


class Page:
    """A page, by its path in the repository."""

    def __init__(self, path: str) -> None:
        self.text = (ROOT / path).read_text()
        found = re.findall(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", self.text, re.MULTILINE)
        self.blocks = [Block(*one) for one in found]
        self.files = {block.file: block.text for block in self.blocks if block.file}

    def one(self, language: str, info: str) -> Block:
        """Returns the only block of a kind."""
        (block,) = [block for block in self.blocks if (block.language, block.info) == (language, info)]
        return block

    def shell(self, *infos: str) -> list[Block]:
        """Returns the commands of these kinds, in their order; by default those that are run as they are."""
        return [block for block in self.blocks if block.language == "sh" and block.info in (infos or ("",))]


_readme = Page("README.md")
README, BLOCKS, FILES, one = _readme.text, _readme.blocks, _readme.files, _readme.one
