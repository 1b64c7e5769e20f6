"""Indices and ingest pipelines by condition: the first that an event meets decides. No I/O.

    indices:
      - {index: audit, when: {equals: {event.category: iam}}}
    pipelines:
      - {pipeline: nginx, when: {equals: {event.dataset: nginx.access}}}

An event that meets none goes where it would go without them: to the output's `index` or its own data stream, through
the output's `pipeline`. The conditions are those of processors; they see the event as it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from shipper.plugin import Batch, Condition, Fields, Settings
from shipper.sdk.fields import look_up

Index = Annotated[
    str,
    msgspec.Meta(
        pattern=r'^(?![-_+.])[^A-Z\\/*?"<>| ,#:\x00-\x1f\x7f]+(?!\n)$',
        description="the name of an index: without capital letters, spaces, control characters and any of "
        r'\ / * ? " < > | , # :, and without - _ + . at its beginning',
    ),
]
Pipeline = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[\x21-\x7e]+(?!\n)$",
        max_length=255,
        description="the name of a pipeline: printable ASCII characters without spaces",
    ),
]
Case = tuple[Condition, str]
Otherwise = TypeVar("Otherwise")


class IndexCase(Settings, frozen=True):
    """The index of events that meet a condition."""

    index: Index
    """The index or data stream."""
    when: Condition
    """The condition."""

    @property
    def case(self) -> Case:
        """The condition and the name."""
        return self.when, self.index


class PipelineCase(Settings, frozen=True):
    """The ingest pipeline of events that meet a condition."""

    pipeline: Pipeline
    """The pipeline."""
    when: Condition
    """The condition."""

    @property
    def case(self) -> Case:
        """The condition and the name."""
        return self.when, self.pipeline


def chosen(batch: Batch, cases: Sequence[Case], otherwise: Sequence[Otherwise]) -> list[str | Otherwise]:
    """Returns the name of the first case that each event meets, or its value of `otherwise`."""
    tests = [(condition.test(), name) for condition, name in cases]
    names: list[str | Otherwise] = []
    for own, shared, usual in zip(_own(batch), batch.each_shared(), otherwise, strict=True):
        look = look_up(own, shared)
        names.append(next((name for test, name in tests if test(look)), usual))
    return names


def _own(batch: Batch) -> list[Fields]:
    try:
        return batch.own()
    except ValueError:  # a document that is no JSON, which the destination refuses alone
        if batch.count == 1:
            return [{}]
        half = batch.count // 2
        return [*_own(batch.pick(range(half))), *_own(batch.pick(range(half, batch.count)))]
