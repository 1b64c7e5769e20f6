"""`sample`: keeps every n-th event."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shipper.plugin import Batch, Processor, meters


class Sample(Processor, frozen=True, kw_only=True):
    """Keeps every n-th event of a batch, beginning with the first."""

    every: Annotated[int, msgspec.Meta(ge=1)]
    """n."""

    def process(self, batch: Batch) -> Batch:
        kept = range(0, batch.count, self.every)
        meters().counter("left_out", "Events that were not kept.").add(batch.count - len(kept))
        return batch.pick(kept)
