"""PUBLIC: forms: events that stay the bytes as which they came, such as records of OTLP, until somebody reads them.

A batch in a form has messages of another format in its body (`Batch.formed`), which an output of that format sends as
they are. `Batch.form` is the type of the input that made it, and `Input.form` how they are read: what is stored is read
in any later process, whichever inputs it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

from shipper.sdk.fields import Fields


class Form(Protocol):
    """How messages become events; the input that makes them has checked them."""

    @property
    def names(self) -> frozenset[str]:
        """The top-level fields that an event may have. Each has `@timestamp`."""

    def events(self, messages: Sequence[bytes]) -> list[Fields]:
        """Returns each event as new nested fields, of values as in typed events. Raises ValueError for an invalid
        message."""

    def documents(self, messages: Sequence[bytes]) -> bytes:
        """Returns the events as JSON objects, as typed events are written, each ended by a line feed. Raises ValueError
        as `events` does."""


@cache
def of(name: str) -> Form:
    """Returns the form of this name; imports its input. Raises ValueError if there is none."""
    for point in entry_points(group="shipper.inputs", name=name):
        form: Form | None = point.load().form()
        if form is not None:
            return form
    raise ValueError("no installed input reads this form")
