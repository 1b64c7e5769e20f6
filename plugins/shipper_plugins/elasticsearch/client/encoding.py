"""The bulk API of Elasticsearch 8/9 and OpenSearch 2/3: turns a batch into bodies of requests. No I/O. (State:
`keyed`.)

A request has `{"create":{"_id":"…"}}` and the document for each event, in one join of columns (see `Batch`). `create`
under a deterministic id makes sending idempotent: an existing document is answered 409. The index is in the URL if one
index serves the whole batch and its name is plain. Any other name goes into the action lines, as JSON, so that no text
of an event becomes part of a URL.

A batch is encoded and compressed piece by piece. So a mebibyte of lines never becomes four mebibytes of documents in
memory, and the output of one step is still in the cache of the processor for the next one (10 % less CPU than all at
once).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec
from isal import isal_zlib

from shipper.plugin import Answer, Batch, Outcome, join
from shipper.sdk.columns import Column
from shipper_plugins import data_streams
from shipper_plugins.elasticsearch.client.index_cases import Case, chosen

Compression = Literal["gzip", "none"]

LONGEST_ID = 512
"""The longest id of a document, in bytes."""

_PIECE = 128 << 10  # of a batch's body
_GZIP = 31  # window bits
_LEVEL = 1  # of isal, ns an event and bytes of a body: 0: 155, 80 k; 1: 157, 55 k; 3: 873, 55 k (zlib 1: 1065, 62 k)
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}")


class Request(msgspec.Struct, frozen=True):
    """One bulk request: the events `batch[first : first + count]`."""

    batch: Batch
    first: int
    count: int
    index: str | None
    """The index in the URL; None: each action names its own."""
    body: Sequence[bytes]
    """In pieces."""

    def ids(self) -> list[str]:
        """The ids of its events, in order."""
        return self.batch.id_texts()[self.first : self.first + self.count]

    def ends(self) -> tuple[bytes, bytes]:
        """The first and the last id, as JSON: searching for these costs 10 ns an event, for all ids 70 and more."""
        return self._id(self.first), self._id(self.first + self.count - 1)

    def _id(self, position: int) -> bytes:
        batch = self.batch
        given = None if batch.ids is None else batch.ids[position]
        if given is not None:
            return msgspec.json.encode(given)
        place = position if batch.items is None else batch.items[position]
        return b'"%b%d"' % (batch.id_prefix(), place)


def encode(
    batch: Batch,
    *,
    index: str | None,
    limit: int,
    compression: Compression,
    indices: Sequence[Case] = (),
    pipelines: Sequence[Case] = (),
) -> list[Request]:
    """Returns the requests for a batch, each of at most `limit` bytes before compression, or of one event.

    An event goes to the first of `indices` whose condition it meets, else to `index`; without that, to the index that
    its client named, else to its data stream. One that meets a condition of `pipelines` names that pipeline.
    """
    if not batch.count:
        return []
    target = target_of(batch, index, indices)
    named = target if isinstance(target, str) and _PLAIN_NAME.fullmatch(target) else None
    texts = _texts(batch, None if named else target, pipelines_of(batch, pipelines), limit)
    return gathered(batch, texts, named, limit, compression)


def gathered(
    batch: Batch, texts: Iterable[tuple[int, bytes]], index: str | None, limit: int, compression: Compression
) -> list[Request]:
    """Returns requests of these texts, each text with its count of events; a request has as many as fit into `limit`
    bytes."""
    bodies = [_Body(0, compression)]
    for count, text in texts:
        body = bodies[-1]
        if body.size and body.size + len(text) > limit:
            bodies.append(body := _Body(body.first + body.count, compression))
        body.add(count, text)
    if (encoded := bodies[-1].first + bodies[-1].count) != batch.count:
        raise ValueError(f"a batch of {batch.count} events has {encoded} lines")
    return [Request(batch, body.first, body.count, index, body.end()) for body in bodies]


def compressed(text: bytes, compression: Compression) -> bytes:
    """Returns the body of a request that is made in one piece."""
    return isal_zlib.compress(text, _LEVEL, _GZIP) if compression == "gzip" else text


def unfit(batch: Batch) -> dict[int, Answer]:
    """Returns the answers, by position, for events whose client gave them a longer id than the backend accepts.

    With one of them, the backend would refuse the whole request.
    """
    ids = enumerate(batch.ids or ())
    return {i: _OVERSIZED_ID for i, id in ids if id is not None and len(id.encode()) > LONGEST_ID}


_OVERSIZED_ID = Answer(Outcome.REJECTED, f"the client's _id is longer than {LONGEST_ID} bytes")


class _Body:
    """The body of a request as it grows; `first` is its first event, `size` its bytes before compression."""

    def __init__(self, first: int, compression: Compression) -> None:
        self.first, self.count, self.size = first, 0, 0
        self._stream = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP) if compression == "gzip" else None
        self._pieces: list[bytes] = []

    def add(self, count: int, text: bytes) -> None:
        self.count += count
        self.size += len(text)
        self._pieces.append(self._stream.compress(text) if self._stream else text)

    def end(self) -> list[bytes]:
        return [*self._pieces, self._stream.flush()] if self._stream else self._pieces


def target_of(batch: Batch, index: str | None, indices: Sequence[Case] = ()) -> str | list[str]:
    """Returns the index or data stream of all events, or that of each event; `index` and `indices` are the output's."""
    names = index or _named(batch)
    if indices and batch.count:
        names = chosen(batch, indices, [names] * batch.count if isinstance(names, str) else names)
    return names if isinstance(names, str) or len(set(names)) > 1 else names[0]


