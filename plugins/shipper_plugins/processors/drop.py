"""`drop`: drops the events that meet a condition.

    {type: drop, when: {equals: {http.response.status_code: 200, url.path: /health}}}

The conditions are those that every processor has: see `shipper.sdk.conditions`.
"""

from __future__ import annotations

from shipper.plugin import Batch, Condition, Processor


class Drop(Processor, frozen=True):
    """Drops the events that meet a condition."""

    when: Condition
    """The condition."""

    def process(self, batch: Batch) -> Batch:
        """Returns the batch without its events, which all meet the condition."""
        return batch.pick([])
