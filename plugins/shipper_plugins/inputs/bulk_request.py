"""A bulk request, read while it arrives: batches to store, and one answer for each item. No I/O.

    request = BulkRequest(stream=DataStream(), received="2026-01-01T00:00:00.000Z")
    request.feed(block)              # as often as bytes arrive, cut anywhere
    batches = request.finish()       # store them, and only then say:
    body = request.answers.body(took=3)

The body is never held as a whole: whole lines are judged as they come and move into batches of about 1 MiB. A request
is refused as a whole (`RequestRefused`, nothing may be stored) where Elasticsearch does so: a malformed action line, a
missing line feed at the end; everything else is the answer of one item.

Where a document goes: `_index` (of the action, else of the URL) of the form type-dataset-namespace becomes
`data_stream.*` in `Batch.shared`, any other name is `Batch.index`, and without a name the input's own stream counts. A
document that has a `data_stream` of its own (nested or dotted) keeps it as it is, untouched; if its client named an
index as well, that index goes along in `Batch.index`, since it is where the client wants it.

A document stays the bytes that came. It is taken only if orjson loads it (what loads it later is orjson too, so an
event that is stored can never break a processor) and if no object in it, at any depth, has the same key twice. One
trick answers nearly all of that: if orjson writes what it read as the same bytes again, the document is valid, compact
and without duplicate keys (2.4 µs for 300 bytes, Python objects included). Only others (white space, `\\/`, `1.50`) are
looked at closely, for 4 µs more. Refused: one msgspec.Raw for each top-level field takes 0.7 µs, but lets invalid
UTF-8, 1e999 and duplicate keys through, and closing these gaps costs more than it saves.

`pipeline`, `routing` and `dynamic_templates` of an action are ignored: the policy's output says how events are written.
`update`, `delete` and writes under a condition (`version`, `if_seq_no`) cannot be kept by a shipper: 400 for the item.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import orjson

from shipper.plugin import Batch, DataStream, Fields
from shipper_plugins.inputs.bulk_answer import ItemAnswers, Refusal, Reply, RequestRefused

MOST_ITEMS = 500_000
MOST_PLACES = 1000
DEEPEST = 100
"""Levels of a document. orjson loads 1024, but writes 254, and others wrap an event into one of their own."""
ITEM_BYTES = 200
"""What an item costs beside its bytes: objects while it is read, and its answer."""

_BATCH_BYTES = 1 << 20
_CACHED_ACTIONS = 1000
_LONGEST_ID = 512
_STREAM = re.compile(r"([a-z]+)-([^-]{1,100})-([^-]{1,100})")
_NOT_IN_A_NAME = re.compile(r'[\\/*?"<>|,#:\x00-\x20\x7f]')


class BulkRequest:
    """One request; `received` is the `@timestamp` of documents that have none, `index` the one of the URL."""

    def __init__(self, *, stream: DataStream, received: str, index: str | None = None, filter_path: str = "") -> None:
        self.answers = ItemAnswers(filter_path)
        self.held = 0
        """About how many bytes of memory this request takes."""
        self._received = received
        self._index = index
        self._places: dict[str | None, _Place] = {None: _Place.of_stream(stream)}
        self._actions: dict[bytes, _Action] = {}
        self._action: _Action | None = None
        """The one whose document comes next."""
        self._rest = bytearray()
        self._line = self._items = 0
        self._batches: list[Batch] = []

    def feed(self, block: bytes) -> None:
        """Read on; raises RequestRefused, after which the request is of no more use."""
        lines, newline, rest = block.rpartition(b"\n")
        items = self._items
        if newline:
            text = bytes(self._rest) + lines
            self._rest = bytearray(rest)
            self._read(text.replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n"))
        else:
            self._rest += rest
        self.held += len(block) + (self._items - items) * ITEM_BYTES

    def finish(self) -> list[Batch]:
        """What to store, in one transaction; raises RequestRefused if the body does not end as it must."""
        if self._rest:
            raise _malformed("The bulk request must be terminated by a newline [\\n]")
        if self._action is not None:
            raise _malformed(f"the action of line [{self._line}] has no document")
        if not self._items:
            raise RequestRefused(400, "parse_exception", "request body is required")
        for place in self._places.values():
            for group in place.groups.values():
                self._flush(group)
        return self._batches

    def _read(self, lines: list[bytes]) -> None:
        action = self._action
        for line in lines:
            self._line += 1
            if action is not None:
                self._take(action, line)
                action = None
            elif line and not line.isspace():
                action = self._begin(line)
        self._action = action

    def _begin(self, line: bytes) -> _Action | None:
        """The action of a line, if a document follows."""
        self._items += 1
        if self._items > MOST_ITEMS:
            raise _too_large(f"a request has at most {MOST_ITEMS} items")
        action = self._actions.get(line) or self._parse(line)
        if action.op != "delete":
            return action
        self.answers.refused(action.op, action.place.name, _NOT_TAKEN, action.id)
        return None

    def _parse(self, line: bytes) -> _Action:
        try:
            [(op, meta)] = _decode_action(line).items()
        except (msgspec.MsgspecError, ValueError, RecursionError):
            expected = "expected one of [create, delete, index, update] with an object"
            raise _malformed(f"Malformed action/metadata line [{self._line}], {expected}") from None
        place = self._place(self._index if meta.index is None else meta.index)
        id = None if meta.id is None else str(meta.id)
        action = _Action(op, place, id, _refusal(op, meta, place, id), self.answers.reply(op, place.name))
        if id is None and len(self._actions) < _CACHED_ACTIONS:
            self._actions[line] = action
        return action

    def _place(self, name: str | None) -> _Place:
        if name is not None and name not in self._places:
            if len(self._places) > MOST_PLACES:
                raise _too_large(f"a request names at most {MOST_PLACES} indices")
            self._places[name] = _Place.of_name(name)
        return self._places[name]

    def _take(self, action: _Action, line: bytes) -> None:
        refusal = action.refusal
        if refusal is None:
            try:
                document, timed, own_stream = checked(line)
            except ValueError as error:
                refusal = Refusal("document_parsing_exception", str(error))
            else:
                groups = action.place.groups
                group = groups.get((timed, own_stream)) or action.place.group(timed, own_stream, self._received)
                self._put(group, document, action.id)
                self.answers.created(action.created, action.id)
                return
        self.answers.refused(action.op, action.place.name, refusal, action.id)

    def _put(self, group: _Group, document: bytes, id: str | None) -> None:
        if group.size + len(document) > _BATCH_BYTES and group.size:
            self._flush(group)
        group.documents.append(document)
        group.ids.append(id)
        group.size += len(document)

    def _flush(self, group: _Group) -> None:
        if group.documents:
            batch = Batch.documents(group.documents, shared=group.shared, ids=group.ids, index=group.index)
            self._batches.append(batch)
            group.documents, group.ids, group.size = [], [], 0


def _malformed(reason: str) -> RequestRefused:
    return RequestRefused(400, "illegal_argument_exception", reason)


def _too_large(reason: str) -> RequestRefused:
    return RequestRefused(413, "content_too_long_exception", reason)


# -- actions -----------------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct):
    index: str | None = msgspec.field(default=None, name="_index")
    id: str | int | None = msgspec.field(default=None, name="_id")
    if_seq_no: Any = None
    if_primary_term: Any = None
    version: Any = None
    version_type: Any = None


_decode_action = msgspec.json.Decoder(dict[Literal["create", "index", "update", "delete"], _Meta]).decode

_NOT_TAKEN = Refusal("illegal_argument_exception", "a log shipper takes [create] and [index], nothing else")
_BAD_INDEX = Refusal("invalid_index_name_exception", "the name of the index is not valid")
_BAD_ID = Refusal("illegal_argument_exception", f"an _id has 1 to {_LONGEST_ID} bytes")
_CONDITION = Refusal("illegal_argument_exception", "writing under a condition is not supported")


@dataclass(slots=True)
class _Action:
    op: str
    place: _Place
    id: str | None
    refusal: Refusal | None
    created: Reply
    """The answer for a document that is taken."""


def _refusal(op: str, meta: _Meta, place: _Place, id: str | None) -> Refusal | None:
    if op not in ("create", "index"):
        return _NOT_TAKEN
    if not place.valid:
        return _BAD_INDEX
    if id is not None and not 0 < len(id.encode()) <= _LONGEST_ID:
        return _BAD_ID
    if any(part is not None for part in (meta.version, meta.version_type, meta.if_seq_no, meta.if_primary_term)):
        return _CONDITION
    return None


# -- places ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Documents that share a batch; `size` is in bytes."""

    shared: Fields
    index: str | None
    documents: list[bytes] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Place:
    """Where documents go: an index or a data stream."""

    name: str
    stream: Fields | None
    named: bool
    """Whether the client said so."""
    valid: bool
    groups: dict[tuple[bool, bool], _Group] = field(default_factory=dict)

    @classmethod
    def of_stream(cls, stream: DataStream) -> _Place:
        fields = msgspec.to_builtins(stream)
        return cls("{type}-{dataset}-{namespace}".format(**fields), fields, named=False, valid=True)

    @classmethod
    def of_name(cls, name: str) -> _Place:
        match = _STREAM.fullmatch(name)
        stream = dict(zip(("type", "dataset", "namespace"), match.groups(), strict=True)) if match else None
        return cls(name, stream, named=True, valid=_is_index_name(name))

    def group(self, timed: bool, own_stream: bool, received: str) -> _Group:
        """A new group, of documents with or without an own `@timestamp`, and an own `data_stream`."""
        shared: Fields = {} if timed else {"@timestamp": received}
        if self.stream is not None and not own_stream:
            shared["data_stream"] = self.stream
        index = self.name if self.named and (own_stream or self.stream is None) else None
        self.groups[timed, own_stream] = group = _Group(shared, index)
        return group


