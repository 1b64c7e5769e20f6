"""Answers in the format of Elasticsearch: to the requests of clients before they ship, to refused requests, and to the
items of accepted ones. No I/O.

Thousands of items differ only in `_id`, or not at all. So an answer is encoded once for each kind of item (operation,
index, refusal), filtered by `filter_path`, and split at the place of the id: an item costs one concatenation, or none.
If the client gave no id, it is the empty string: a string, since typed clients need one, and an invalid id, since the
document's real id is made later.

An answer contains constants and the client's own names (index, id), never parts of a document.

`filter_path` is untrusted too: its result is cached for each operation, not for each index, and its paths are a set at
each level, since paths like `**.**` multiply there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from operator import eq
from typing import Any, NamedTuple

import orjson

from shipper.plugin import Fields, Size
from shipper.sdk.columns import encoded
from shipper_plugins.wildcards import fits

MOST_BYTES = 64 << 20
"""The limit of an answer; for a moment it takes twice as much. Half a million items of usual names take 52 MiB."""
MOST_NAMES = 200
"""The limit of names in a `filter_path`; clients send about thirty."""


class RequestRefused(Exception):
    """The whole request is answered with this status and error, and nothing is stored."""

    def __init__(self, status: int, type: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.type = type
        self.reason = reason

    def body(self) -> bytes:
        """Returns the error in the format of Elasticsearch."""
        cause = {"type": self.type, "reason": self.reason}
        return orjson.dumps({"error": {"root_cause": [cause], **cause}, "status": self.status})


class Refusal(NamedTuple):
    """The cause of a 400 for an item."""

    type: str
    reason: str


class Reply(NamedTuple):
    """The answers of one kind: the text before and after the id; empty if `filter_path` drops all of it."""

    before: bytes
    after: bytes


class ItemAnswers:
    """The answers for the items of one request, in their order.

    `filter_path` has Elasticsearch's meaning for inclusive paths; exclusive ones (`-path`) are ignored, so such a
    client gets more than it requested.
    """

    def __init__(self, filter_path: str = "") -> None:
        """Raises RequestRefused for a filter of too many names."""
        self._paths = {_path(path) for path in filter_path.split(",") if path and not path.startswith("-")}
        if sum(map(len, self._paths)) > MOST_NAMES:
            raise RequestRefused(400, "illegal_argument_exception", f"a filter_path has at most {MOST_NAMES} names")
        self._kept: dict[tuple[str, bool], Any] = {}
        self._replies: dict[tuple[str, str, Refusal | None], Reply] = {}
        self._items: list[bytes] = []
        self._errors = False
        self.size = 0
        """Bytes of the answers so far."""

    def reply(self, op: str, index: str, refusal: Refusal | None = None) -> Reply:
        """Returns the answer for created, or refused, items."""
        key = (op, index, refusal)
        if key not in self._replies:
            item: Fields = {"_index": index, "_id": "", "_version": 1, "result": "created", "status": 201}
            if refusal is not None:
                item = {"_index": index, "_id": "", "status": 400, "error": refusal._asdict()}
            kept = self._filtered(op, item)
            before, mark, after = (orjson.dumps(kept["items"]) if kept else b"").partition(b'"_id":"')
            self._replies[key] = Reply(before + mark, after)
        return self._replies[key]

    def _filtered(self, op: str, item: Fields) -> Any:
        """Returns the parts of an item that the paths keep."""
        shape = (op, "error" in item)
        if shape not in self._kept:
            self._kept[shape] = filtered({"items": {op: item}}, self._paths)
        kept = self._kept[shape]
        return None if kept is None else _selected({"items": {op: item}}, kept)

    def created(self, reply: Reply, id: str | None) -> None:
        """Appends the answer for the next item; raises RequestRefused if the answers have too many bytes."""
        before, after = reply
        if id is not None and after:
            before += orjson.dumps(id)[1:-1]
        if before:
            self._grow(len(before) + len(after))
            self._items.append(before + after)

    def all_created(self, reply: Reply, ids: Sequence[str | None]) -> None:
        """Appends the answers for the next items, all of one kind; raises as `created` does."""
        before, after = reply
        if after and any(ids):
            items = [before[:-1] + id + after[1:] for id in encoded([id or "" for id in ids])]
            self._grow(sum(map(len, items)))
            self._items += items
        elif before:
            self._grow((len(before) + len(after)) * len(ids))
            self._items += [before + after] * len(ids)

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > MOST_BYTES:
            reason = f"the answers for so many items are larger than {Size(MOST_BYTES)}"
            raise RequestRefused(413, "content_too_long_exception", reason)

    def refused(self, op: str, index: str, refusal: Refusal, id: str | None) -> None:
        """Appends the answer for the next item."""
        self._errors = True
        self.created(self.reply(op, index, refusal), id)

    def body(self, took: int) -> bytes:
        """Returns the body of the answer; `took` is in milliseconds."""
        summary = filtered({"errors": self._errors, "took": took}, self._paths)
        head = orjson.dumps(summary)[1:-1] if summary else b""
        if not self._items and self._paths:
            return b"{%b}" % head
        return b'{%b"items":[%b]}' % (head + b"," if head else b"", b",".join(self._items))


def _path(text: str) -> tuple[str, ...]:
    """Returns the names of a path; repeated `**` is one."""
    return tuple(name for before, name in pairwise(("", *text.split("."))) if not before == name == "**")


def filtered(value: Any, paths: Collection[tuple[str, ...]]) -> Any:
    """Returns the parts of nested mappings that `paths` keep, or None; `*` is any name, `**` any number of names.

    Without paths everything is kept.
    """
    if not paths or () in paths or ("**",) in paths:
        return value
    if not isinstance(value, dict):
        return None
    kept = {}
    for key, child in value.items():
        below = {rest for path in paths for rest in _below(path, key)}
        if below and (part := filtered(child, below)) is not None:
            kept[key] = part
    return kept or None


def _below(path: tuple[str, ...], key: str) -> Iterator[tuple[str, ...]]:
    while path and path[0] == "**":
        yield path
        path = path[1:]
    if path and fits(path[0], key, star="*", fits_one=eq):
        yield path[1:]


def _selected(value: Any, kept: Any) -> Any:
    """Returns the parts of nested mappings at the places of `kept`."""
    return {key: _selected(value[key], part) for key, part in kept.items()} if isinstance(kept, dict) else value


# -- before the first bulk ---------------------------------------------------------------------------------------------

# Beats refuse an Elasticsearch older than themselves; other clients compare the major version only.
_VERSION = "9.99.0"

_LICENSE = {"uid": "shipper", "type": "basic", "mode": "basic", "status": "active"}
_ROOT = {
    "name": "shipper",
    "cluster_name": "shipper",
    "cluster_uuid": "shipper",
    "version": {
        "number": _VERSION,
        "build_flavor": "default",
        "build_type": "docker",
        "build_hash": "unknown",
        "build_date": "1970-01-01T00:00:00.000Z",
        "build_snapshot": False,
        "lucene_version": "10.0.0",
        "minimum_wire_compatibility_version": "8.0.0",
        "minimum_index_compatibility_version": "8.0.0",
    },
    "tagline": "You Know, for Search",
}
_HEALTH = {
    "cluster_name": "shipper",
    "status": "green",
    "timed_out": False,
    "number_of_nodes": 1,
    "number_of_data_nodes": 1,
    "active_shards_percent_as_number": 100.0,
}
_SET_UP = ("_ilm/policy", "_index_template", "_component_template", "_template", "_data_stream", "_ingest/pipeline")


def introduction(path: str, host: str) -> Fields | None:
    """Returns the answer to a GET of a client that checks its destination, or None for any other path.

    `host` is the address that the client used: a client that sniffs nodes finds this one there. Templates, policies and
    pipelines of any name exist, so that Beats and Logstash ship with their default settings: neither a shipper nor its
    clients set up the destination.
    """
    path = path.strip("/")
    if path == "":
        return _ROOT
    if path == "_license":
        return {"license": _LICENSE}
    if path == "_xpack":
        return {"license": _LICENSE, "features": {}}
    if path == "_cluster/health":
        return _HEALTH
    if path in ("_nodes", "_nodes/http", "_nodes/_all/http"):
        node = {"name": "shipper", "version": _VERSION, "roles": ["data", "ingest"], "http": {"publish_address": host}}
        return {
            "_nodes": {"total": 1, "successful": 1, "failed": 0},
            "cluster_name": "shipper",
            "nodes": {"shipper": node},
        }
    return {} if path.startswith(_SET_UP) else None
