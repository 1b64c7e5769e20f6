"""A request for logs, as both encodings have it: groups of records that share a resource and a scope. No I/O.

A value is text, bytes, a bool, an integer of 64 bits, a float, None, or a list or an object of these. What is empty or
0 was not said, as in OTLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from shipper.plugin import Fields

Value = Any
Message = TypeVar("Message")
MOST_DEPTH = 30
"""Levels of lists and objects in a value: a level takes three messages, and protobuf's readers take 100 in all."""
MOST_RECORDS = 100_000
"""Of a request, empty ones and groups counted too: each takes some hundred bytes as an object."""
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 63) - 1


class Unfit(ValueError):
    """A request or a record is not one that can be taken; the message quotes nothing of it."""


def too_many() -> Unfit:
    return Unfit(f"a request has at most {MOST_RECORDS} records")


def check_depth(depth: int) -> None:
    """Raises Unfit for a list or an object that is below MOST_DEPTH others."""
    if depth == MOST_DEPTH:
        raise Unfit(f"a value has more than {MOST_DEPTH} levels")


def flattened(value: Value) -> str:
    """What is written of a list or an object that is below MOST_DEPTH others: its JSON."""
    return msgspec.json.encode(value).decode()


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What made the records."""

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
    """A request that was read: its records, and those that cannot be taken."""

    groups: list[Group]
    rejected: int = 0
    reason: str = ""
    """Why the first of them cannot."""

    def add(
        self, resource: Resource, scope: Scope, messages: Iterable[Message], read: Callable[[Message], Record]
    ) -> None:
        """Add a group with the records that `read` makes of messages; those for which it raises Unfit are rejected."""
        group = Group(resource=resource, scope=scope, records=[])
        self.groups.append(group)
        for message in messages:
            try:
                group.records.append(read(message))
            except Unfit as why:
                self.rejected += 1
                self.reason = self.reason or str(why)
