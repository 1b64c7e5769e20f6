"""The door: whether a batch that a plugin hands over can be stored, sent and looked into.

What passes can be packed, unpacked and encoded, alone or together with others. It is asked for each batch that an input
emits and for each that a processor returns, so it looks at a body as a whole, by a few calls in C. ns an event of 150
bytes: text lines 25; documents 90, since each has to begin with a brace; what a processor left as it was 0.

Not looked at is what costs an object for each event: whether a document is valid JSON inside its braces, and whether a
key of it is in `shared` too. A destination refuses such an event alone, and so it becomes a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shipper.sdk.columns import line_count
from shipper.sdk.errors import PluginFault
from shipper.sdk.event import Batch

_NO_BRACE = re.compile(rb"\n[^{]")
_LARGEST = 1 << 63


def check_types(batches: Sequence[object], positions: Mapping[str, bytes | None]) -> None:
    """Raises PluginFault unless these are batches and positions at all."""
    for batch in batches:
        _require_batch(batch)
    try:
        "".join(positions).encode()
        b"".join([place for place in positions.values() if place is not None])
    except (TypeError, ValueError):
        raise PluginFault("a position is no bytes, or its name is no text") from None


def check(batch: object, before: Batch | None = None) -> Batch:
    """The batch; raises PluginFault if it is none that can be. `before` is what a processor was given."""
    batch = _require_batch(batch)
    _check_header(batch)
    if before is not None and batch.count > before.count:
        raise PluginFault(f"{before.count} events became {batch.count}")
    if batch.offset is not None:
        _check_places(batch, batch.offset)
    if before is None or (batch.body, batch.count, batch.offset) != (before.body, before.count, before.offset):
        _check_text(batch)
        if batch.offset is None:
            _check_documents(batch.body)
    return batch


def _require_batch(batch: object) -> Batch:
    if not isinstance(batch, Batch) or not isinstance(batch.body, bytes):
        raise PluginFault(f"a batch is expected, not {type(batch).__name__}")
    return batch


def _check_text(batch: Batch) -> None:
    body = batch.body
    lines = line_count(body)
    if body and not body.endswith(b"\n"):
        raise PluginFault("its last event has no line feed at the end")
    if lines != batch.count:
        raise PluginFault(f"it counts {batch.count} events and has {lines} lines")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            raise PluginFault("its text is not UTF-8") from None


def _check_places(batch: Batch, offset: int) -> None:
    end = offset + len(batch.body) + batch.count * batch.gap
    if offset < 0 or batch.gap < 0 or end >= _LARGEST:
        raise PluginFault("its lines have places that cannot be")
    log = batch.shared.get("log", {})
    if "message" in batch.shared or not isinstance(log, dict) or "offset" in log:
        raise PluginFault("its shared fields have the message or log.offset of its lines")


def _check_documents(body: bytes) -> None:
    if body and (not body.startswith(b"{") or _NO_BRACE.search(body) or b"\0" in body):
        raise PluginFault("a document is no JSON object, or has white space before it")


def _check_header(batch: Batch) -> None:
    try:
        batch.check_header()
    except ValueError:
        raise PluginFault("its shared fields or ids are not what JSON can hold") from None
    for own in (batch.ids, batch.items):
        if own is not None and len(own) != batch.count:
            raise PluginFault(f"it counts {batch.count} events and has ids of {len(own)}")
    if isinstance(batch.items, list) and len(set(batch.items)) < len(batch.items):
        raise PluginFault("two of its events are the same item")
