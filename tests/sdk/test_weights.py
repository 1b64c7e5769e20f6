"""What events weigh is never less than what they become."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from shipper.sdk import weights


@pytest.mark.parametrize(
    "member",
    [
        *(b"{}", b"[]", b"0", b"300", b"0.5", b'"ab"', '"é"'.encode(), b'{"":0}', b'{"a":{"b":{"c":{}}}}'),
        *(b"[" * 90 + b"]" * 90, b'"\\ud83d\\ude00%b"' % (b"x" * 500), '"€%b"'.encode() % (b"x" * 500)),
    ],
)
def test_shared_fields_take_no_more_memory_than_their_size(member: bytes) -> None:
    shared = b'{"a":[' + b",".join([member] * (100_000 // len(member))) + b"]}"
    tracemalloc.start()
    try:
        fields = msgspec.json.decode(shared)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(fields["a"]) > 100
    assert taken < weights.size(1, shared, 0)


def test_events_that_share_nothing_have_the_size_of_their_body() -> None:
    assert weights.size(10, b"{}", 1000) == 1000


def test_shared_fields_weigh_once_for_each_event() -> None:
    shared = b'{"a":"%b"}' % (b"x" * 1000)

    assert weights.weight(2000, len(shared), 6000) == 2000 * (len(shared) + weights.EVENT_BYTES) + 6000
    assert weights.size(2000, shared, 6000) == weights.weight(2000, len(shared), 6000) // weights.WRITTEN
