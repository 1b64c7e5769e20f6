"""Policies that this member has no entry for yet: announced, and read again, before they are run.

A leader that finds a generation drained counts the members that it selects, and those with an entry. So a member that
is about to run a policy for the first time, perhaps of an older generation, writes an entry first, and then reads the
policy: it sees the newer generation, or the leader has seen the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shipper.kubernetes.member.memory import Part
from shipper.kubernetes.member.policies import Known


class Introducing:
    """By uid."""

    def __init__(self) -> None:
        self._announced: frozenset[str] = frozenset()
        self._confirmed: dict[str, int] = {}
        """The newest generation of each policy as a read after the announcement has found it."""

    def writing(self, uids: Iterable[str]) -> None:
        """A status with entries for these policies, as run, is about to be written."""
        self._announced &= frozenset(uids)
        self._prune()

    def wrote(self, uids: Iterable[str]) -> None:
        """The API server has such a status."""
        self._announced = frozenset(uids)
        self._prune()

    def doubt(self) -> None:
        """The API server may not have the status."""
        self._announced = frozenset()
        self._prune()

    def confirmed(self, uid: str, generation: int) -> None:
        """A read that began after the announcement has found this generation."""
        if uid in self._announced:
            self._confirmed[uid] = generation

    def is_announced(self, part: Part) -> bool:
        return part.uid in self._announced

    def is_ready(self, part: Part, known: Mapping[str, Known]) -> bool:
        """Whether a policy may be run for the first time."""
        newest = known.get(part.uid)
        return newest is not None and self._confirmed.get(part.uid) == newest.generation

    def _prune(self) -> None:
        self._confirmed = {uid: at for uid, at in self._confirmed.items() if uid in self._announced}
