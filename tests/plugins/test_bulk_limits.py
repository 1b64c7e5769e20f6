"""Who may enter, how much memory all requests take, and that a bomb is noticed while it inflates."""

import base64
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Credential, DataStream
from shipper_plugins.inputs import bulk_limits
from shipper_plugins.inputs.bulk_answer import RequestRefused
from shipper_plugins.inputs.bulk_limits import Door, Inflation, Memory, fingerprint


def door(*credentials):
    keys = tuple(fingerprint(Credential.parse(credential).authorization()) for credential in credentials)
    return Door(keys=keys, tls=None, stream=DataStream(), max_body_bytes=1, max_decompressed_bytes=1)


def header(scheme, text):
    return f"{scheme} {base64.b64encode(text.encode()).decode()}"


def test_a_door_opens_to_its_keys_only():
    both = door({"api_key": "id:secret"}, {"username": "ann", "password": "pä:ss"})

    assert both.opens_to(header("ApiKey", "id:secret"))
    assert both.opens_to(header("apikey", "id:secret").rstrip("="))
    assert both.opens_to(header("Basic", "ann:pä:ss"))
    assert not both.opens_to(header("Basic", "id:secret"))
    assert not both.opens_to(header("ApiKey", "id:other"))
    assert not both.opens_to("")


def test_an_api_key_may_be_given_encoded():
    assert door({"api_key": base64.b64encode(b"id:secret").decode()}).opens_to(header("ApiKey", "id:secret"))


@given(
    st.text(alphabet=st.characters(), max_size=20)
    | st.text(alphabet=st.characters(), max_size=20).map("ApiKey {}".format)
)
def test_no_other_header_opens_a_door(text):
    assert not door({"api_key": "id:secret"}).opens_to(text)
    assert not door().opens_to(text)


def test_memory_is_shared_but_one_request_alone_always_fits():
    memory = Memory(limit=100)
    with memory.share() as first:
        first.resize(150)
        with memory.share() as second:
            with pytest.raises(RequestRefused, match="under way") as caught:
                second.resize(1)

            assert caught.value.status == 429
        first.resize(50)
        with memory.share() as third:
            third.resize(50)
            third.resize(40)

    assert memory.held == 0


def inflate(encoding, body, step):
    inflation = Inflation(encoding)
    pieces = [piece for at in range(0, len(body), step) for piece in inflation.pieces(body[at : at + step])]
    inflation.finish()
    return pieces


def raw_deflate(body):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


@given(st.binary(max_size=2000).map(lambda body: body * 300), st.integers(1, 5000), st.sampled_from([1, 6, 9]))
def test_what_was_compressed_is_inflated_in_bounded_pieces(body, step, level):
    for encoding, sent in [
        ("gzip", gzip.compress(body, level)),
        ("gzip", gzip.compress(body[:1000], level) + gzip.compress(body[1000:], level)),
        ("deflate", zlib.compress(body, level)),
        ("deflate", raw_deflate(body)),
    ]:
        pieces = inflate(encoding, sent, step)

        assert b"".join(pieces) == body
        assert all(len(piece) <= 1 << 18 for piece in pieces)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 100), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_inflate_or_are_refused(body, step, encoding):
    try:
        inflate(encoding, body, step)
    except RequestRefused as refused:
        problem = refused.status
    else:
        problem = 400

    assert problem == 400


def test_what_is_left_of_a_body_is_not_copied_after_each_of_its_members(monkeypatch):
    read = []
    make = bulk_limits.isal_zlib.decompressobj

    class Counting:
        def __init__(self, window):
            self._stream = make(window)

        def decompress(self, block, most):
            read.append(len(block))
            return self._stream.decompress(block, most)

        def __getattr__(self, name):
            return getattr(self._stream, name)

    monkeypatch.setattr(bulk_limits.isal_zlib, "decompressobj", Counting)
    inflation = Inflation("gzip")

    body = gzip.compress(b"") * 10_000 + gzip.compress(b"end")
    assert b"".join(inflation.pieces(body)) == b"end"
    inflation.finish()
    assert max(read) <= 64 << 10


@pytest.mark.parametrize("cut", [1, 10, 20, -1])
def test_a_body_that_is_cut_is_refused(cut):
    with pytest.raises(RequestRefused, match="too early"):
        inflate("gzip", gzip.compress(b"x" * 1000)[:cut], 7)
