"""Which credentials of several members can be revoked now, as a value: those that every member has released.

A member *holds* what it uses or may come to use, and has *released* what it never uses again, under that id. What is
shared is the secret, not the id: two members may have given two ids to one key, and revoking the one would kill the
other. So an id waits for as long as anybody holds its secret, under whatever id, its own member included.

    a holds k1        b released k1 as es-1        es-1 waits
    a released k1     b released k1 as es-1        es-1 is collected

A member of its own waits for nobody, nor for itself: where a secret comes again while its old id is being revoked, that
was decided before. A member that is gone for good is left out by who asks; one that is only silent still holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Holding:
    """What one member says of its credentials; equal keys are the same secret."""

    held: frozenset[Hashable] = field(default=frozenset(), repr=False)
    released: Mapping[str, Hashable] = field(default_factory=dict, repr=False)
    """The secret behind each id."""


def collected(members: Sequence[Holding]) -> set[str]:
    """The ids that can be revoked now."""
    held = frozenset[Hashable]().union(*(member.held for member in members)) if len(members) > 1 else frozenset()
    return {id for member in members for id, secret in member.released.items() if secret not in held}
