"""The bulk API for keyed state: turns a version of a key into a document, and answers into outcomes. No I/O.

A key has one document, under an id made of its owner, collection and key, in a plain index. The backend orders its
versions by `version_type: external`, where the version is the place, and answers 409 to a version that is not newer.
Beside the key's own fields the document has the field `shipper`, which identifies the version:

    {"index":{"_index":"state-inventory","_id":":inventory:web-1","version":7,"version_type":"external"}}
    {"shipper":{"owner":"","collection":"inventory","key":"web-1","place":7,"digest":"…","deleted":false}, …}

A 409 does not say what the backend has. So one `_mget` reads the documents of all conflicts of a request (`lookup`),
and `resolved` compares. It goes by `_version`, as the backend does: a person who edits a document raises that, and
leaves `shipper.place` unchanged.

A deletion is written as a document that has only `shipper`; or, where configured, it deletes. The backend remembers the
version of a deleted document for a while (`index.gc_deletes`), shows it only in the reason of a 409, and then forgets
it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
import orjson

from shipper.plugin import Answer, Batch, Code, Later, Outcome
from shipper.plugin.state import LARGEST_PLACE, Version, digest_of
from shipper_plugins.elasticsearch.client import bulk, encoding
from shipper_plugins.elasticsearch.client.reasons import repeatable, repeatable_type

Deletions = Literal["mark", "delete"]

FIELD = "shipper"
"""The field that identifies the version of a document. The document of a key must not have it."""
COLLECTION = "{collection}"
"""Stands for the collection in the name of an index."""
BULK = f"/_bulk?filter_path={bulk.FILTER}"
"""The path of requests."""
LOOKUP = "/_mget?_source_includes=shipper.place,shipper.digest&filter_path=" + ",".join(
    f"docs.{field}" for field in ("_id", "_version", "found", "_source", "error.type", "error.reason")
)
"""The path for reading the documents of conflicts."""

_LONGEST_INDEX = 255
_PIECE = 128 << 10
_NOT_OF_A_NAME = re.compile(rb"[^a-z0-9._-]")


# -- names -------------------------------------------------------------------------------------------------------------


def id_of(version: Version) -> str:
    """Returns the id of the document of a key; different keys have different ids.

    It is owner:collection:key, each with percent-escapes for all but ASCII letters, digits and `_.-~`; if that is too
    long for an id, `sha256:` and its digest.
    """
    id = ":".join([quote(part, safe="") for part in (version.owner, version.collection, version.key)])
    return id if len(id) <= encoding.LONGEST_ID else f"sha256:{hashlib.sha256(id.encode()).hexdigest()}"


def index_of(template: str, collection: str) -> str:
    """Returns the index of a collection.

    Each byte of its name other than small letters, digits and `.-_` becomes `_` and two hexadecimal digits; too long a
    name ends with the digest of its collection. Collections may share an index, as their ids differ.
    """
    part = _NOT_OF_A_NAME.sub(lambda found: f"_{found[0][0]:02x}".encode(), collection.encode()).decode()
    name = template.replace(COLLECTION, part)
    encoded = name.encode()
    if len(encoded) <= _LONGEST_INDEX:
        return name
    digest = hashlib.sha256(collection.encode()).hexdigest()
    return f"{encoded[: _LONGEST_INDEX - len(digest) - 1].decode(errors='ignore')}-{digest}"


def targets(batch: Batch, template: str) -> list[str]:
    """Returns the index of each version."""
    names = {collection: index_of(template, collection) for collection in {v.collection for v in _versions(batch)}}
    return [names[version.collection] for version in _versions(batch)]


def _versions(batch: Batch) -> Sequence[Version]:
    versions = [version for version in batch.versions or () if version is not None]
    if len(versions) != batch.count:
        raise ValueError("an event of keyed state has no version")
    return versions


# -- requests ----------------------------------------------------------------------------------------------------------


def unfit(batch: Batch) -> dict[int, Answer]:
    """Returns the answers, by position, for documents that have a field `shipper` themselves."""
    if FIELD.encode() not in batch.body and b"\\u" not in batch.body:
        return {}
    return {position: _TAKEN for position, document in enumerate(batch.own()) if FIELD in document}


_TAKEN = Answer(Outcome.REJECTED, f"the document has a field {FIELD} of its own")


def encode(
    batch: Batch, *, template: str, deletions: Deletions, limit: int, compression: encoding.Compression
) -> list[encoding.Request]:
    """Returns the requests for a batch, each of at most `limit` bytes before compression, or of one version."""
    if not batch.count:
        return []
    named = replace(batch, ids=tuple([id_of(version) for version in _versions(batch)]))
    texts = _texts(named, targets(batch, template), deletions)
    return encoding.gathered(named, texts, None, limit, compression)


def _texts(batch: Batch, names: Sequence[str], deletions: Deletions) -> Iterator[tuple[int, bytes]]:
    first = 0
    for piece in batch.pieces(_PIECE):
        documents = piece.json_lines().split(b"\n")
        for name, id, version, document in zip(
            names[first:], piece.ids or (), _versions(piece), documents, strict=False
        ):
            yield 1, _text(name, id or "", version, document, deletions)
        first += piece.count


def _text(index: str, id: str, version: Version, document: bytes, deletions: Deletions) -> bytes:
    action = {"_index": index, "_id": id, "version": version.place, "version_type": "external"}
    if version.deleted and deletions == "delete":
        return orjson.dumps({"delete": action}) + b"\n"
    told = orjson.dumps({FIELD: {**version._asdict(), "digest": version.digest.hex()}})
    rest = b"}" if version.deleted or document == b"{}" else b"," + document[1:]
    return b"%b\n%b%b\n" % (orjson.dumps({"index": action}), told[:-1], rest)


# -- answers -----------------------------------------------------------------------------------------------------------


class Conflict(msgspec.Struct, frozen=True):
    """A version that the backend refused, as it has one that is not older."""

    position: int
    index: str
    id: str
    version: Version
    reason: str
    current: int | None
    """The version that the backend has, as far as its answer shows."""


class Reading(msgspec.Struct, frozen=True):
    """The meaning of the answer to a request: by position, what was not simply delivered."""

    others: dict[int, Answer]
    conflicts: list[Conflict]


class _Entry(msgspec.Struct):
    index: bulk.Item | None = None
    delete: bulk.Item | None = None


class _Bulk(msgspec.Struct):
    items: list[_Entry]


class _Told(msgspec.Struct):
    place: int | None = None
    digest: str | None = None


class _Source(msgspec.Struct):
    shipper: _Told | None = None


class _Document(msgspec.Struct):
    id: str | None = msgspec.field(name="_id", default=None)
    version: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PLACE)] | None = msgspec.field(name="_version", default=None)
    found: bool = False
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw(b"{}"))
    error: bulk.Error | str | None = None


class _Documents(msgspec.Struct):
    docs: list[_Document]


_bulk = msgspec.json.Decoder(_Bulk)
_documents = msgspec.json.Decoder(_Documents)
_source = msgspec.json.Decoder(_Source)
_CURRENT = re.compile(
    r".*version conflict, current version \[([0-9]{1,19})\] is higher or equal to the one provided \[[0-9]{1,19}\]",
    re.DOTALL,
)


def read(answer: bytes, request: encoding.Request, names: Sequence[str]) -> Reading:
    """Returns the meaning of a bulk answer with status 200; `names` are the `targets` of its batch.

    Raises Later unless the answer has exactly one item for each version.
    """
    items = [_item(entry) for entry in bulk.decoded(_bulk, answer, request.count).items]
    bulk.check(items, request)
    ids, versions = request.ids(), _versions(request.batch)
    reading = Reading({}, [])
    for number, item in enumerate(items):
        at = request.first + number
        other = bulk.judge(item.status, item.error)
        if other is not None and other.outcome is Outcome.DUPLICATE:
            current = _current(item.error)
            reading.conflicts.append(Conflict(at, names[at], ids[number], versions[at], other.reason, current))
        elif other is not None:
            reading.others[at] = other
    return reading


def _item(entry: _Entry) -> bulk.Item:
    if entry.delete is not None and entry.delete.status == 404 and entry.delete.error is None:
        return bulk.Item(200, entry.delete.id)  # there was no document to delete
    item = entry.index or entry.delete
    if item is None:
        raise Later("the answer is not that of a bulk request", code=Code.BAD_ANSWER)
    return item


def _current(error: bulk.Error | str | None) -> int | None:
    found = _CURRENT.fullmatch(error.reason or "") if isinstance(error, bulk.Error) else None
    return int(found[1]) if found and int(found[1]) <= LARGEST_PLACE else None


def lookup(conflicts: Sequence[Conflict]) -> bytes:
    """Returns the body of a request to `LOOKUP`."""
    return orjson.dumps({"docs": [{"_index": conflict.index, "_id": conflict.id} for conflict in conflicts]})


def resolved(answer: bytes, conflicts: Sequence[Conflict]) -> dict[int, Answer]:
    """Returns the answers for conflicts, by position, from the documents that the backend has.

    Raises Later unless these are exactly one for each conflict.
    """
    documents = bulk.decoded(_documents, answer, len(conflicts)).docs
    if [document.id for document in documents] != [conflict.id for conflict in conflicts]:
        raise Later("the answer is not about the documents that were asked for", code=Code.BAD_ANSWER)
    pairs = zip(conflicts, documents, strict=True)
    return {conflict.position: _answer(conflict, document) for conflict, document in pairs}


def _answer(conflict: Conflict, document: _Document) -> Answer:
    if document.error is not None:
        return _unread(document.error)
    current = document.version if document.found else conflict.current
    place = conflict.version.place
    if current is None:
        return Answer(Outcome.SUPERSEDED, conflict.reason)
    if current < place:
        return Answer(Outcome.LATER, f"{conflict.reason}, and the version there is older by now")
    digest = _digest(document) if document.found else digest_of(None)
    if current == place and digest == conflict.version.digest:
        return Answer(Outcome.DUPLICATE, conflict.reason)
    return Answer(Outcome.SUPERSEDED, conflict.reason, fence=(current, digest))


def _digest(document: _Document) -> bytes:
    """Returns the digest of the version that a document names; empty if it was changed since, or is not ours."""
    try:
        told = _source.decode(document.source).shipper
        return bytes.fromhex(told.digest or "") if told is not None and told.place == document.version else b""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return b""


def _unread(error: bulk.Error | str) -> Answer:
    """Returns the answer for a conflict whose document could not be read."""
    known = error if isinstance(error, bulk.Error) else bulk.Error()
    words = ": ".join(filter(None, (repeatable_type(known.type), repeatable(known.reason))))
    reason = f"409, and what is there cannot be read: {words}" if words else "409, and what is there cannot be read"
    if known.type == "security_exception":
        return Answer(Outcome.HELD, reason, of_target=True, code=Code.FORBIDDEN)
    return Answer(Outcome.LATER, reason, of_target=True)
