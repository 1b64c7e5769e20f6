"""PUBLIC: what `Output.ask` and `Output.set_up` are asked, and what they tell."""

from __future__ import annotations

from shipper.sdk.asking import (
    Asked,
    Finding,
    Prepared,
    Question,
    State,
    Tell,
    TellPrepared,
    Verdict,
    in_time,
    of_no_answer,
    reached,
)

__all__ = [
    "Asked",
    "Finding",
    "Prepared",
    "Question",
    "State",
    "Tell",
    "TellPrepared",
    "Verdict",
    "in_time",
    "of_no_answer",
    "reached",
]
