"""Statements about revisions, as values; a door (`control/door`) turns them into messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from shipper.sdk.errors import Problem
from shipper.values import Change, Reason, Receipt, Revision


class Received(Struct, frozen=True):
    """A revision is valid and stored: it will become active, or be refused."""

    at: Revision
    sha256: str
    change: Change


class Active(Struct, frozen=True):
    """A revision has taken over intake: no event enters under an older one any more."""

    at: Revision
    sha256: str
    change: Change


class Refused(Struct, frozen=True):
    """A revision will not become active; the pipeline is unchanged. The credentials in `released` may be revoked."""

    at: Revision
    sha256: str
    reason: Reason
    problems: Sequence[Problem] = ()
    released: Sequence[str] = ()


class Released(Struct, frozen=True):
    """Nothing uses these credentials any more: they may be revoked."""

    credentials: Sequence[str]


Statement: TypeAlias = Received | Active | Receipt | Refused | Released
"""A `Receipt` reports that its revision is drained."""
