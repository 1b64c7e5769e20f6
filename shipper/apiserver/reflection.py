"""The objects of one kind as a watch has shown them. Pure.

A watch shows each change once and in order, but its connections do not: a change may come again after one was made
anew, and changes that nobody can have any more leave a gap, which a list closes. So each event is judged by versions:

- What is not newer than the last list or bookmark, or than what is known of the object, is a repetition.
- An object that was deleted does not come back, as its uid does not. An object of the same name with another uid is
  another one, so the deletion of the first is told before it.
- A list is told as the changes that lead to it: deletions first, then what is new or newer, and SYNCED at last.

What is told is therefore always a life: ADDED, MODIFIED any number of times, DELETED. `managedFields` are left out:
they are often larger than the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from shipper.apiserver.objects import Event, Object, name, uid, version
from shipper.apiserver.versions import is_covered, is_number, newest

MOST_GONE = 1000
"""Deletions since the last list or bookmark that are remembered."""


class Reflection:
    """See the module."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        """By name; not to be changed by others."""
        self.seen = ""
        """The newest version of an event, a bookmark or a list; a watch goes on after it."""
        self._floor = ""
        """All changes up to it are known."""
        self._gone: dict[str, str] = {}
        """Versions of deletions after the floor, by uid."""

    def take(self, event: Event) -> list[Event]:
        """Takes an event of a watch, and returns what is new in it: none, one, or two events."""
        found, at = _slim(event.object), version(event.object)
        known = self.objects.get(name(found))
        if self._is_known(found, known):
            return []
        self.seen = newest(self.seen, at)
        if event.type == "DELETED":
            self._forget(uid(found), at)
            if known is None:
                return []
            del self.objects[name(found)]
            return [Event("DELETED", found if uid(known) == uid(found) else known)]
        self.objects[name(found)] = found
        if known is None:
            return [Event("ADDED", found)]
        if uid(known) == uid(found):
            return [Event("MODIFIED", found)]
        self._forget(uid(known), at)
        return [Event("DELETED", known), Event("ADDED", found)]

    def caught_up(self, at: str) -> None:
        """Takes a bookmark: all changes up to this version were taken."""
        self.seen, self._floor = newest(self.seen, at), newest(self._floor, at)
        self._gone = {uid: version for uid, version in self._gone.items() if not is_covered(version, self._floor)}

    def relisted(self, items: Iterable[Object], at: str) -> list[Event]:
        """Takes a list, and returns the changes that lead to it; its version may be older than what was seen."""
        before, self.objects = self.objects, {name(item): _slim(item) for item in items}
        self.seen = self._floor = at
        self._gone.clear()
        gone = [known for key, known in before.items() if uid(self.objects.get(key, {})) != uid(known)]
        lost = {uid(known) for known in gone}
        changes = [Event("DELETED", known) for known in gone]
        for key, found in self.objects.items():
            known = before.get(key)
            if known is None or uid(known) in lost:
                changes.append(Event("ADDED", found))
            elif version(known) != version(found):
                changes.append(Event("MODIFIED", found))
        return [*changes, Event("SYNCED", {"metadata": {"resourceVersion": at}})]

    def _is_known(self, found: Object, known: Object | None) -> bool:
        at = version(found)
        if is_number(at) and is_covered(at, self._floor):
            return True
        if uid(found) in self._gone:
            return True
        return known is not None and is_covered(at, version(known))

    def _forget(self, uid: str, at: str) -> None:
        self._gone[uid] = at
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]


def _slim(found: Object) -> Object:
    metadata = found.get("metadata") or {}
    if "managedFields" not in metadata:
        return found
    return {**found, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
