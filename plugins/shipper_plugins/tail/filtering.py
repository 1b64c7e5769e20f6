"""Which events of a file are kept: `include_lines` and `exclude_lines`, as in Filebeat.

An event is kept if one of `include` is found in its text (or there is none), and none of `exclude`. It is the text
after lines were joined, and after it was cut; its first 64 KiB are searched. What is left out is counted, and the
position of the file moves past it, in a transaction like that of events.

Speed: a search of the whole block tells at once that a pattern is in none of its lines, which is most often so for what
is to be left out. Otherwise each line is searched: 1 µs a line and pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import msgspec
import orjson

from shipper.plugin import Batch, join
from shipper.sdk.columns import escaped
from shipper.sdk.patterns import finder

LONGEST_SEARCHED = 64 << 10
"""Bytes of a text."""
_OF_TEXT = re.compile(r"\\[AzCQ]|\(\?[^:P)]*m")
"""Patterns that may match a text and not the same line of a block."""

Find = Callable[[bytes], bool]


@dataclass(frozen=True)
class Filter:
    """Checked patterns."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def kept(self, batch: Batch) -> Batch:
        """Returns the batch without the events that are left out."""
        wanted = self._wanted(batch)
        if all(wanted):
            return batch
        if not batch.is_lines:
            return batch.pick([place for place, is_wanted in enumerate(wanted) if is_wanted])
        before, offsets, after = batch.log_columns()
        texts = escaped(batch.body)
        assert not isinstance(offsets, bytes)
        kept = list(compress(offsets, wanted)), list(compress(texts, wanted))
        body = join(sum(wanted), b"{", before, kept[0], after, b',"message":"', kept[1], b'"}\n')
        shared = {key: value for key, value in batch.shared.items() if key != "log"}
        return Batch.documents(body.split(b"\n")[:-1], shared=shared)

    def _wanted(self, batch: Batch) -> list[bool]:
        texts = _texts(batch)
        block = batch.body if batch.is_lines else None
        wanted = self._found(self._include, texts, block) if self.include else [True] * batch.count
        unwanted = self._found(self._exclude, texts, block) if self.exclude else [False] * batch.count
        return [one and not other for one, other in zip(wanted, unwanted, strict=True)]

    def _found(self, patterns: Sequence[_Pattern], texts: Sequence[bytes], block: bytes | None) -> list[bool]:
        finds = [one.find for one in patterns if block is None or one.in_block is None or one.in_block(block)]
        if not finds:
            return [False] * len(texts)
        if len(finds) == 1:
            return list(map(finds[0], texts))
        return [any(find(text) for find in finds) for text in texts]

    @cached_property
    def _include(self) -> list[_Pattern]:
        return list(map(_Pattern.of, self.include))

    @cached_property
    def _exclude(self) -> list[_Pattern]:
        return list(map(_Pattern.of, self.exclude))


class _Pattern(msgspec.Struct, frozen=True):
    find: Find
    """Searches a text."""
    in_block: Find | None
    """Returns False only if no line of a block matches; None: that cannot be told."""

    @classmethod
    def of(cls, pattern: str) -> _Pattern:
        return cls(finder(pattern), None if _OF_TEXT.search(pattern) else finder(f"(?m:{pattern})"))


def _texts(batch: Batch) -> list[bytes]:
    if batch.is_lines:
        texts = batch.body.split(b"\n")[:-1]
    else:
        texts = [orjson.loads(document)["message"].encode() for document in batch.body.split(b"\n")[:-1]]
    return texts if len(batch.body) <= LONGEST_SEARCHED else [text[:LONGEST_SEARCHED] for text in texts]
