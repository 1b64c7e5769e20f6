import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.event import Batch
from shipper.sdk.joining import together, way
from shipper.sdk.state import Version, compact, digest_of, epoch_of, place_of

VERSION = Version("berlin", "inventory", "a/ü", place_of(7, 3), digest_of(b"{}"), False)


def test_a_digest_is_of_the_bytes_of_a_document_and_of_a_deletion_of_none():
    assert digest_of(b'{"a":1}') == hashlib.sha256(b'{"a":1}').digest()
    assert digest_of(None) == hashlib.sha256(b"").digest()


def test_a_compact_document_is_one_line_and_keeps_its_numbers():
    assert compact(b'{ "a" : 123456789012345678901234567890,\n "b": 1.50 }') == (
        b'{"a":123456789012345678901234567890,"b":1.50}'
    )


def test_what_is_no_json_object_is_no_document():
    for text in [b"", b"[]", b"1", b"{", b'{"a":1}{', b'{"a":"\xff"}', b"nonsense", b"[" * 9999]:
        with pytest.raises(ValueError, match="it is no JSON"):
            compact(text)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_a_place_of_a_later_epoch_is_above_all_of_an_earlier_one(epoch, sequence):
    assert epoch_of(place_of(epoch, sequence)) == epoch
    assert place_of(epoch, 2**31 - 1) < place_of(epoch + 1, 0)
    assert place_of(epoch, sequence) < 2**63


def test_versions_stay_with_their_events_in_the_spool_and_in_requests():
    one = Batch.documents([b'{"a":1}']).with_columns(versions=[VERSION])
    other = Batch.documents([b"{}"]).with_columns(versions=[VERSION._replace(key="b", deleted=True)])

    both = together([Batch.unpack(one.pack(), origin=b"", seq=1), other])

    assert list(both.versions) == [VERSION, VERSION._replace(key="b", deleted=True)]
    assert list(both.pick([1]).versions) == [VERSION._replace(key="b", deleted=True)]


def test_state_and_log_events_do_not_go_together():
    log, state = Batch.documents([b'{"a":1}']), Batch.documents([b'{"a":1}']).with_columns(versions=[VERSION])

    assert way(log) != way(state) == way(state)


def test_a_place_is_in_the_epoch_that_it_was_made_in():
    assert epoch_of(place_of(7, 3)) == 7
    assert place_of(7, 3) < place_of(7, 4) < place_of(8, 0)
