"""Changes events one by one; an event that cannot be changed goes on as it came, tagged with the reason. No I/O.

The tags are counted for metrics, in the thread that runs the processors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from shipper.sdk.event import OF_LINES, Batch
from shipper.sdk.fields import Fields, merged

Edit = Callable[[Fields], Fields]
"""Returns an event's fields as they are to be; does not change those it gets. Raises ValueError with the reason if it
cannot; the text quotes nothing of the event."""

_ERROR_TAG = "processor_error"
_here = threading.local()


def edited(batch: Batch, names: Iterable[str], edit: Edit) -> Batch:
    """Returns the batch with each event as `edit` has it, or tagged with the ValueError that it raised.

    `names` are all fields that `edit` reads or writes. Fields that all events share are edited once, if these are; they
    become an event's own where they differ from then on.
    """
    tops = {name.partition(".")[0] for name in names}
    if batch.is_lines and OF_LINES.isdisjoint(tops):
        try:
            return replace(batch, shared=edit(batch.shared))
        except ValueError:
            pass  # each event is tagged
    exposed = {key: value for key, value in batch.shared.items() if key.partition(".")[0] in tops}
    rest = {key: value for key, value in batch.shared.items() if key not in exposed}
    events = [_or_tagged(edit, merged(exposed, own) if exposed else own, rest) for own in batch.own()]
    return replace(batch, shared=rest).replace(events) if events else batch


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
