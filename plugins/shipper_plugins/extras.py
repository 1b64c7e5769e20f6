"""Libraries that only some plugins need, and that an extra of the package installs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec


def check(extra: str, modules: Sequence[str]) -> None:
    """Raises ValueError, with the command that installs them, if one of these modules is missing.

    Imports none of them, so a policy can be checked without their cost.
    """
    if not all(map(_is_there, modules)):
        raise ValueError(f"this needs libraries that are not installed: pip install 'shipper[{extra}]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # of a package above it
        return False
