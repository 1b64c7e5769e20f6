"""How many examples a property draws: so many times what the profile says (`tests/conftest.py`)."""

from __future__ import annotations

from hypothesis import settings


def examples(times: float) -> int:
    """A number for `settings(max_examples=...)`: 30 times as many in `make test`, 100 times in `make test-all`."""
    return round(times * settings().max_examples)
