"""Sealed values open only where they belong, and no nonce is used twice."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.spool import seal
from shipper.spool.seal import OVERHEAD_BYTES, Damaged, Sealer


def new_key() -> tuple[bytes, bytes]:
    return secrets.token_bytes(8), secrets.token_bytes(32)


def a_sealer(spool: bytes = b"s" * 16) -> Sealer:
    return Sealer(spool, {}, b"f" * 32, new_key)


def used(sealed: bytes) -> bytes:
    return sealed[:20]


@given(st.text(), st.integers(-(2**63), 2**63 - 1) | st.text(), st.integers(0, 2**64 - 1), st.binary())
def test_what_was_sealed_opens_in_its_place(kind: str, row: int | str, number: int, plain: bytes) -> None:
    sealer = a_sealer()

    sealed = sealer.seal(kind, row, number, number // 3, plain)

    assert sealer.open(kind, row, number, number // 3, sealed) == plain
    assert len(sealed) == len(plain) + OVERHEAD_BYTES


def test_every_flipped_bit_is_detected() -> None:
    sealer = a_sealer()
    sealed = sealer.seal("batch", 1, 0, 7, b"an event")

    for bit in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            sealer.open("batch", 1, 0, 7, bytes(flipped))


def test_every_truncation_is_detected() -> None:
    sealer = a_sealer()
    sealed = sealer.seal("batch", 1, 0, 7, b"an event")

    for length in range(len(sealed)):
        with pytest.raises(Damaged):
            sealer.open("batch", 1, 0, 7, sealed[:length])


def test_a_value_does_not_open_in_another_place() -> None:
    for place in [("rest", 1, 0, 7), ("batch", 2, 0, 7), ("batch", "1", 0, 7), ("batch", 1, 1, 7), ("batch", 1, 0, 8)]:
        sealer = a_sealer()
        sealed = sealer.seal("batch", 1, 0, 7, b"an event")

        with pytest.raises(Damaged):
            sealer.open(*place, sealed)


def test_a_value_does_not_open_in_another_spool_with_the_same_key() -> None:
    key = new_key()
    here, there = (Sealer(spool, {}, b"f" * 32, lambda: key) for spool in (b"a" * 16, b"b" * 16))
    sealed = here.seal("batch", 1, 0, 7, b"an event")

    with pytest.raises(Damaged):
        there.open("batch", 1, 0, 7, sealed)


def test_kind_and_row_cannot_be_shifted_into_each_other() -> None:
    sealer = a_sealer()
    sealed = sealer.seal("ab", "c", 0, 0, b"x")

    with pytest.raises(Damaged):
        sealer.open("a", "bc", 0, 0, sealed)


def test_no_nonce_is_used_twice_by_threads_that_seal_at_once() -> None:
    sealer = a_sealer()

    with ThreadPoolExecutor(4) as threads:
        sealed = list(threads.map(lambda row: sealer.seal("batch", row, 0, 0, b"x"), range(5000)))

    assert len(set(map(used, sealed))) == 5000


def test_a_new_key_is_taken_long_before_the_counter_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "_ROLL_AT", 3)
    sealer = a_sealer()

    sealed = [sealer.seal("batch", row, 0, 0, b"x") for row in range(10)]

    assert len({value[:8] for value in sealed}) == 4
    assert len(set(map(used, sealed))) == 10
    assert all(sealer.open("batch", row, 0, 0, value) == b"x" for row, value in enumerate(sealed))


def test_the_old_key_serves_on_while_no_new_one_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "_ROLL_AT", 3)
    keys = iter([new_key()])

    def one_key() -> tuple[bytes, bytes]:
        for key in keys:
            return key
        raise OSError("no room")

    sealer = Sealer(b"s" * 16, {}, b"f" * 32, one_key)

    assert len({used(sealer.seal("batch", row, 0, 0, b"x")) for row in range(10)}) == 10


def test_nothing_is_sealed_beyond_the_limit_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "_ROLL_AT", 3)
    monkeypatch.setattr(seal, "_NEVER_BEYOND", 5)
    keys = iter([new_key()])

    def one_key() -> tuple[bytes, bytes]:
        for key in keys:
            return key
        raise OSError("no room")

    sealer = Sealer(b"s" * 16, {}, b"f" * 32, one_key)
    for row in range(5):
        sealer.seal("batch", row, 0, 0, b"x")

    with pytest.raises(OSError, match="no room"):
        sealer.seal("batch", 5, 0, 0, b"x")


def test_a_fingerprint_depends_on_the_key_and_the_text_alone() -> None:
    one, other = a_sealer(), Sealer(b"s" * 16, {}, b"g" * 32, new_key)

    assert one.fingerprint(b"secret") == a_sealer().fingerprint(b"secret")
    assert len({one.fingerprint(b"secret"), one.fingerprint(b"secreT"), other.fingerprint(b"secret")}) == 3
