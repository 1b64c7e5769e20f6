"""What the documents name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_every_module_and_function_that_a_document_names_exists(document: Path) -> None:
    named = NAMED.findall(document.read_text())
    for name, function in named:
        path = next((path for path in (ROOT / name, ROOT / "shipper" / name) if path.exists()), None)
        assert path is not None, name
        assert not function or f"def {function}(" in path.read_text(), (name, function)
