from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory that this process may neither list nor search while the test runs."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0)
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)
            os.chmod(name, 0o700)
