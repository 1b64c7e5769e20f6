"""The model of a request, common to both encodings: groups of records that share a resource and a scope. No I/O.

A value is text, bytes, a bool, an integer of 64 bits, a float, None, or a list or an object of these. Empty and 0 mean
unset, as in OTLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from shipper.plugin import Fields

Value = Any
Message = TypeVar("Message")
MOST_DEPTH = 30
"""Levels of lists and objects in a value: a level takes three messages, and protobuf's readers allow 100."""
MOST_RECORDS = 100_000
"""Records and groups of a request, empty ones included: each takes some hundred bytes as an object."""
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 63) - 1


class Unfit(ValueError):
    """A request or a record is invalid; the message quotes nothing of it."""


class TooHeavy(Unfit):
    """A request becomes too much; the same records in several requests do not."""


def too_many() -> Unfit:
    return Unfit(f"a request has at most {MOST_RECORDS} records")


def check_depth(depth: int) -> None:
    """Raises Unfit for a list or an object below MOST_DEPTH others."""
    if depth == MOST_DEPTH:
        raise Unfit(f"a value has more than {MOST_DEPTH} levels")


def flattened(value: Value) -> str:
    """Returns the JSON of a list or an object, which replaces it below MOST_DEPTH others."""
    return msgspec.json.encode(value).decode()


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of the records."""

    attributes: Fields = {}
    dropped: int = 0
    schema_url: str = ""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The library that wrote the records."""

    name: str = ""
    version: str = ""
    attributes: Fields = {}
    dropped: int = 0
    schema_url: str = ""


class Record(msgspec.Struct, kw_only=True, gc=False):
    """One log record; times are nanoseconds since the epoch."""

    time: int = 0
    observed: int = 0
    severity: int = 0
    severity_text: str = ""
    body: Value = None
    attributes: Fields = {}
    dropped: int = 0
    flags: int = 0
    trace_id: bytes = b""
    span_id: bytes = b""
    event_name: str = ""


class Group(msgspec.Struct, kw_only=True):
    """Records with one resource and one scope."""

    resource: Resource = Resource()
    scope: Scope = Scope()
    records: list[Record] = []


class Decoded(msgspec.Struct, kw_only=True):
    """A decoded request: its valid records, and the number of invalid ones."""

    groups: list[Group]
    rejected: int = 0
    reason: str = ""
    """The reason of the first invalid one."""

    def add(
        self, resource: Resource, scope: Scope, messages: Iterable[Message], read: Callable[[Message], Record]
    ) -> None:
        """Adds a group with the records that `read` returns; a message for which it raises Unfit is rejected."""
        group = Group(resource=resource, scope=scope, records=[])
        self.groups.append(group)
        for message in messages:
            try:
                group.records.append(read(message))
            except Unfit as why:
                self.rejected += 1
                self.reason = self.reason or str(why)
