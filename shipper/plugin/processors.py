"""What a processor is. The open one, a stage, is in `shipper.sdk.stage`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from shipper.sdk import hooks
from shipper.sdk.conditions import Condition
from shipper.sdk.event import Batch
from shipper.sdk.settings import Settings
from shipper.sdk.stage import Part, Stage, StageContext


class Processor(Settings, frozen=True, kw_only=True):
    """Changes the events of a batch, before they are stored.

    Most define `process`, a function of one batch. A processor that keeps something between batches, or holds something
    that must be closed, defines `open` instead: see `Stage`. Either gets only the events that meet `when`; the others
    pass it by, and keep their place in the batch.
    """

    when: Condition | None = None
    """Only events that meet this condition are processed; the others go on unchanged (default: all are)."""

    keeps: ClassVar[str] = ""
    """What a stage keeps in memory, its limit, and what happens at the limit; shown in the schema. The end of the
    process loses it."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Processor)

    def process(self, batch: Batch) -> Batch | Sequence[Part]:
        """Returns the batch, changed, perhaps with fewer events; keeps nothing after the call. Runs in any thread.

        It may return several parts instead: each part goes to the outputs that it names, among those of the batch. It
        passes on an event that it cannot handle, marked by `tagged`. If the call raises, or returns an invalid batch,
        it is called again with parts of the batch, and the events on which it fails go on unchanged and marked.
        `meters()` returns its own counters, within the call.
        """
        raise NotImplementedError

    def open(self, context: StageContext) -> AbstractAsyncContextManager[Stage]:
        """Acquires what the stage needs, for one input; StartFailed refuses the revision.

        The stage stays open over revisions with the same processor and settings at the same input.
        """
        raise NotImplementedError

    @property
    def is_stage(self) -> bool:
        """Whether the class defines `open`."""
        return type(self).open is not Processor.open

    @property
    def is_slow(self) -> bool:
        """Whether even a small batch may take milliseconds; it is never processed in the main thread then."""
        return False

    def named_outputs(self) -> Sequence[tuple[Sequence[str | int], str]]:
        """Returns the outputs that the settings name, each with the path of its setting; the policy must have them."""
        return ()
