"""Objects as the API server has them, decoded from JSON, and the kinds that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

Object = dict[str, Any]
"""Of one kind; `metadata` is a mapping in each object that a client returns."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects in namespaces; the group of the core is empty."""

    group: str
    version: str
    plural: str
    name: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Returns the path of the collection in a namespace, or of an object, or of a part of it."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = ["namespaces", namespace, self.plural, name, subresource]
        return f"{root}/{self.version}/" + "/".join(quote(part, safe="") for part in parts if part)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


SECRETS = Kind("", "v1", "secrets", "Secret")
PODS = Kind("", "v1", "pods", "Pod")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]


class Event(NamedTuple):
    """A change of an object; SYNCED says that all objects of a list were handed over, and its object has only the
    version of that list.

    The object of DELETED is the last one known.
    """

    type: EventType
    object: Object


class Listing(NamedTuple):
    """Objects, and the version of all of them together, from which a watch goes on: that of no item is."""

    items: list[Object]
    version: str


def metadata(of: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the metadata of an object; empty if there is none."""
    found = of.get("metadata")
    return found if isinstance(found, Mapping) else {}


def name(of: Mapping[str, Any]) -> str:
    """Returns the name of an object."""
    return _text(of, "name")


def uid(of: Mapping[str, Any]) -> str:
    """Returns the uid: an object that is deleted and created again has another one."""
    return _text(of, "uid")


def version(of: Mapping[str, Any]) -> str:
    """Returns the resourceVersion; of a list, that of the list."""
    return _text(of, "resourceVersion")


def generation(of: Mapping[str, Any]) -> int:
    """Returns the generation, which rises with the spec; 0 for kinds without one."""
    found = metadata(of).get("generation", 0)
    return found if isinstance(found, int) else 0


def labels(of: Mapping[str, Any]) -> dict[str, str]:
    """Returns the labels."""
    return _texts(of, "labels")


def annotation(of: Mapping[str, Any], key: str) -> str:
    """Returns an annotation; empty if there is none."""
    return _texts(of, "annotations").get(key, "")


def created(of: Mapping[str, Any]) -> str:
    """Returns the time of creation as RFC 3339 has it, in whole seconds; such texts of one zone are in order."""
    return _text(of, "creationTimestamp")


def is_deleted(of: Mapping[str, Any]) -> bool:
    """Whether the object is being deleted, and waits for its finalizers."""
    return bool(metadata(of).get("deletionTimestamp"))


def _text(of: Mapping[str, Any], key: str) -> str:
    found = metadata(of).get(key)
    return found if isinstance(found, str) else ""


def _texts(of: Mapping[str, Any], key: str) -> dict[str, str]:
    found = metadata(of).get(key)
    if not isinstance(found, Mapping):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}
