"""Packing: what comes back is what was packed, within a limit, or an error."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from shipper.sdk.event import Batch
from shipper.sdk.packing import Oversized
from tests.sdk.batches import ANY_BATCHES, ORIGIN, columns, document_batches, ids, rows, some


@given(ANY_BATCHES, st.integers(0, 3000))
def test_a_batch_that_was_unpacked_fits_into_the_limit(batch: Batch, limit: int) -> None:
    with suppress(Oversized):
        assert Batch.unpack(batch.pack(), origin=ORIGIN, seq=77, limit=limit).size <= limit

    assert Batch.unpack(batch.pack(), origin=ORIGIN, seq=77, limit=1 << 20) == batch


@pytest.mark.parametrize(
    "header",
    [
        b'[1,null,1,null,null,null,{"a":[' + b"[]," * 100_000 + b"[]]}]",
        b'[1,null,1,null,null,null,{"a":[' + b'{"":0},' * 60_000 + b"0]}]",
        b"[1,null,1,null,null,[" + b"1000," * 100_000 + b"0],{}]",
        b"[1,null,1,null,[" + b'"ab",' * 100_000 + b'""],null,{}]',
        b'[2000,null,1,null,null,null,{"a":"' + b"x" * 300_000 + b'"}]',
        b'[1000000000,null,1,null,null,null,{"a":1}]',
    ],
    ids=["lists", "objects", "items", "ids", "shared by many", "by a lie"],
)
def test_what_becomes_larger_than_the_limit_is_no_object_before_it_is_refused(header: bytes) -> None:
    packed = isal_zlib.compress(header + b"\n{}\n", 1, -15)

    tracemalloc.start()
    with pytest.raises(Oversized):
        Batch.unpack(packed, origin=ORIGIN, seq=1, limit=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


@given(ANY_BATCHES, st.data())
def test_what_was_packed_comes_back_as_it_was(batch: Batch, data: st.DataObject) -> None:
    for before in (batch, batch.pick(some(batch, data))):
        after = Batch.unpack(before.pack(), origin=before.origin, seq=before.seq)

        assert after == before
        assert (rows(after), columns(after), after.route) == (rows(before), columns(before), before.route)


@given(ANY_BATCHES, st.data())
def test_the_identity_of_another_shipper_goes_before_that_of_the_spool(batch: Batch, data: st.DataObject) -> None:
    theirs = batch.identified(b"T" * 16, 7)

    for before in (theirs, theirs.pick(some(batch, data)), *theirs.pieces(20)):
        after = Batch.unpack(before.stored(b"O" * 16, 99).pack(), origin=b"O" * 16, seq=99)

        assert (after.place, ids(after), rows(after)) == (99, ids(before), rows(before))
    assert not theirs.anew().is_relayed
    assert batch.stored(b"O" * 16, 99).origin == b"O" * 16


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        (
            b'[2,7,1,null,null,null,{"a":1}]\none\ntwo\n',
            replace(Batch.lines(b"one\ntwo\n", offset=7, shared={"a": 1})),
        ),
        (
            b'[2,null,1,"theirs",["x",null],[0,4],{"a":1}]\n{"n":1}\n{}\n',
            replace(
                Batch.documents([b'{"n":1}', b"{}"], shared={"a": 1}, ids=["x", None], route="theirs"), items=[0, 4]
            ),
        ),
    ],
)
def test_a_batch_that_was_stored_before_there_were_columns_is_unpacked(plain: bytes, expected: Batch) -> None:
    assert Batch.unpack(isal_zlib.compress(plain, 0, -15), origin=b"", seq=0) == expected


@given(st.binary(max_size=64))
def test_what_is_no_packed_batch_is_refused(rubbish: bytes) -> None:
    with pytest.raises(ValueError, match="not a packed batch"):
        Batch.unpack(rubbish, origin=ORIGIN, seq=1)


@pytest.mark.parametrize("header", [b"", b"{}", b'[1,0,1,"\xff"]', b'[1,0,1,null,null,null,{"a":' + b"[" * 5000])
def test_what_has_no_header_of_a_batch_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="not a packed batch"):
        Batch.unpack(isal_zlib.compress(header + b"\n", 0, -15), origin=ORIGIN, seq=1)


@given(document_batches(), st.data())
def test_a_packed_batch_that_was_cut_is_refused(batch: Batch, data: st.DataObject) -> None:
    packed = batch.pack()
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]

    for limit in (None, 1 << 20):
        with pytest.raises(ValueError, match="not a packed batch"):
            Batch.unpack(cut, origin=ORIGIN, seq=1, limit=limit)


def test_a_packed_batch_is_unpacked_only_within_the_limit() -> None:
    batch = Batch.lines(b"a" * 9999 + b"\n", offset=0, shared={})
    header = len(isal_zlib.decompress(batch.pack(), -15)) - len(batch.body)

    assert Batch.unpack(batch.pack(), origin=b"", seq=0, limit=10_000 + header) == batch
    with pytest.raises(Oversized):
        Batch.unpack(batch.pack(), origin=b"", seq=0, limit=9_999 + header)


_LATE = """
from shipper.sdk import event, packing
from shipper.sdk.state import Version
for one in (packing.Header, Version):
    one.__annotations__ = dict.fromkeys(one.__annotations__, "NotThere")
batch = event.Batch.documents([b"{}"])
print(event.Batch.unpack(batch.pack(), origin=bytes(16), seq=1).count)
"""


def test_what_is_known_of_a_header_is_complete_before_there_are_threads() -> None:
    """A thread that meets a half-known type is the death of the process; annotations are read when it becomes known."""
    ended = subprocess.run([sys.executable, "-c", _LATE], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.stdout, ended.stderr) == ("1\n", "")
