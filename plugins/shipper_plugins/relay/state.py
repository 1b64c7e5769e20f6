"""What one shipper posts to another of keyed state: versions, and the search for differences. No I/O.

The body of `POST /v1/relay/versions`, of the type `application/vnd.shipper.relay-state`; numbers are big-endian:

    4 bytes   SHS1
    4 bytes   the length of the head
    head      a JSON object: `StateHead`
    the rest  versions with their documents: a batch, compressed by deflate, as `Batch.pack` makes it

The answer is `StateAnswered`. A version needs no memory at the receiver beside that of its key: a repeated version has
the place and the digest that are stored. A document that is larger than the receiver permits is withheld: its version
comes without it, so that the receiver knows which place it refused.

`POST /v1/relay/compare` is one question of `digests`, `POST /v1/relay/surplus` asks for the names of keys, and `POST
/v1/relay/documents` for their documents. All are JSON.

An owner is written as the sender has it: "" for its own keys. To the receiver, those belong to the edge, and an owner
that the sender knows by a name is below the edge: `berlin/mitte`. So no edge can name what is not its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from shipper.plugin import Batch
from shipper.plugin.relay import Oversized, Ranked
from shipper.plugin.state import Change, Mark, Quota, Version, digest_of, digest_of_names, place_of, point_of
from shipper_plugins.relay.digests import Digests
from shipper_plugins.relay.frames import MOST_HEAD, FrameError, Generation, Head, Number, TooLong, framed, read

MEDIA_TYPE: Final = "application/vnd.shipper.relay-state"
MOST_VERSIONS: Final = 4000
"""The most versions of one request."""
MOST_NAMED: Final = 256
"""The most keys whose names are asked for at once."""
MOST_GIVEN: Final = 1 << 20
"""Bytes of documents that are given at once; a single one may be larger."""

HIGHEST_PLACE: Final = place_of((1 << 32) - (1 << 24), 0)
"""The highest place from an edge. There are sixteen million epochs above it, so that no edge can use up the others'
places."""

_MAGIC: Final = b"SHS1"
_LENGTH: Final = struct.Struct(">I")
_POINTS: Final = 1 << 64

Point = Annotated[int, msgspec.Meta(ge=0)]
Code = Literal["duplicate", "fenced", "collection", "too_large", "full", "awaited", "final"]


class StateHead(msgspec.Struct, frozen=True):
    """What a request has beside its versions."""

    generation: Generation
    link: Number
    low: Number
    withheld: Annotated[list[Number], msgspec.Meta(max_length=MOST_VERSIONS)] = []
    """Versions, by position, whose documents are too large to come."""
    waiting: Number = 0
    """See `frames.Head`."""
    versions: Number = 0
    """See `frames.Head`."""

    @classmethod
    def of(cls, head: Head) -> StateHead:
        """Returns the head for any request; nothing is withheld."""
        return cls(head.generation, head.link, head.low, waiting=head.waiting, versions=head.versions)


class Other(msgspec.Struct, frozen=True, array_like=True):
    """The answer for a version that was not simply stored; `place` and `digest` (in hexadecimal) are those of a fence.

    `collection` and `too_large` refuse it for ever; `full` does not. `awaited`: it is stored, and its final answer
    follows (`frames.Told`). `final`: it came before, and `answer` is the worst of its outputs.
    """

    at: Number
    code: Code
    place: Number = 0
    digest: str = ""
    answer: Ranked = Ranked.DELIVERED


class StateAnswered(msgspec.Struct, frozen=True):
    """The answer to versions; every other version is stored."""

    others: list[Other]

    def is_any_stored(self, count: int) -> bool:
        """Whether one of `count` versions is confirmed as stored, whatever becomes of it."""
        return len(self.others) < count or any(other.code == "duplicate" for other in self.others)

    @property
    def left(self) -> int:
        """Returns the number of versions without a final answer."""
        return sum(other.code in ("full", "awaited") for other in self.others)


class Compare(msgspec.Struct, frozen=True):
    """A question of `digests.Comparison`."""

    generation: Generation
    link: Number
    question: bytes


class Compared(msgspec.Struct, frozen=True):
    """The answer, with the highest place that the receiver knows of the edge's own keys, and of those below it."""

    answer: bytes
    highest: Number = 0
    highest_of_all: Number = 0


