"""The door: checks whether a batch from a plugin can be stored, sent and read.

A batch that passes can be packed, unpacked and encoded, alone or with others. Each batch that an input emits and each
that a processor returns is checked, so the checks look at a whole body by a few calls in C. ns an event of 150 bytes:
text lines 25; documents 70, since each must begin with a brace; what a processor left unchanged 0.

Not checked is what would cost an object for each event: whether a document is valid JSON inside its braces, and whether
`shared` has one of its keys too. A destination refuses such an event alone, and it becomes a dead letter. Typed events
are checked one by one, since an output that cannot carry them would fail on them: 2 µs for one of 8 fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from operator import itemgetter
from types import NoneType
from typing import Any, TypeVar

from shipper.sdk import forms, typed
from shipper.sdk.columns import line_count
from shipper.sdk.errors import PluginFault
from shipper.sdk.event import Batch
from shipper.sdk.origins import ORIGIN_BYTES
from shipper.sdk.state import LARGEST_PLACE, LONGEST_KEY, LONGEST_NAME, Change, compact

Opened = TypeVar("Opened")

_BRACE = frozenset(b"{")
_first = itemgetter(0)
_LARGEST = 1 << 63
_NUMBERS: Mapping[str, tuple[set[type], int, int]] = {
    "sizes": ({int}, 1, _LARGEST),
    "timestamps": ({int, NoneType}, -_LARGEST, _LARGEST),
    "severities": ({int, NoneType}, 0, 25),
}
"""By column: the types of its values, its smallest value, and the first value that is too large."""
MOST_CHANGES = 10_000
"""Changes of keyed state in one transaction."""
TYPED_BYTES = 64 << 10
"""Bytes of typed events that are checked together: as objects they take many times the memory."""


def check_types(
    batches: Sequence[object],
    positions: Mapping[str, bytes | None],
    expect: Mapping[str, bytes | None],
    *,
    relays: bool,
) -> None:
    """Raises PluginFault unless these are batches and positions, with identities only from an input that `relays`."""
    for batch in batches:
        if _require_batch(batch).is_relayed and not relays:
            raise PluginFault("a batch has the identity of another shipper, and the input does not relay")
    try:
        "".join([*positions, *expect]).encode()
        b"".join([place for place in (*positions.values(), *expect.values()) if place is not None])
    except (TypeError, ValueError):
        raise PluginFault("a position is no bytes, or its name is no text") from None


def opened(made: object, contract: type[Opened]) -> Opened:
    """Returns what a plugin has opened; raises PluginFault if its class has not the hooks of the contract."""
    if not isinstance(made, contract):
        raise PluginFault(f"it opened {type(made).__name__}, which is no {contract.__name__}")
    return made


def check_awaited(batches: Sequence[Batch], keys: Sequence[object]) -> None:
    """Raises PluginFault unless these are keys of awaited batches, one for each batch, or none at all."""
    named = [key for key in keys if key is not None]
    if keys and len(keys) != len(batches):
        raise PluginFault(f"{len(keys)} keys are given for {len(batches)} batches")
    if not all(isinstance(key, str) for key in named) or len(set(named)) < len(named):
        raise PluginFault("the key of an awaited batch is no text, or is that of another one")


def check_changes(
    changes: Sequence[object], positions: Mapping[str, bytes | None], expect: Mapping[str, bytes | None]
) -> None:
    """Raises PluginFault unless these are changes of keyed state, and positions, that can be stored."""
    if len(changes) > MOST_CHANGES:
        raise PluginFault(f"{len(changes)} changes are more than {MOST_CHANGES} at once")
    check_types((), positions, expect, relays=False)
    for change in changes:
        if not isinstance(change, Change):
            raise PluginFault(f"a change is expected, not {type(change).__name__}")
        _check_names(change)
        if change.document is not None and not _is_compact(change.document):
            raise PluginFault("a document is no compact JSON object")
        if change.place is not None and not (type(change.place) is int and 0 < change.place <= LARGEST_PLACE):
            raise PluginFault("a change has an invalid place")


def _check_names(change: Change) -> None:
    for name, longest in ((change.owner, LONGEST_NAME), (change.collection, LONGEST_NAME), (change.key, LONGEST_KEY)):
        try:
            size = len(name.encode())
        except (AttributeError, UnicodeEncodeError):
            raise PluginFault("the name of a key is no text") from None
        if size > longest:
            raise PluginFault(f"the name of a key has {size} bytes, which is more than {longest}")
    if not (change.collection and change.key):
        raise PluginFault("the name of a key, or of its collection, is empty")


def _is_compact(document: bytes) -> bool:
    try:
        return compact(document) == document
    except (TypeError, ValueError):
        return False


def check(batch: object, before: Batch | None = None, *, may_be_unwritten: bool = False) -> Batch:
    """Returns the batch; raises PluginFault if it is invalid. `before` is the batch that the processor was given.

    Documents that are not written yet (`Batch.tabled`) are written now, or checked when they are: see `check_written`.
    """
    batch = _require_batch(batch)
    _check_header(batch)
    if batch.versions is not None:
        raise PluginFault("it has versions of keyed state, which are given by `keep`")
    if batch.is_relayed:
        _check_identity(batch, before)
    if before is not None and batch.count > before.count:
        raise PluginFault(f"{before.count} events became {batch.count}")
    if batch.offset is not None:
        _check_places(batch, batch.offset)
    is_checked_later = may_be_unwritten and not batch.is_written
    if not is_checked_later and (before is None or _body(batch) != _body(before)):
        _check_body(batch)
    return batch


def check_written(batch: Batch) -> Batch:
    """Returns a checked batch with its documents written, and nothing else of a table; raises PluginFault if they are
    invalid."""
    if not batch.is_written:
        _check_body(batch)
    return batch.written()


def _check_identity(batch: Batch, before: Batch | None) -> None:
    if before is not None and (batch.origin, batch.seq, True) != (before.origin, before.seq, before.is_relayed):
        raise PluginFault("its identity is not that of the batch that came")
    if not isinstance(batch.origin, bytes) or len(batch.origin) != ORIGIN_BYTES:
        raise PluginFault("the origin of its identity is no 16 bytes")
    if type(batch.seq) is not int or not 0 <= batch.seq < _LARGEST:
        raise PluginFault("the number of its identity is invalid")
    if batch.items is not None and not all(type(item) is int and 0 <= item < _LARGEST for item in batch.items):
        raise PluginFault("its items are not valid numbers")


def _body(batch: Batch) -> tuple[object, ...]:
    return batch.body, batch.count, batch.offset, batch.sizes, batch.form


def _check_body(batch: Batch) -> None:
    if batch.sizes is not None:
        _check_typed(batch, batch.sizes)
        return
    _check_text(batch)
    if batch.offset is None:
        _check_documents(batch.body)


def _require_batch(batch: object) -> Batch:
    if not isinstance(batch, Batch) or (batch.is_written and not isinstance(batch.body, bytes)):
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
        raise PluginFault("its lines have invalid places")
    log = batch.shared.get("log", {})
    if "message" in batch.shared or not isinstance(log, dict) or "offset" in log:
        raise PluginFault("its shared fields have the message or log.offset of its lines")


def _check_documents(body: bytes) -> None:
    if not _BRACE.issuperset(map(_first, BytesIO(body))) or b"\0" in body:
        raise PluginFault("a document is no JSON object, or has white space before it")


def _check_typed(batch: Batch, sizes: Sequence[int]) -> None:
    """Raises PluginFault unless each typed event can be read, and written as JSON for outputs that need it."""
    if batch.offset is not None:
        raise PluginFault("it is of text lines and of typed events")
    if len(sizes) != batch.count or sum(sizes) != len(batch.body):
        raise PluginFault(f"it counts {batch.count} events, and its body or its sizes are of others")
    if batch.form is not None:
        _check_form(batch, batch.form)
        return
    try:
        for piece in batch.pieces(TYPED_BYTES):
            events = piece.own()
            if not piece.shared.keys().isdisjoint(set[str]().union(*events)):
                raise PluginFault("a field of a typed event is in its shared fields too")
            typed.as_json(events)
    except (ValueError, TypeError):
        raise PluginFault("a typed event is no map with names that are text, or has a value that JSON cannot") from None


def _check_form(batch: Batch, form: str) -> None:
    """Raises PluginFault for an unknown form; its messages are as good as the input that has checked them."""
    try:
        names = forms.of(form).names
    except ValueError as error:
        raise PluginFault(str(error)) from None
    if not names.isdisjoint(batch.shared):
        raise PluginFault("a field of its form is in its shared fields too")


def _check_header(batch: Batch) -> None:
    for name, (types, least, most) in _NUMBERS.items():
        column = getattr(batch, name)
        if column is not None and not _are_numbers(column, types, least, most):
            raise PluginFault(f"its {name} are not valid numbers")
    if batch.keys is not None and not _is_column(batch.keys, {bytes, NoneType}):
        raise PluginFault("its keys are no bytes")
    try:
        batch.check_header()
    except (ValueError, TypeError):
        raise PluginFault("its shared fields or ids are not what JSON can hold") from None
    for name in ("ids", "items", "timestamps", "keys", "severities"):
        own = getattr(batch, name)
        if own is not None and len(own) != batch.count:
            what = "ids" if name == "items" else name
            raise PluginFault(f"it counts {batch.count} events and has {what} of {len(own)}")
    if isinstance(batch.items, list) and len(set(batch.items)) < len(batch.items):
        raise PluginFault("two of its events are the same item")


def _are_numbers(column: Any, types: set[type], least: int, most: int) -> bool:
    if not _is_column(column, types):
        return False
    numbers = [number for number in column if number is not None]
    return not numbers or (least <= min(numbers) and max(numbers) < most)


def _is_column(column: object, types: set[type]) -> bool:
    return isinstance(column, tuple | list) and set(map(type, column)) <= types
