"""A spool in memory with keyed state, and one output."""

from __future__ import annotations

import pytest

from tests.spool.keyed import Shelf, To


@pytest.fixture
def shelf() -> Shelf:
    """With the output `main`, at the destination `a`."""
    shelf = Shelf()
    shelf.activate(main=To("a"))
    return shelf
