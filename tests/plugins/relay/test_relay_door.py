"""Who may send at a relay's door."""

from __future__ import annotations

import pytest

from shipper_plugins.relay.principal.door import Door, Refused


def test_a_credential_and_a_certificate_of_two_edges_are_nobody() -> None:
    door = Door({b"k1": "berlin"}, {"paris.example": "paris"}, None, 1000)

    with pytest.raises(Refused, match="not of one edge"):
        door.edge(b"k1", ["paris.example"])