def _named(batch: Batch) -> str | list[str]:
    """Returns the index that a client named, else the data stream: of all events, or of each."""
    names = batch.route or data_streams.of(batch) or data_streams.DEFAULT
    if batch.ways is None or not any(routes := batch.each_route()):
        return names
    otherwise = [names] * batch.count if isinstance(names, str) else names
    return [route or other for route, other in zip(routes, otherwise, strict=True)]


def pipelines_of(batch: Batch, pipelines: Sequence[Case]) -> list[str | None] | None:
    """Returns the pipeline that each event names; None: none names one."""
    names = chosen(batch, pipelines, [None] * batch.count) if pipelines else []
    return names if any(names) else None


def _texts(
    batch: Batch, target: str | list[str] | None, pipelines: list[str | None] | None, limit: int
) -> Iterator[tuple[int, bytes]]:
    """Yields counts of events with their part of a body; a part of several events has at most `limit` bytes."""
    first = 0
    for piece in batch.pieces(_PIECE):
        names = target[first : first + piece.count] if isinstance(target, list) else target
        through = None if pipelines is None else pipelines[first : first + piece.count]
        text = join(piece.count, *_actions(piece, names, through), *piece.columns())
        yield from [(piece.count, text)] if len(text) <= limit else _split(text, limit)
        first += piece.count


def _actions(batch: Batch, target: str | list[str] | None, pipelines: list[str | None] | None) -> tuple[Column, ...]:
    ids: tuple[Column, ...] = (*batch.id_columns(), b'"}}\n')
    if pipelines is not None:
        named = {one: b"" if one is None else b',"pipeline":' + msgspec.json.encode(one) for one in set(pipelines)}
        ids = (*batch.id_columns(), b'"', [named[one] for one in pipelines], b"}}\n")
    if target is None:
        return (b'{"create":{"_id":"', *ids)
    quoted = {name: msgspec.json.encode(name) for name in ([target] if isinstance(target, str) else set(target))}
    names = quoted[target] if isinstance(target, str) else [quoted[name] for name in target]
    return (b'{"create":{"_index":', names, b',"_id":"', *ids)


def _split(text: bytes, limit: int) -> list[tuple[int, bytes]]:
    """Yields parts of at most `limit` bytes, or of one event, with their counts of events."""
    lines = text.split(b"\n")[:-1]
    parts, begin, size = [], 0, 0
    for event in range(0, len(lines), 2):
        length = len(lines[event]) + len(lines[event + 1]) + 2
        if size and size + length > limit:
            parts.append((begin, event))
            begin, size = event, 0
        size += length
    parts.append((begin, len(lines)))
    return [((j - i) // 2, b"\n".join(chain(lines[i:j], (b"",)))) for i, j in parts]
