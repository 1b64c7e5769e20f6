"""An API server in memory: objects, their versions and generations, and the changes that a watch shows.

Objects are never changed in place, so a copy of the store is cheap.
"""

from __future__ import annotations

from typing import Any

from shipper.apiserver.objects import Event, Listing, Object

Key = tuple[str, str]
"""The kind and the name of an object."""


class Stored(dict[str, Any]):
    """An object as it is stored: nobody changes it, so it need not be copied with a world."""


class Api:
    """One namespace."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[Key, Object] = {}
        self.log: dict[str, tuple[tuple[int, Event], ...]] = {}
        """Changes by kind."""

    def copy(self) -> Api:
        other = Api()
        other.version, other.objects, other.log = self.version, dict(self.objects), dict(self.log)
        return other

    # -- reads ---------------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Object | None:
        return self.objects.get((kind, name))

    def list(self, kind: str) -> Listing:
        items = [found for (of, _), found in sorted(self.objects.items()) if of == kind]
        return Listing(items, str(self.version))

    # -- writes --------------------------------------------------------------------------------------------------------

    def create(self, kind: str, wanted: Object) -> Object | None:
        """Returns the new object, or None where there is one."""
        key = (kind, wanted["metadata"]["name"])
        if key in self.objects:
            return None
        found = {key: value for key, value in wanted.items() if key != "status" or kind == "lease"}
        uid = f"u{self.version + 1}"
        created = f"2026-01-01T00:{self.version // 60:02d}:{self.version % 60:02d}Z"
        metadata = {**wanted["metadata"], "uid": uid, "generation": 1, "creationTimestamp": created}
        return self._store(key, {**found, "metadata": metadata}, "ADDED")

    def put(self, kind: str, wanted: Object) -> Object | None:
        """Returns the object as it is now, or None where another version is in its place."""
        key = (kind, wanted["metadata"]["name"])
        found = self.objects.get(key)
        if found is None or found["metadata"]["resourceVersion"] != wanted["metadata"]["resourceVersion"]:
            return None
        return self._change(key, wanted)

    def patch(self, kind: str, name: str, patch: Object, *, status: bool = False) -> Object | None:
        """As `put`, for a merge-patch; one without a version is for any."""
        found = self.objects.get((kind, name))
        wanted = patch.get("metadata", {})
        if found is None or wanted.get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            return None
        at = found["metadata"]["resourceVersion"]
        if wanted.get("resourceVersion", at) != at:
            return None
        part = {"status": patch.get("status")} if status else {k: v for k, v in patch.items() if k != "status"}
        return self._change((kind, name), merged(found, part))

    def delete(self, kind: str, name: str) -> None:
        found = self.objects.pop((kind, name), None)
        if found is not None:
            self._tell(kind, "DELETED", found)

    def _change(self, key: Key, wanted: Object) -> Object:
        found = self.objects[key]
        plain = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}}
        if plain == found:
            return found
        generation = found["metadata"].get("generation", 1) + (wanted.get("spec") != found.get("spec"))
        return self._store(key, {**wanted, "metadata": {**wanted["metadata"], "generation": generation}}, "MODIFIED")

    def _store(self, key: Key, found: Object, what: Any) -> Object:
        told = self._tell(key[0], what, found)
        self.objects[key] = told
        return told

    def _tell(self, kind: str, what: Any, found: Object) -> Object:
        self.version += 1
        told = Stored({**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}})
        self.log[kind] = (*self.log.get(kind, ()), (self.version, Event(what, told)))
        return told


def merged(found: Any, patch: Any) -> Any:
    """Returns what a merge-patch (RFC 7386) makes of a value."""
    if not isinstance(patch, dict):
        return patch
    base = found if isinstance(found, dict) else {}
    result = {key: value for key, value in base.items() if key not in patch}
    for key, value in patch.items():
        if value is not None:
            result[key] = merged(base.get(key), value)
    return result
