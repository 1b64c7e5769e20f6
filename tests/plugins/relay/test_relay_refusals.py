"""What follows from the refusal of a principal."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from shipper.plugin import Held, Later, TooLarge
from shipper.sdk.http_answer import Response
from shipper_plugins.relay.edge.refusals import Busy, Over, Refused, read, refusal
from shipper_plugins.relay.frames import Hello


def test_a_principal_puts_off_for_an_hour_at_most() -> None:
    error = refusal(Response(429, CIMultiDict({"Retry-After": "999999"}), b""), "http://127.0.0.1:1")

    assert isinstance(error, Later)
    assert error.retry_after == 3600.0


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "session_over", Over),
        (409, "edge_cloned", Held),
        (409, "identity_conflict", Refused),
        (403, "foreign_origin", Refused),
        (403, "no_events", Refused),
        (422, "part_refused", Refused),
        (401, "", Held),
        (400, "protocol", Held),
        (413, "", TooLarge),
        (429, "", Busy),
        (503, "", Later),
    ],
)
def test_each_refusal_of_a_principal_has_its_own_consequence(status: int, code: str, kind: type[Exception]) -> None:
    body = b'{"error":{"code":"%b","reason":""}}' % code.encode()

    assert type(refusal(Response(status, CIMultiDict(), body), "http://127.0.0.1:1")) is kind


def test_an_answer_of_another_form_is_put_off() -> None:
    with pytest.raises(Later, match="not that of a relay"):
        read(Response(200, CIMultiDict(), b"<html>"), Hello, "http://127.0.0.1:1")
