"""The examples of README.md, for the tests that execute them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    text: str

    @property
    def file(self) -> str | None:
        return self.info.removeprefix("file=") if self.info.startswith("file=") else None


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", README, re.MULTILINE)]
FILES = {block.file: block.text for block in BLOCKS if block.file}


def one(language: str, info: str) -> Block:
    (block,) = [block for block in BLOCKS if (block.language, block.info) == (language, info)]
    return block
