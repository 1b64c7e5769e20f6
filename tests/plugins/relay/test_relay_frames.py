"""What is posted is read as it was sent; what nobody sends so is one clear error."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import FrameError, Generation, Head, Part, TooLong, decode, digest, encode, part_of
from tests.sdk.formed import FORMED

ORIGIN = bytes(range(16))
SESSION = Generation("ab" * 16, 3)
LIMIT = 1 << 20

_lines = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1, max_size=9)
_batches = st.builds(
    lambda lines, place, seq, first: replace(
        Batch.lines("".join(line + "\n" for line in lines).encode(), offset=first, shared={"b": 1, "a": {"c": [None]}}),
        origin=ORIGIN,
        seq=seq,
        place=place,
    ),
    _lines,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**40),
) | st.builds(
    lambda numbers: Batch.documents([b'{"n":%d}' % n for n in numbers], ids=["x"] * len(numbers), route="r").identified(
        ORIGIN, 7, [3 * n for n in range(len(numbers))]
    ),
    st.lists(st.integers(), min_size=1, max_size=9),
)


def body(*batches: Batch, **said: int) -> bytes:
    parts = [part_of(batch) for batch in batches]
    return b"".join(encode(Head(SESSION, 1, 0, parts=said.get("parts", len(parts))), parts))


@given(st.lists(_batches, max_size=3))
def test_parts_arrive_as_they_were_sent(batches: list[Batch]) -> None:
    batches = [replace(batch, place=n) for n, batch in enumerate(batches)]

    request = decode(body(*batches))

    assert request.head == Head(SESSION, 1, 0, parts=len(batches))
    for batch, part in zip(batches, request.parts, strict=True):
        came = part.batch(LIMIT)
        assert (part.place, came.origin, came.seq, came.is_relayed) == (batch.place, batch.origin, batch.seq, True)
        assert (came.json_lines(), came.id_texts()) == (batch.json_lines(), batch.id_texts())


@given(_batches)
def test_the_digest_is_that_of_the_events_however_they_are_held(batch: Batch) -> None:
    again = Batch.unpack(batch.pack(), origin=batch.origin, seq=batch.seq)

    assert digest(again) == digest(batch)
    assert digest(replace(batch, items=list(batch.items or range(batch.count)))) == digest(batch)


def test_other_events_have_another_digest() -> None:
    for change in [
        {"body": b'{"n":3}\n{"n":2}\n'},
        {"items": [0, 2]},
        {"shared": {"a": 2}},
        {"ids": ("x", "y")},
        {"route": "other"},
        {"keys": (b"k", None)},
    ]:
        batch = Batch.documents([b'{"n":1}', b'{"n":2}'], shared={"a": 1})

        assert digest(replace(batch, **change)) != digest(batch)  # type: ignore[arg-type]


@given(st.lists(_batches, min_size=1, max_size=2), st.data())
def test_a_body_that_was_cut_or_goes_on_is_refused(batches: list[Batch], data: st.DataObject) -> None:
    whole = body(*[replace(batch, place=n) for n, batch in enumerate(batches)])
    for other in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        with pytest.raises(FrameError):
            decode(other)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"SHR1" + rest), st.data())
def test_no_bytes_do_more_than_be_refused(hostile: bytes, data: st.DataObject) -> None:
    whole = bytearray(body(replace(Batch.documents([b"{}"]), origin=ORIGIN, seq=1)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    for each in (hostile, bytes(whole)):
        try:
            for part in decode(each).parts:
                part.batch(LIMIT)
        except FrameError:
            continue


@given(st.binary(max_size=100))
def test_a_part_whose_bytes_are_no_batch_is_refused(packed: bytes) -> None:
    with pytest.raises(FrameError):
        Part(1, ORIGIN, 1, bytes(32), packed).batch(LIMIT)


def test_a_part_that_contradicts_itself_is_refused() -> None:
    for change in [
        {"count": 3},
        {"items": [1]},
        {"items": [1, 1]},
        {"items": [-1, 1]},
        {"items": [1, 1 << 63]},
        {"ids": ("x",)},
        {"timestamps": (1, 2, 3)},
        {"body": b'{"n":1}\n{"n":2}'},
        {"sizes": (3, 4)},
        {"sizes": (0, 16)},
    ]:
        batch = replace(Batch.documents([b'{"n":1}', b'{"n":2}']), origin=ORIGIN, seq=1, **change)  # type: ignore[arg-type]
        with pytest.raises(FrameError, match="a part has"):
            part_of(batch).batch(LIMIT)


def test_a_part_with_other_events_than_its_digest_says_is_refused() -> None:
    part = part_of(replace(Batch.documents([b"{}"]), origin=ORIGIN, seq=1))
    with pytest.raises(FrameError, match="digest"):
        part._replace(digest=os.urandom(32)).batch(LIMIT)


def test_a_part_is_unpacked_only_within_the_limit() -> None:
    part = part_of(replace(Batch.documents([b'{"n":"%s"}' % (b"x" * 5000)]), origin=ORIGIN, seq=1))

    assert len(part.packed) < 200
    with pytest.raises(TooLong):
        part.batch(5000)


def test_a_part_without_events_or_with_too_many_is_refused() -> None:
    for count in (0, frames.MOST_EVENTS + 1):
        with pytest.raises(FrameError, match="events"):
            part_of(replace(Batch.documents([b"{}"] * count), origin=ORIGIN, seq=1)).batch(LIMIT)


def test_places_rise_and_the_parts_are_as_many_as_were_said() -> None:
    one, other = (replace(Batch.documents([b"{}"]), origin=ORIGIN, seq=n, place=n) for n in (1, 2))
    for wrong in (body(other, one), body(one, one), body(one, parts=2), body(one, other, parts=1), body(parts=65)):
        with pytest.raises(FrameError):
            decode(wrong)


def test_a_message_that_cannot_be_is_refused() -> None:
    for text in [b"", b"[]", b'{"confirmed":[-1]}', b'{"confirmed":"x"}', b"\xff", b"[" * 100_000]:
        with pytest.raises(FrameError):
            frames.read(text, frames.Answered)
        with pytest.raises(FrameError):
            frames.read(msgspec.json.encode(Head(Generation("AB", 3), 1, 0)), Head)


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (b"SHR1\0", "ends too early"),
        (b"SHR1\0\0\0\5{}", "ends too early"),
        (b"SHR1" + (frames.MOST_HEAD + 1).to_bytes(4) + bytes(frames.MOST_HEAD + 1), "head is too long"),
    ],
)
def test_a_body_whose_lengths_cannot_be_is_refused(hostile: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        decode(hostile)


def test_a_part_that_is_too_short_or_whose_bytes_are_no_batch_is_refused() -> None:
    head = encode(Head(SESSION, 1, 0, parts=1), [])
    with pytest.raises(FrameError, match="a part is too short"):
        decode(b"".join([*head, b"\0\0\0\1x"]))
    with pytest.raises(FrameError, match="a part has an invalid number"):
        decode(b"".join(encode(Head(SESSION, 1, 0, parts=1), [Part(2**63, ORIGIN, 1, bytes(32), b"x")])))
    with pytest.raises(FrameError, match="holds no batch"):
        Part(1, ORIGIN, 1, bytes(32), b"x").batch(LIMIT)


@pytest.mark.parametrize(("answers", "why"), [(b"\0", "not those of the items"), (b"\0\xff", "an answer is invalid")])
def test_answers_that_do_not_fit_their_items_are_refused(answers: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        frames.Outcomes("ab" * 16, 1, ((3, 4),), answers).by_item()


def test_messages_of_a_form_are_relayed_as_typed_events_and_never_taken():
    batch = FORMED.identified(ORIGIN, 1)
    part = part_of(batch)

    assert part.batch(LIMIT).own() == batch.own()
    with pytest.raises(FrameError, match="form"):
        part._replace(packed=batch.pack(), digest=digest(batch)).batch(LIMIT)
