"""What is said of revisions, as values: a door (`control/door`) makes its own messages of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shipper.sdk.errors import Problem
from shipper.values import Change, Reason, Receipt, Revision


@dataclass(frozen=True, slots=True)
class Received:
    """A revision is valid and stored: it will become active, or be refused."""

    at: Revision
    sha256: str
    change: Change


@dataclass(frozen=True, slots=True)
class Active:
    """A revision has taken over intake: no event enters under an older one any more."""

    at: Revision
    sha256: str
    change: Change


@dataclass(frozen=True, slots=True)
class Refused:
    """A revision will not become active; what ran before runs on. The credentials in `released` may be revoked."""

    at: Revision
    sha256: str
    reason: Reason
    problems: Sequence[Problem] = ()
    released: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing uses these credentials any more: they may be revoked."""

    credentials: Sequence[str]


Statement: TypeAlias = Received | Active | Receipt | Refused | Released
"""A `Receipt` says that its revision is drained."""
