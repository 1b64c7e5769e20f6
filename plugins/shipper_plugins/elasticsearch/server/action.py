"""The action lines of a bulk request: the operation on the document that follows, and its destination. No I/O.

`pipeline`, `routing` and `dynamic_templates` of an action are ignored: the policy's output decides how events are
written. A shipper supports neither `update` and `delete` nor conditional writes (`version`, `if_seq_no`): such an item
is answered 400.

A client sends the same line for each document, or lines that differ only in `_id`. One `split` extracts the ids of
thousands of such lines, since parsing a line takes 1.8 µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from shipper.plugin import DataStream, Fields
from shipper_plugins import data_streams
from shipper_plugins.elasticsearch.server.answer import Refusal, Reply

_LONGEST_ID = 512
_STREAM = re.compile(r"([a-z]{1,100})-([^-]{1,100})-([^-]{1,100})")
_NOT_IN_A_NAME = re.compile(r'[\\/*?"<>|,#:\x00-\x20\x7f]')
_PLAIN_ID = re.compile(rb'"_id": ?"([ !#-\[\]-~]+)"')
_NULL = msgspec.Raw(b"null")
_PLAIN = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\')


class Meta(msgspec.Struct):
    """The parameters of an action."""

    index: str | None = msgspec.field(default=None, name="_index")
    id: msgspec.Raw = msgspec.field(default=_NULL, name="_id")
    if_seq_no: msgspec.Raw = _NULL
    if_primary_term: msgspec.Raw = _NULL
    version: msgspec.Raw = _NULL
    version_type: msgspec.Raw = _NULL

    def id_text(self) -> str | None:
        """Returns the id as Elasticsearch does: for a number or a boolean, its text. Raises ValueError."""
        id = msgspec.json.decode(self.id, type=str | int | float | bool | None)
        return id if id is None or isinstance(id, str) else bytes(self.id).decode()


_decode = msgspec.json.Decoder(dict[Literal["create", "index", "update", "delete"], Meta]).decode

NOT_TAKEN = Refusal("illegal_argument_exception", "a log shipper takes [create] and [index], nothing else")
_BAD_INDEX = Refusal("invalid_index_name_exception", "the name of the index is not valid")
_BAD_ID = Refusal("illegal_argument_exception", f"an _id has 1 to {_LONGEST_ID} bytes")
_CONDITION = Refusal("illegal_argument_exception", "writing under a condition is not supported")


@dataclass(slots=True, eq=False)
class Action:
    """An action, common to lines that differ only in `_id`."""

    op: str
    target: Target
    refusal: Refusal | None
    created: Reply
    """The answer for an accepted document."""


def refusal_of(op: str, meta: Meta, target: Target, id: str | None) -> Refusal | None:
    """Returns why the shipper cannot perform the action, or None."""
    if op not in ("create", "index"):
        return NOT_TAKEN
    if not target.valid:
        return _BAD_INDEX
    if id is not None and not 0 < len(id.encode()) <= _LONGEST_ID:
        return _BAD_ID
    conditions = (meta.version, meta.version_type, meta.if_seq_no, meta.if_primary_term)
    if any(bytes(condition) != b"null" for condition in conditions):
        return _CONDITION
    return None


def parsed(line: bytes) -> tuple[str, Meta]:
    """Returns the operation and its parameters; raises ValueError."""
    try:
        [(op, meta)] = _decode(line).items()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not an action") from error
    return op, meta


def ids_at_once(lines: Sequence[bytes]) -> list[str] | None:
    """Returns the `_id`s of lines that differ in nothing else, so that all have the first one's action; or None."""
    found = _PLAIN_ID.search(lines[0])
    if found is None:
        return None
    before, id, after = lines[0][: found.start(1)], found[1], lines[0][found.end(1) :]
    if [_id_of(before + probe + after) for probe in (id, id + b"x")] != [id.decode(), id.decode() + "x"]:
        return None  # the match is inside another value, or a second `_id` follows
    text = b"\n".join(lines)
    ids = text[len(before) : -len(after)].split(after + b"\n" + before)
    if not text.endswith(after) or b"".join(ids).translate(None, _PLAIN):
        return None  # an id with a line feed shows that the lines differ elsewhere
    if not 0 < min(map(len, ids)) <= max(map(len, ids)) <= _LONGEST_ID:
        return None
    return b"\n".join(ids).decode().split("\n")


def _id_of(line: bytes) -> str | None:
    return parsed(line)[1].id_text()


# -- targets -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Group:
    """Documents that share a batch; `size` is in bytes."""

    shared: Fields
    route: str | None
    documents: list[bytes] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Target:
    """The destination of documents: an index or a data stream."""

    name: str
    stream: Fields | None
    named: bool
    """Whether the client named it."""
    valid: bool
    groups: dict[bool, Group] = field(default_factory=dict)

    @classmethod
    def of_stream(cls, stream: DataStream) -> Target:
        """Returns the target of documents without a named index."""
        fields = msgspec.to_builtins(stream)
        return cls(data_streams.name(fields), fields, named=False, valid=True)

    @classmethod
    def of_name(cls, name: str) -> Target:
        """Returns the target that a client names."""
        match = _STREAM.fullmatch(name)
        stream = dict(zip(("type", "dataset", "namespace"), match.groups(), strict=True)) if match else None
        return cls(name, stream, named=True, valid=_is_index_name(name))

    def agrees(self, own: Fields) -> bool:
        """Returns whether a document with this `data_stream` of its own may keep it, since it is the target's."""
        return self.stream is None or own == {"data_stream": self.stream}

    def group(self, own_stream: bool) -> Group:
        """Returns the group of documents with, or without, a `data_stream` of their own."""
        if own_stream not in self.groups:
            shared = {} if self.stream is None or own_stream else {"data_stream": self.stream}
            route = self.name if self.named and (own_stream or self.stream is None) else None
            self.groups[own_stream] = Group(shared, route)
        return self.groups[own_stream]


def _is_index_name(name: str) -> bool:
    return (
        0 < len(name.encode()) <= 255
        and name == name.lower()
        and name[0] not in "-_+"
        and name not in (".", "..")
        and _NOT_IN_A_NAME.search(name) is None
    )
