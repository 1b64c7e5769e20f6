"""The examples of docs/kubernetes.md, for the tests that execute them."""

from __future__ import annotations

import re

from tests.readme import ROOT, Block

DOCUMENT = ROOT / "docs/kubernetes.md"
BLOCKS = [Block(*found) for found in re.findall(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", DOCUMENT.read_text(), re.M)]
FILES = {block.file: block.text for block in BLOCKS if block.file}
