"""The plugins of docs/plugin-recipes.md pass their tests, by the pytest and the mode that the page names.

That they hold to the public names is tested with the sketches (`tests/test_docs.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.readme import Page

FILES = Page("docs/plugin-recipes.md").files
TESTS = sum(len(re.findall("^async def test_", text, re.M)) for text in FILES.values())


def test_the_tests_of_the_recipes_pass(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name.replace("pytest.toml", "pyproject.toml")).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    assert f"{TESTS} passed" in ended.stdout, ended.stdout + ended.stderr
