"""References to secrets of the fleet."""

from __future__ import annotations

import pytest

from shipper.policy import document
from shipper.supervise.secrets import Reference, exposed, read, watched


def reference(text: str) -> Reference:
    return Reference.parse(document.read(text))


def test_a_reference_names_a_secret_of_the_fleet() -> None:
    es = reference("{fleet: es}")

    assert (str(es), es.label, es.source.name) == ("fleet:es", "es", "es")
    assert es == reference("{fleet: es}") != reference("{fleet: es-2}")
    assert (exposed(es), list(watched(es, {}))) == (None, [])


def test_another_name_is_refused_and_not_quoted() -> None:
    for name in ["ES", "a/b", "-x", "''", "a b", "x" * 64, "7", "[es]", "{a: b}"]:
        with pytest.raises(ValueError, match="`fleet` is followed by") as caught:
            reference(f"{{fleet: {name}}}")
        assert "x" * 64 not in str(caught.value)


def test_a_host_in_no_fleet_cannot_read_it() -> None:
    with pytest.raises(ValueError, match="the secret fleet:es is a secret of the fleet, and this host is in no fleet"):
        read(reference("{fleet: es}"), {})
