"""What follows from the refusal of a principal."""

from __future__ import annotations

from multidict import CIMultiDict

from shipper.plugin import Later
from shipper.sdk.http_answer import Response
from shipper_plugins.outputs.relay_refusals import refusal


def test_a_principal_puts_off_for_an_hour_at_most() -> None:
    error = refusal(Response(429, CIMultiDict({"Retry-After": "999999"}), b""), "http://127.0.0.1:1")

    assert isinstance(error, Later)
    assert error.retry_after == 3600.0
