"""Whoever can write to the store can neither read a record, nor make one, nor move one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.fleet.kubernetes.objects import LARGEST
from shipper.fleet.records import Alive, Head, Leader, Line, Report, Secret, Text, Undelivered, Version
from shipper.fleet.seal import Newer, Seals, Unauthentic, digest

KEY, OTHER = b"k" * 32, b"o" * 32
PLACE = "members/web-1"
RECORD = Leader("web-1", "an instance")
SEALS = Seals("prod", [KEY])

names = st.text(max_size=40)


class Later(msgspec.Struct):
    format: int = 2


def test_every_record_comes_back_as_it_was() -> None:
    for record in [
        Head("prod", number=1, history=[Line(Version(0, 1, "a" * 64), 1.5, "me@host", {"es": "es-1"}, "n")]),
        Text("version: 1\n", {"es": "es-1"}, "nonce"),
        Report("w", "d", "b", "i", 1, 0, stages={"drained": Version(0, 1, "a")}, undelivered=Undelivered(1, 2, 3.0)),
        Alive("d", "b", "i"),
        Secret("es", b"\0content"),
        RECORD,
    ]:
        assert SEALS.open(PLACE, SEALS.seal(PLACE, record), type(record)) == record


@given(place=names, member=names, keys=st.permutations([KEY, OTHER, b"3" * 32]))
def test_all_keys_open_what_the_first_of_them_has_sealed(place: str, member: str, keys: list[bytes]) -> None:
    record = Leader(member, "i")

    assert Seals("prod", keys).open(place, Seals("prod", [KEY]).seal(place, record), Leader) == record
    assert Seals("prod", keys[:1]).open(place, Seals("prod", keys).seal(place, record), Leader) == record


@given(data=st.data())
def test_one_changed_byte_anywhere_is_noticed(data: st.DataObject) -> None:
    raw = bytearray(SEALS.seal(PLACE, RECORD))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(Unauthentic):
        SEALS.open(PLACE, bytes(raw), Leader)


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_refused_and_not_quoted(raw: bytes) -> None:
    with pytest.raises(Unauthentic) as caught:
        SEALS.open(PLACE, raw, Leader)
    assert str(caught.value).startswith(f"the record {PLACE} ")


@given(cut=st.integers(0, 300))
def test_a_cut_record_is_refused(cut: int) -> None:
    raw = SEALS.seal(PLACE, RECORD)

    with pytest.raises(Unauthentic):
        SEALS.open(PLACE, raw[: min(cut, len(raw) - 1)], Leader)


@given(fleets=st.lists(names, min_size=2, max_size=2), places=st.lists(names, min_size=2, max_size=2))
def test_a_record_opens_in_its_own_place_of_its_own_fleet_only(fleets: list[str], places: list[str]) -> None:
    raw = Seals(fleets[0], [KEY]).seal(places[0], RECORD)
    if fleets[0] == fleets[1] and places[0] == places[1]:
        return

    with pytest.raises(Unauthentic):
        Seals(fleets[1], [KEY]).open(places[1], raw, Leader)


def test_a_record_under_another_key_is_refused_with_the_names_of_ours() -> None:
    with pytest.raises(Unauthentic, match=r"sealed with another key than [0-9a-f]{16} and [0-9a-f]{16};"):
        Seals("prod", [KEY, b"2" * 32]).open(PLACE, Seals("prod", [OTHER]).seal(PLACE, RECORD), Leader)


def test_a_key_under_the_name_of_ours_opens_nothing() -> None:
    forged = Seals("prod", [OTHER]).seal(PLACE, RECORD)
    ours = SEALS.seal(PLACE, RECORD)

    with pytest.raises(Unauthentic, match="not sealed for this place of the fleet prod"):
        SEALS.open(PLACE, ours[:9] + forged[9:], Leader)


def test_a_record_of_another_type_is_refused() -> None:
    with pytest.raises(Unauthentic, match="is no Text"):
        SEALS.open(PLACE, SEALS.seal(PLACE, RECORD), Text)


def test_a_newer_format_is_refused_as_such() -> None:
    for raw in (SEALS.seal(PLACE, Later()), b"\2" + SEALS.seal(PLACE, RECORD)[1:]):
        with pytest.raises(Newer, match=f"the record {PLACE} has format 2; this version knows formats up to 1: run"):
            SEALS.open(PLACE, raw, Text)


def test_nothing_of_a_record_is_in_its_sealed_form() -> None:
    text = Text("canary-of-a-policy", {"canary-of-a-name": "canary-of-an-id"}, "n")

    assert b"canary" not in SEALS.seal("versions/1", text)
    assert KEY not in SEALS.seal("versions/1", text)


def test_the_same_record_is_sealed_differently_each_time() -> None:
    assert len({SEALS.seal(PLACE, RECORD) for _ in range(50)}) == 50


@pytest.mark.parametrize("keys", [[], [b"short"], [KEY, b""]])
def test_no_key_or_a_short_one_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Seals("prod", keys)


def test_a_fingerprint_is_of_one_content_under_one_key() -> None:
    old, new = Seals("prod", [OTHER]), Seals("prod", [KEY, OTHER])

    assert new.fingerprints(b"secret") == (*SEALS.fingerprints(b"secret"), *old.fingerprints(b"secret"))
    assert len({*new.fingerprints(b"secret"), *new.fingerprints(b"another")}) == 4
    assert b"secret".hex() not in new.fingerprints(b"secret")[0]


def test_a_digest_covers_the_text_the_pins_and_the_nonce() -> None:
    text = Text("version: 1\n", {"es": "es-1", "kafka": "kafka-1"}, "nonce")
    others = [
        Text("version: 2\n", text.secrets, "nonce"),
        Text(text.policy, {"es": "es-2", "kafka": "kafka-1"}, "nonce"),
        Text(text.policy, text.secrets, "another"),
    ]

    assert len({digest(one) for one in (text, *others)}) == 4
    assert digest(text) == digest(Text(text.policy, {"kafka": "kafka-1", "es": "es-1"}, "nonce"))
    assert digest(SEALS.open("v", SEALS.seal("v", text), Text)) == digest(text)


def test_the_largest_text_fits_into_the_store() -> None:
    assert len(SEALS.seal("versions/1", Text("\n" * (1 << 20), {}, "n"))) < LARGEST
