"""PUBLIC: changes events one by one; one that cannot be changed goes on as it came, tagged with the reason. No I/O.

The tags are counted for metrics, in the thread that runs the processors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from shipper.sdk.event import OF_LINES, Batch
from shipper.sdk.fields import Fields, merged
from shipper.sdk.table import Table, Unfit

Edit = Callable[[Fields], Fields]
"""Returns an event's fields as they are to be; does not change those it gets. Raises ValueError with the reason if it
cannot; the text quotes nothing of the event."""

EditColumns = Callable[[Table], tuple[Table, Collection[int]]]
"""Does the same to all events by columns; returns the rows with which it cannot, which become odd. Raises Unfit."""

_ERROR_TAG = "processor_error"
_here = threading.local()


def edited(batch: Batch, names: Iterable[str], edit: Edit, by_columns: EditColumns | None = None) -> Batch:
    """Returns the batch with each event as `edit` has it, or tagged with the ValueError that it raised.

    `names` are all fields that `edit` reads or writes. Fields that all events share are edited once, if these are; they
    become an event's own where they differ from then on. With `by_columns`, which has the same result, only events that
    it leaves are edited one by one.
    """
    tops = {name.partition(".")[0] for name in names}
    if batch.is_lines and OF_LINES.isdisjoint(tops):
        try:
            return replace(batch, shared=edit(batch.shared))
        except ValueError:
            pass  # each event is tagged
    exposed = {key: value for key, value in batch.shared.items() if key.partition(".")[0] in tops}
    rest = {key: value for key, value in batch.shared.items() if key not in exposed}
    if by_columns is not None:
        with suppress(Unfit), attempt():
            return _edited_by_columns(batch, exposed, rest, edit, by_columns)
    events = [_or_tagged(edit, merged(exposed, own) if exposed else own, rest) for own in batch.own()]
    return replace(batch, shared=rest).replace(events) if events else batch


def _edited_by_columns(batch: Batch, exposed: Fields, rest: Fields, edit: Edit, by_columns: EditColumns) -> Batch:
    before = batch.table().below(exposed)
    table, left = by_columns(before)
    others = sorted({*left} - before.odd.keys())
    events = {**before.odd, **dict(zip(others, before.objects(others), strict=True))}
    if batch.is_lines and table is before and "log" in rest and not (events or exposed):
        return batch  # as lines they have the same text
    odd = {place: _or_tagged(edit, event, rest) for place, event in events.items()}
    return batch.tabled(replace(table, odd=odd), rest)


def _or_tagged(edit: Edit, event: Fields, shared: Fields) -> Fields:
    try:
        return edit(event)
    except ValueError as error:
        return tagged(event, str(error), shared)


def tagged(event: Fields, message: str, shared: Mapping[str, Any] = MappingProxyType({})) -> Fields:
    """Returns the event with an error tag, and the reason; its other fields are unchanged.

    An event that has the tag already keeps its first reason. `shared` are the fields that its batch shares: tags among
    them stay.
    """
    _here.tagged = tagged_here() + 1
    old = event.get("tags", shared.get("tags"))
    before = old if isinstance(old, list) else [] if old is None else [old]
    if _ERROR_TAG in before:
        return event
    tags = [*before, _ERROR_TAG]
    error = event.get("error")
    return {**event, "tags": tags, "error": {**(error if isinstance(error, dict) else {}), "message": message}}


@contextmanager
def attempt() -> Iterator[None]:
    """If the block raises, and the events are read in another way, what it has `tagged` does not count."""
    before = tagged_here()
    try:
        yield
    except BaseException:
        _here.tagged = before
        raise


def tagged_here() -> int:
    """Returns how often an event was `tagged` in this thread."""
    return getattr(_here, "tagged", 0)