class Surplus(msgspec.Struct, frozen=True):
    """Asks for the names of the keys at these points, of any owner of the edge."""

    generation: Generation
    link: Number
    points: Annotated[list[Point], msgspec.Meta(max_length=MOST_NAMED)]


class Wanted(msgspec.Struct, frozen=True):
    """Asks for the current versions of keys with their documents, by owner and point."""

    generation: Generation
    link: Number
    keys: Annotated[list[tuple[str, Point]], msgspec.Meta(min_length=1, max_length=MOST_NAMED)]


class Given(msgspec.Struct, frozen=True):
    """The answer: owner, collection, key, place and document of each; keys that are gone meanwhile are missing.

    It covers the first `read` of the keys: together they have as many bytes as are given at once.
    """

    read: Annotated[int, msgspec.Meta(ge=1)]
    versions: list[tuple[str, str, str, Number, str]]

    def changes(self) -> list[Change]:
        return [Change(collection, key, text.encode(), owner, at) for owner, collection, key, at, text in self.versions]


class Named(msgspec.Struct, frozen=True):
    """The answer: owner, collection, key and place of each; keys that are gone meanwhile are missing."""

    keys: list[tuple[str, str, str, Number]]

    def versions(self) -> list[Version]:
        return [Version(owner, collection, key, place, b"", False) for owner, collection, key, place in self.keys]


# -- bodies ------------------------------------------------------------------------------------------------------------


class Arrived(NamedTuple):
    """A version as it came; `document` is None for a deletion, and for a withheld document."""

    version: Version
    document: bytes | None
    is_withheld: bool


def encode(head: StateHead, batch: Batch, most: int) -> list[bytes]:
    """Returns the pieces of a body for the versions of a batch; documents of more than `most` bytes are withheld."""
    documents = batch.body.split(b"\n")[:-1]
    withheld = [at for at, document in enumerate(documents) if len(document) > most]
    for at in withheld:
        documents[at] = b"{}"
    packed = Batch.documents(documents).with_columns(versions=batch.versions).pack()
    said = msgspec.json.encode(msgspec.structs.replace(head, withheld=withheld))
    return [_MAGIC, _LENGTH.pack(len(said)), said, packed]


def decode(body: bytes, limit: int) -> tuple[StateHead, list[Arrived]]:
    """Reads the versions of a body. Raises FrameError, or TooLong if documents take more than `limit` bytes."""
    if not body.startswith(_MAGIC):
        raise FrameError("the body is no request of this protocol")
    said, at = framed(body, len(_MAGIC))
    if len(said) > MOST_HEAD * 8:
        raise FrameError("the head is too long")
    head = read(said, StateHead)
    try:
        batch = Batch.unpack(body[at:], origin=b"\0" * 16, seq=0, limit=limit)
    except Oversized:
        raise TooLong(f"the documents are larger than {limit} bytes") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise FrameError("the body holds no versions") from None
    versions, count = batch.versions, batch.body.count(b"\n")
    if versions is None or not len(versions) == count <= MOST_VERSIONS:
        raise FrameError(f"a request has a version for each document, and up to {MOST_VERSIONS}")
    withheld, documents = frozenset(head.withheld), batch.body.split(b"\n")[:-1]
    return head, [
        _arrived(one, document, at in withheld)
        for at, (one, document) in enumerate(zip(versions, documents, strict=True))
    ]


def _arrived(version: Version | None, document: bytes, is_withheld: bool) -> Arrived:
    if version is None or not 0 < version.place < HIGHEST_PLACE or len(version.digest) != 32:
        raise FrameError("a version is invalid")
    given = None if version.deleted or is_withheld else document
    if not is_withheld and version.digest != digest_of(given):
        raise FrameError("a document is not that of its digest")
    return Arrived(version, given, is_withheld)


def owner_at(edge: str, owner: str) -> str:
    """Returns the receiver's name of an owner of the sender."""
    return f"{edge}/{owner}" if owner else edge


def owner_from(edge: str, owner: str) -> str:
    """Returns the sender's name of an owner of the receiver."""
    return owner[len(edge) + 1 :]


