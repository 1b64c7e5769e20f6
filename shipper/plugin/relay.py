"""PUBLIC: what a pair of an input and an output needs to relay from one shipper to another.

Such an input says `relays`, and defines `Source.edges`, `adopted` and `forget_edge`; such an output says `relays`, and
its sender defines `principal`.
"""

from __future__ import annotations

from shipper.sdk.answers import Ranked
from shipper.sdk.errors import NotOrdered
from shipper.sdk.lineage import Confirmed, Lineages
from shipper.sdk.origins import PROOF_BYTES, is_proven
from shipper.sdk.packing import Oversized
from shipper.sdk.peers import Confirms, Edge, Principal, Waits

__all__ = [
    "PROOF_BYTES",
    "Confirmed",
    "Confirms",
    "Edge",
    "Lineages",
    "NotOrdered",
    "Oversized",
    "Principal",
    "Ranked",
    "Waits",
    "is_proven",
]
