"""Keys and entries: the fleet's key `head` is the key PREFIX + `head` of etcd. No I/O."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from shipper.fleet.etcd.answers import KeyValue
from shipper.fleet.store import Change, Entry


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys below one prefix."""

    prefix: str

    def of(self, key: str) -> str:
        """Returns a key for a message to etcd."""
        return coded(self.shown(key).encode())

    def range(self, prefix: str) -> tuple[str, str]:
        """Returns the first key and the end of all that begin with `prefix`, for a message to etcd."""
        first = self.shown(prefix).encode()
        return coded(first), coded(_after_all(first))

    def shown(self, key: str) -> str:
        """Returns a key as etcd has it, for people."""
        return self.prefix + key

    def entry(self, found: KeyValue) -> Entry:
        return Entry(self._key(found), found.value, found.mod_revision, found.create_revision, found.lease != 0)

    def change(self, found: KeyValue, *, removed: bool) -> Change:
        return Change(self._key(found), None if removed else self.entry(found), found.mod_revision)

    def _key(self, found: KeyValue) -> str:
        return found.key.decode(errors="backslashreplace").removeprefix(self.prefix)


def coded(raw: bytes) -> str:
    """Returns bytes for a message to etcd."""
    return base64.b64encode(raw).decode()


def _after_all(prefix: bytes) -> bytes:
    """Returns the first key that is behind all that begin with a prefix in UTF-8, so without the byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\0"
