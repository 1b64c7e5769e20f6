"""A small request that becomes much: refused before it is that, or delivered in parts of a bounded size.

The bounds are lowered here, so that a bomb needs no gigabytes to be one.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from shipper.pipeline.attempts import attempt
from shipper.pipeline.attempts.attempt import Attempt
from shipper.pipeline.intake import chain
from shipper.pipeline.intake.chain import bounded
from shipper.pipeline.intake.envelope import Envelope
from shipper.plugin import Answers, Batch, Fields
from shipper_plugins.otlp import events, jsons, protobuf
from shipper_plugins.otlp.model import Group, Record, Resource
from shipper_plugins.otlp.server.intake import Refused, _read
from shipper_plugins.otlp.wire import bytes_field
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import FrameError, Generation, Head, Part, TooLong

LIMIT = 64 << 10
MOST_WEIGHT = 64 << 10
MOST_TOGETHER = 256 << 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)

_texts = st.builds(
    lambda text, times: text * times, st.sampled_from(["x", "\x01", '"', "é", "🎉"]), st.integers(0, 30_000)
)
_values = _texts | st.builds(lambda text: text.encode(), _texts) | st.lists(st.just(0.0), max_size=300)
_many = st.integers(1, 3000)


@contextmanager
def lowered() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(chain, "MOST_WEIGHT", MOST_WEIGHT))
        stack.enter_context(patch.object(attempt, "MOST_WEIGHT", MOST_WEIGHT))
        stack.enter_context(patch.object(events, "MOST_WEIGHT", MOST_TOGETHER))
        yield


def delivered(batches: list[Batch]) -> int:
    """Returns the number of events that go the whole way, each call of the output within the bound."""
    count = 0
    for batch in batches:
        for part in bounded(Envelope().on(batch, NOW)):
            loaded = Batch.unpack(part.pack(), origin=bytes(16), seq=1, limit=None)
            sending = Attempt(loaded)
            while (piece := sending.next_piece()) is not None:
                positions, those = piece
                assert those.weight <= MOST_WEIGHT or those.count == 1
                assert len(those.json_lines()) <= 6 * those.weight
                sending.answered(positions, Answers(len(positions)))
            count += sending.progress
    return count


# -- OTLP --------------------------------------------------------------------------------------------------------------


@given(_values, _many, st.integers(1, 150), st.sampled_from([protobuf, jsons]))
def test_records_with_a_large_resource_are_delivered_in_parts_or_refused(
    value: Any, records: int, groups: int, codec: Any
) -> None:
    each = records // groups or 1
    group = Group(resource=Resource(attributes={"a": value}), records=[Record(body="b")] * each)
    body = codec.encoded([group] * groups)
    with lowered():
        if (found := taken(body, codec)) is not None:
            assert sum(len(batch.body) for batch in found) <= MOST_TOGETHER + len(body) + each * groups * 200
            assert delivered(found) == each * groups


def taken(body: bytes, codec: Any) -> list[Batch] | None:
    """Returns what an input takes of a request; None if it refuses that for good, so that a client can tell why."""
    try:
        return _read(body, "identity", codec, 64 << 20)[1]
    except Refused as refusal:
        said = refusal.status

    assert said in (400, 413)
    return None


def test_records_beyond_the_bound_are_refused_as_too_many_at_once() -> None:
    group = Group(resource=Resource(attributes={"a": b"x" * 1_000_000}), records=[Record()] * 2000)

    with pytest.raises(Refused) as refused:
        _read(protobuf.encoded([group]), "identity", protobuf, 8 << 20)
    assert refused.value.status == 413


@pytest.mark.parametrize("unit", [b"[],", b"{},", b'{"":0},', b"[[[[[[[[]]]]]]]],", b'{"":-0},'])
def test_a_body_of_many_values_is_refused_before_it_is_loaded(unit: bytes) -> None:
    body = b'{"resourceLogs":[],"x":[' + unit * ((8 << 20) // len(unit)) + b"0]}"

    def refused() -> None:
        with pytest.raises(Refused):
            _read(body, "identity", jsons, 9 << 20)

    assert _peak(refused) < 16 << 20


@given(st.integers(0, 4000), st.sampled_from([5, 6]))
def test_a_deep_value_is_refused_or_stays_within_what_can_be_written(depth: int, kind: int) -> None:
    """A list (5), or an object (6), in a list, and so on."""
    value = b""
    for _ in range(depth):
        inner = value if kind == 5 else bytes_field(2, value)
        value = bytes_field(kind, bytes_field(1, inner))
    body = bytes_field(1, bytes_field(2, bytes_field(2, bytes_field(5, value))))
    with lowered():
        if (found := taken(body, protobuf)) is not None:
            assert delivered(found) <= 1


# -- parts of an edge --------------------------------------------------------------------------------------------------


def part(place: int, batch: Batch) -> Part:
    batch = replace(batch, place=place).identified(bytes(16), place)
    raw = isal_zlib.decompress(replace(batch, place=place).pack(), -15)
    return Part(place, batch.origin, batch.seq, frames.digest(batch), isal_zlib.compress(raw, 3, -15))


def request(parts: list[Part]) -> bytes:
    return b"".join(frames.encode(Head(Generation("ab" * 16, 1), 1, 0, parts=len(parts)), parts))


_shared = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        lambda one, times: [one] * times, st.sampled_from([[], {}, {"": 0}, 1000, "", "ab", None]), st.integers(0, 6000)
    )
    | _texts,
    max_size=2,
)


@given(_shared, _many, st.integers(1, 16))
def test_parts_are_refused_or_become_no_more_than_the_limit(shared: Fields, count: int, parts: int) -> None:
    one = part(1, Batch.documents([b"{}"] * count, shared=shared))
    body = request([one._replace(place=place) for place in range(1, parts + 1)])
    read = frames.decode(body)
    with lowered():
        try:
            found = read.batches(LIMIT)
        except TooLong:
            return
        except FrameError:
            raise AssertionError("a part is sound") from None
        assert sum(batch.weight for batch in found) <= 4 * LIMIT
        assert sum(len(batch.body) for batch in found) <= LIMIT
        assert delivered(found) == count * parts


@pytest.mark.parametrize("unit", [[], {}, {"": 0}, [[[[]]]], "ab"])
def test_headers_of_parts_are_counted_together_before_they_are_objects(unit: Any) -> None:
    times = (1 << 20) // len(msgspec.json.encode(unit))
    one = part(1, Batch.documents([b"{}"], shared={"a": [unit] * times}))
    body = request([one._replace(place=place) for place in range(1, 17)])

    def refused() -> None:
        with pytest.raises(TooLong):
            frames.decode(body).batches(2 << 20)

    assert _peak(refused) < 16 << 20


def _peak(act: Callable[[], object]) -> int:
    """Returns the most memory that a call took."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
