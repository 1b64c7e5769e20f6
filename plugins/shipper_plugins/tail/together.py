"""What is stored of several files at once: the few lines of each become one batch.

To process, seal, store, send and settle a batch costs as much as a hundred lines of one. So where hundreds of files
have a line or two each, these are documents of one batch, and each has the path of its file. Lines keep the order that
they have in their file: a chunk that gave several batches keeps them as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import orjson

from shipper.plugin import Batch

FEW = 16 << 10
"""The most that the lines of a chunk weigh, each with all its fields, which are worth a document each: a mebibyte of
empty lines is 200 MiB of documents."""


def together(chunks: Sequence[Sequence[Batch]]) -> list[Batch]:
    """Returns the batches to store of what chunks gave, each of another file."""
    if len(chunks) == 1:
        return list(chunks[0])
    kinds, alone = defaultdict[bytes, list[Batch]](list), list[Batch]()
    for batches in chunks:
        if len(batches) == 1 and batches[0].weight <= FEW:
            kinds[orjson.dumps(_without_log(batches[0]))].append(batches[0])
        else:
            alone += batches
    return [*map(_joined, kinds.values()), *alone]


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    documents = [document for batch in batches for document in _documents(batch)]
    return Batch.documents(documents, shared=_without_log(batches[0]))


def _documents(batch: Batch) -> Iterator[bytes]:
    """Its events as `lines` makes those that have to be looked at one by one."""
    if not batch.is_lines:
        yield from batch.body[:-1].split(b"\n")
        return
    log = batch.shared.get("log", {})
    for own in batch.own():
        yield orjson.dumps({"message": own["message"], "log": {**log, **own["log"]}})


def _without_log(batch: Batch) -> dict[str, object]:
    return {name: value for name, value in batch.shared.items() if name != "log"}
