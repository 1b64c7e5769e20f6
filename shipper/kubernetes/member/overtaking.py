"""Whether a read by quorum is newer than what a watch has shown. Pure.

A read is newer than all that the watch has shown before the read began. What the watch shows while it is on its way
may be older than its answer, or newer: of an object that was found, the versions decide; of one that is gone, or is
another one now, nothing does. Such an answer is not used, and its question is asked again: used, it would bring a
deleted object back, or lose a new one, and the watch would never show the mistake.
"""

from __future__ import annotations

from shipper.apiserver.objects import Object, uid, version
from shipper.apiserver.versions import compare


class Overtaking:
    """The names of which a watch has shown something since a read began."""

    def __init__(self) -> None:
        self._names: set[str] | None = None

    def begin(self) -> None:
        """A read begins; there is one at a time."""
        self._names = set()

    def end(self) -> None:
        """What it has found was taken."""
        self._names = None

    def shown(self, name: str) -> None:
        """A watch has shown a change of an object of this name."""
        if self._names is not None:
            self._names.add(name)

    def is_newer(self, name: str, found: Object | None, known_uid: str, known_version: str) -> bool | None:
        """Returns whether the read's answer about a name is newer than what is known of it, or the same; None if nobody
        can tell."""
        if self._names is None or name not in self._names:
            return True
        if found is None or uid(found) != known_uid:
            return None
        order = compare(version(found), known_version)
        return None if order is None else order >= 0
