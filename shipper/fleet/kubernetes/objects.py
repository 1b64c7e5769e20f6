"""Keys of a fleet as objects of an API server. No I/O.

Each key is one ShipperFleetRecord. Its name is made of the fleet, the key and a hash of both, since keys have
characters that names must not have. What a list without values has to tell is in labels and annotations:

    shipper.dev/fleet     the fleet; all requests select by it
    shipper.dev/begins    the first four characters of the key, so that a watch of `head` is not told of all reports
    shipper.dev/lease     the lease that the key is under, or that its last write renewed
    shipper.dev/removed   the key was removed; the object follows it (`store`)
    …/key, …/created      annotations: the key, and the revision of its creation, absent as long as that is its revision
    …/under               annotation: the key is under the lease, which has so many seconds
    …/write               annotation: a random text, so that no write is without effect

A revision of the store is a resourceVersion: of all objects of one kind, they are in one order (KEP-5504).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shipper.apiserver.objects import Kind, Object, annotation, labels, name, version
from shipper.apiserver.versions import is_number
from shipper.fleet.store import Entry, Lease, StoreRefused

RECORDS = Kind("shipper.dev", "v1", "shipperfleetrecords", "ShipperFleetRecord")
FLEET, BEGINS, LEASE, REMOVED = (f"shipper.dev/{word}" for word in ("fleet", "begins", "lease", "removed"))
KEY, CREATED, UNDER, WRITE = (f"shipper.dev/{word}" for word in ("key", "created", "under", "write"))
LARGEST = 1_100_000
"""Bytes of a value: as base64 it stays below the 1.5 MiB that the etcd of an API server takes."""
_BEGINNING = 4
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DECIMAL = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The objects of one fleet."""

    fleet: str

    @property
    def label(self) -> str:
        """The value of the label FLEET."""
        return self.fleet if _LABEL.fullmatch(self.fleet) else f"{_slug(self.fleet, 40)}-{_digest(self.fleet)}"

    @property
    def prefix(self) -> str:
        """What names of this fleet's objects begin with."""
        return _slug(self.fleet, 40)

    def name(self, key: str) -> str:
        """Returns the name of a key's object."""
        return f"{self.prefix}.{_slug(key, 100)}-{_digest(self.fleet, key)}"

    def lease(self, id: int) -> str:
        """Returns the name of a lease's object."""
        return f"shipper-fleet-{self.prefix}-{lease_label(id)}"

    @property
    def keeper(self) -> str:
        """The name of the Lease of the client that ends leases."""
        return f"shipper-fleet-{self.prefix}-keeper-{_digest(self.fleet)}"

    def selector(self, prefix: str = "") -> str:
        """Returns the label selector of all keys that begin with `prefix`, and perhaps of others."""
        found = f"{FLEET}={self.label}"
        return f"{found},{BEGINS}={_beginning(prefix)}" if len(prefix) >= _BEGINNING else found

    def shown(self, key: str) -> str:
        """Returns a key for people."""
        return f"{key or 'all keys'} of the fleet {self.fleet}"

    # -- what is written -----------------------------------------------------------------------------------------------

    def object(
        self,
        key: str,
        value: bytes | None,
        *,
        before: Known | None = None,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Object:
        """Returns the object of a key, for `before` in its place; a value of None is that of a removed key."""
        marks = {FLEET: self.label, BEGINS: _beginning(key)}
        notes = {KEY: key, WRITE: secrets.token_hex(8)}
        if value is None:
            marks[REMOVED] = "true"
        elif before is not None and not before.is_removed:
            notes[CREATED] = str(before.created)
        if (touched := lease or renews) is not None:
            marks[LEASE] = lease_label(touched.id)
        if lease is not None:
            notes[UNDER] = f"{lease.seconds:g}"
        metadata: dict[str, Any] = {"name": self.name(key), "labels": marks, "annotations": notes}
        if before is not None:
            metadata |= {"resourceVersion": str(before.revision), "uid": before.uid}
        found = {"apiVersion": RECORDS.api_version, "kind": RECORDS.name, "metadata": metadata}
        return found if value is None else {**found, "value": base64.b64encode(value).decode()}

    # -- what is read --------------------------------------------------------------------------------------------------

    def key(self, found: Mapping[str, Any]) -> str | None:
        """Returns the key of an object; None for one that is of no key, since somebody else has made it."""
        key = annotation(found, KEY)
        return key if name(found) == self.name(key) else None

    def entry(self, key: str, found: Mapping[str, Any], *, key_only: bool = False) -> Entry | None:
        """Returns the entry of a key's object, and None if the key was removed; raises StoreRefused."""
        known = Known.of(found)
        if known.is_removed:
            return None
        is_leased = bool(annotation(found, UNDER))
        return Entry(key, b"" if key_only else _value(found), known.revision, known.created, is_leased)


@dataclass(frozen=True, slots=True)
class Known:
    """What the next write of a key needs of the object in its place."""

    uid: str = field(repr=False)
    revision: int
    created: int
    is_removed: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Known:
        """Raises StoreRefused for an opaque version."""
        at = revision(version(found))
        created = annotation(found, CREATED)
        since = int(created) if _DECIMAL.fullmatch(created) else at
        return cls((found.get("metadata") or {}).get("uid") or "", at, since, REMOVED in labels(found))


def revision(version: str) -> int:
    """Returns the revision of a resourceVersion; raises StoreRefused for one without an order."""
    if not is_number(version) or len(version) > 18:
        raise StoreRefused(
            "the resourceVersions of this API server are no numbers, so nobody can say which of two is newer: a fleet "
            "needs a server as of KEP-5504, or an etcd (`fleet.etcd`)"
        )
    return int(version)


def lease_label(id: int) -> str:
    """Returns a lease's id as it is in labels and names."""
    return f"{id:016x}"


def lease_of(found: Mapping[str, Any]) -> str:
    """Returns the label of the lease that a record, or a Lease, has to do with; empty if there is none."""
    return labels(found).get(LEASE, "")


def seconds_under(found: Mapping[str, Any]) -> float | None:
    """Returns the seconds of the lease that a record is under; None if it is under none."""
    text = annotation(found, UNDER)
    if not text:
        return None
    try:
        return max(1.0, min(float(text), 86400.0))
    except ValueError:
        return 86400.0


def _value(found: Mapping[str, Any]) -> bytes:
    text = found.get("value") or ""
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError, binascii.Error):
        return b""  # nothing that the fleet has sealed


def _beginning(key: str) -> str:
    """Returns a text for a label: as it is if it may be, or in hexadecimal."""
    text = key[:_BEGINNING]
    return text if not text or (text.isascii() and text.isalnum()) else f"x-{text.encode().hex()}"


def _slug(text: str, most: int) -> str:
    """Returns what a name may have of a text: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
