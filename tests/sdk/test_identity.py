"""Identity: no two events have one id."""

from __future__ import annotations

from dataclasses import replace

from shipper.sdk.event import Batch
from tests.sdk.batches import ids, stored


def test_a_batch_of_more_lines_than_numbers_are_prepared_has_all_its_ids() -> None:
    batch = Batch.lines(b"\n" * 70_000, offset=0, shared={})

    assert len(set(ids(batch))) == 70_000


def test_ids_of_two_origins_or_two_places_differ() -> None:
    batch = stored(Batch.lines(b"x\n", offset=0, shared={}))
    others = [replace(batch, origin=bytes(16)), replace(batch, seq=7), replace(batch, seq=770)]

    assert len({ids(one)[0] for one in [batch, *others]}) == 4


def test_an_id_that_a_client_gave_is_kept_and_escaped() -> None:
    batch = stored(Batch.documents([b"{}", b"{}", b"{}"], ids=['a"\\\n', None, ""]))

    assert ids(batch)[0] == 'a"\\\n'
    assert [i.rpartition("-")[2] for i in ids(batch)[1:]] == ["1", "2"]