def _is_index_name(name: str) -> bool:
    return (
        0 < len(name.encode()) <= 255
        and name == name.lower()
        and name[0] not in "-_+"
        and name not in (".", "..")
        and _NOT_IN_A_NAME.search(name) is None
    )


# -- documents ---------------------------------------------------------------------------------------------------------


def checked(line: bytes) -> tuple[bytes, bool, bool]:
    """The document as it is stored; whether it has an own `@timestamp`, and an own `data_stream`.

    Raises ValueError for what is not to be stored; its words never quote the document.
    """
    try:
        document = orjson.loads(line)
    except ValueError:
        raise ValueError("the document is not valid JSON") from None
    if type(document) is not dict:
        raise ValueError("the document is not a JSON object")
    if line.count(b"{") + line.count(b"[") > DEEPEST or orjson.dumps(document) != line:
        line = _checked_closely(line, document)
    return line, "@timestamp" in document, "data_stream" in document or _has_dotted_stream(line, document)


def _has_dotted_stream(line: bytes, document: Fields) -> bool:
    may_have = b'"data_stream.' in line or b"\\u" in line
    return may_have and any(key.startswith("data_stream.") for key in document)


def _checked_closely(line: bytes, document: Fields) -> bytes:
    if _is_deeper(document, DEEPEST):
        raise ValueError(f"the document is nested more than {DEEPEST} levels deep")
    try:
        _strict.decode(line.decode())
    except (ValueError, RecursionError):
        raise ValueError("the document has the same key twice in one object") from None
    if line.startswith((b'{"', b"{}")) and b"\r" not in line:
        return line
    return msgspec.json.format(line, indent=-1)


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands here twice")


_strict = json.JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)
