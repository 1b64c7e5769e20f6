"""What a member says of the contents that its sidecar uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shipper.kubernetes.host import Host
from shipper.supervise.ledger import Kept, Ledger


@pytest.mark.parametrize(
    ("accepted", "delays", "using"), [(False, True, ["k1", "k2"]), (True, True, ["k2"]), (False, False, ["k2"])]
)
def test_a_content_counts_as_used_until_the_one_in_its_place_was_accepted_where_that_is_wanted(
    accepted: bool, delays: bool, using: list[str]
) -> None:
    """`releasedBefore` passes it only then, so that a wrong Secret has a way back."""
    old = Kept("k1", {"api_key": "k1:key"}, [], ["outputs.main"], shared=True, released=True)
    new = Kept("k2", {"api_key": "k2:key"}, [], ["outputs.main"], shared=True, accepted=accepted)
    ledger = Ledger(ids=["k2"], kept={"k1": old, "k2": new}, tells_accepted=True)
    host = Host(cast(Any, None), cast(Any, None), holds=False, rebinds=False)
    host.agent = cast(Any, SimpleNamespace(members=[SimpleNamespace(ledger=ledger)], delays=delays))

    assert host.using() == using