def name_at(edge: str, version: Version) -> str:
    """Returns the digest of the sender's key as the receiver names it: `frames.VersionOutcome`."""
    return digest_of_names(owner_at(edge, version.owner), version.collection, version.key).hex()[:32]


# -- refusals ----------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """The limits of an edge."""

    collections: frozenset[str] = frozenset()
    max_document_bytes: int = 0
    quota: Quota = Quota(0, 0)

    def refuses(self, collection: str, size: int) -> Code | None:
        """Returns why a document of this size is refused for ever, if it is."""
        if collection not in self.collections:
            return "collection"
        return "too_large" if size > self.max_document_bytes else None


NOTHING: Final = Limits()


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """A version that was refused for ever: the receiver remembers its place as if it had it."""

    owner: str
    point: int
    collection: str
    size: int
    place: int
    digest: bytes

    def pack(self) -> bytes:
        """Returns it as a position of the input."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, packed: bytes) -> Refusal:
        """Reads what `pack` has made; raises ValueError for anything else."""
        try:
            return msgspec.msgpack.decode(packed, type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError("not a refusal") from error


def refusal_of(arrived: Arrived, limits: Limits) -> Refusal:
    """Returns what to remember of a refused version; a withheld one is at least as large as the smallest too large."""
    version = arrived.version
    size = limits.max_document_bytes + 1 if arrived.is_withheld else len(arrived.document or b"")
    point = point_of(version.collection, version.key) % _POINTS
    return Refusal(version.owner, point, version.collection, size, version.place, version.digest)


def name_of(version: Version) -> str:
    """Returns the key under which a refusal is stored."""
    return digest_of_names(version.owner, version.collection, version.key).hex()[:32]


# -- sets to compare ---------------------------------------------------------------------------------------------------


def digests_of(
    marks: Sequence[Mark], refused: Iterable[Refusal] = (), limits: Limits = NOTHING, *, edge: str = ""
) -> Digests:
    """Returns the set of one side, with owners as the sender names them; a refusal stands for the content of its key.

    At the receiver, the owners are those of an `edge`.
    """
    if refused := [one for one in refused if limits.refuses(one.collection, one.size)]:
        marks = _instead(marks, {(_owner_at(edge, one.owner), one.point): one for one in refused})
    owners = {owner: (owner_from(edge, owner) if edge else owner).encode() for owner in {mark.owner for mark in marks}}
    blake2b = hashlib.blake2b  # a hundred thousand times
    return Digests(
        (point, blake2b(b"%b%d/%d/%b" % (owners[owner], point, place, digest), digest_size=16).digest())
        for owner, point, place, digest, deleted in marks
        if not deleted
    )


def _owner_at(edge: str, owner: str) -> str:
    return owner_at(edge, owner) if edge else owner


def _instead(marks: Sequence[Mark], refused: dict[tuple[str, int], Refusal]) -> list[Mark]:
    """Returns the marks with refusals in place of older versions, by owner and point."""
    for mark in marks:
        one = refused.get((mark.owner, mark.point))
        if one is not None and one.place <= mark.place:
            del refused[mark.owner, mark.point]
    newer = [Mark(owner, point, one.place, one.digest, deleted=False) for (owner, point), one in refused.items()]
    return [mark for mark in marks if (mark.owner, mark.point) not in refused] + newer


def keys_of(marks: Iterable[Mark], points: frozenset[int]) -> list[tuple[str, int]]:
    """Returns the keys at these points, by owner and point."""
    return [(mark.owner, mark.point) for mark in marks if mark.point in points]


def highest(marks: Iterable[Mark], owner: str) -> int:
    """Returns the highest place of an owner's keys; 0 if it has none."""
    return max((mark.place for mark in marks if mark.owner == owner), default=0)


def answered(kept: Mapping[int, Other]) -> StateAnswered:
    return StateAnswered([kept[at] for at in sorted(kept)])


def chunks(points: Sequence[int]) -> Iterable[Sequence[int]]:
    """Splits keys into lists of as many as are asked for at once."""
    return (points[at : at + MOST_NAMED] for at in range(0, len(points), MOST_NAMED))
