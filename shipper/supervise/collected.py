"""Decides which credentials of several members can be revoked: those that every member has released.

A member *holds* a credential that it uses or may use, and has *released* one that it never uses again under that id.
Members share secrets, not ids: two members may have given two ids to one key, and revoking one would kill the other. So
an id waits while any member, its own included, holds its secret under any id.

    a holds k1        b released k1 as es-1        es-1 waits
    a released k1     b released k1 as es-1        es-1 is collected

A single member does not wait, not even for itself: its own rule has decided already whether a secret that came again
may be revoked under its old id. The caller leaves out members that are gone for good; a silent one still holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from shipper.sdk.unshown import Unshown


class Holding(Unshown, frozen=True):
    """The credentials of one member; equal keys are the same secret."""

    held: frozenset[Hashable] = frozenset()
    released: Mapping[str, Hashable] = msgspec.field(default_factory=dict)
    """The secret behind each id."""


def collected(members: Sequence[Holding]) -> set[str]:
    """Returns the ids that can be revoked now."""
    held = frozenset[Hashable]().union(*(member.held for member in members)) if len(members) > 1 else frozenset()
    return {id for member in members for id, secret in member.released.items() if secret not in held}
