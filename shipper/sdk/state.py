"""Keyed state: the last word about a thing, instead of every event that happened to it.

A key is (`owner`, `collection`, `key`); what is known of it is a JSON object, its document, or that it is deleted. Each
change of it is a `Version`: a place, by which versions of one key are ordered, and a digest of its content. A newer
version supersedes an older one that waits: a destination that was away for a day is sent one version of each key.

Inputs give a `Change` to `InputContext.keep`. Outputs get a batch whose column `versions` has one for each event; the
event is the document, of a deletion the empty object. State passes no processor and gets no envelope: the document
arrives byte by byte as it was given, so that its digest is the same everywhere.

A place is (epoch, sequence) in 63 bits. An epoch belongs to one process of the owner and is above all epochs that this
owner ever had, as far as is known; so versions of a restarted owner are newer than those before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import trio

from shipper.sdk.answers import Ranked

LONGEST_NAME = 255
"""Of an owner or a collection, in bytes of UTF-8."""
LONGEST_KEY = 4096
"""In bytes of UTF-8."""
LARGEST_PLACE = 2**63 - 1
DELETED = b"{}"
"""What stands in the body of a batch for a deletion."""

_SEQUENCE_BITS = 31


class Version(NamedTuple):
    """One version of a key, beside its document. `owner` is "" for keys of this shipper itself."""

    owner: str
    collection: str
    key: str
    place: int
    digest: bytes
    deleted: bool


class Change(NamedTuple):
    """What an input says of a key; `document` is compact JSON (see `compact`), None says that the key is deleted.

    A relay gives the `owner` and the `place` of what it received. Without a place the spool gives one: then this
    shipper speaks for that owner.
    """

    collection: str
    key: str
    document: bytes | None
    owner: str = ""
    place: int | None = None


class Kept(NamedTuple):
    """The answer for one change: the version that its key has now.

    `is_new`: it was stored as a new version. Neither new nor `fenced`: this very version, or the same document of an
    own key, was there before. `fenced`: refused for its place, since the key has a newer version, or at the same place
    another one; `place` and `digest` are those of that one. `is_full`: not stored, since the quota has no room for it.
    `awaited`: its final answers are awaited, and some are missing. `final`: all are there, and this is the worst.
    """

    place: int
    digest: bytes
    is_new: bool
    fenced: bool
    is_full: bool = False
    awaited: bool = False
    final: Ranked | None = None


class Quota(NamedTuple):
    """The most that an owner may have: keys that are not deleted, and bytes of documents, as they are stored.

    The number of keys also bounds how many deletions are remembered: the oldest of which nothing waits are forgotten.
    """

    keys: int
    bytes: int


class Mark(NamedTuple):
    """The current version of a key, without its name and its document.

    `point` is a number of 64 bits that collection and key give, whoever the owner is.
    """

    owner: str
    point: int
    place: int
    digest: bytes
    deleted: bool


class Decided(NamedTuple):
    """Versions that are wanted from the destination; and, if it is to be asked again, when."""

    wanted: Sequence[Version] = ()
    again: trio.Event | None = None


class RoutedState(Protocol):
    """The current versions of all keys that are routed to a lane; deletions that wait there are its versions too."""

    async def marks(self) -> list[Mark] | None:
        """All keys; None if no input of keyed state is routed to it."""
        ...

    async def send_again(self, keys: Sequence[tuple[str, int]]) -> None:
        """Have the current versions of these keys (by owner and point) sent, deletions too; unknown ones are not."""
        ...

    async def decide(self, surplus: Sequence[Version]) -> Decided:
        """Have both sides agree about keys of which the destination has these versions, which are not here.

        What this directory gave is deleted there. What another one gave, a newer copy of it or a lost one, is wanted if
        only those who were sent it can have it; the documents of an input that reads its source again count instead, as
        soon as it has read all. A key that has a newer version here is sent.
        """
        ...

    async def adopt(self, changes: Sequence[Change]) -> None:
        """Take what was wanted, with its place, unless the key has a newer version. Raises PluginFault."""
        ...

    async def gone(self, versions: Sequence[Version]) -> list[Version]:
        """Those of these versions that do not wait on this lane any more, as after a newer one: no answer counts."""
        ...

    async def place_above(self, place: int) -> None:
        """Have all versions from now on be newer than this place."""
        ...


def digest_of(document: bytes | None) -> bytes:
    """The digest of a document, SHA-256; of a deletion that of no bytes."""
    return hashlib.sha256(document or b"").digest()


def point_of(collection: str, key: str) -> int:
    """Where a key stands among those of its owner: a number of 64 bits."""
    return int.from_bytes(digest_of_names(collection, key)[:8], "big")


def digest_of_names(*names: str) -> bytes:
    """SHA-256 of names, each with its length."""
    digest = hashlib.sha256()
    for name in names:
        encoded = name.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()


def answers_key(owner: str, collection: str, key: str, place: int) -> str:
    """By which the final answers for a version are kept: it begins with the first part of the owner and a slash."""
    return f"{owner.partition('/')[0]}/{digest_of_names(owner, collection, key).hex()[:32]}/{place}"


def compact(document: bytes) -> bytes:
    """A JSON object on one line, without white space between its parts, numbers as they were written.

    Raises ValueError if it is none.
    """
    try:
        text = msgspec.json.format(document, indent=-1)
        text.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ValueError("it is no JSON") from None
    if not text.startswith(b"{"):
        raise ValueError("it is no JSON object")
    return text


def place_of(epoch: int, sequence: int) -> int:
    """The place of a version."""
    return epoch << _SEQUENCE_BITS | sequence


def epoch_of(place: int) -> int:
    """The epoch of a place."""
    return place >> _SEQUENCE_BITS
