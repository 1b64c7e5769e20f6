"""Record batches, read back by the library's reader."""

from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.kafka.records import Chunk, Compression, Places, chunks, oversized, place_of
from shipper_plugins.kafka.rows import Rows


def rows(*values: bytes, keys: list[bytes | None] | None = None, topic: str = "t") -> Rows:
    return Rows([topic] * len(values), keys, [[("id", b"%d" % n)] for n in range(len(values))], list(values))


def made(
    of: Rows, *, limit: int = 1 << 20, compression: Compression = "none", free: int = 3, turn: int = 0
) -> list[Chunk]:
    places = {topic: Places(free, range(free)) for topic in of.topics}
    limits = dict.fromkeys(places, limit)
    return chunks(of, range(len(of.values)), places, limits, compression=compression, turn=turn)


def read(chunk: Chunk):
    records = MemoryRecords(bytes(chunk.data))
    batch = records.next_batch()
    assert batch.validate_crc()
    assert not records.has_next()
    return batch


def test_a_batch_is_read_back_with_its_stamp() -> None:
    for compression in ["none", "gzip", "lz4", "snappy", "zstd"]:
        (chunk,) = made(rows(b"one" * 100, b"two", keys=None), compression=compression)
        chunk.stamp(4711, 3, 99)
        batch = read(chunk)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 99)
        assert [(record.value, record.headers) for record in batch] == [
            (b"one" * 100, [("id", b"0")]),
            (b"two", [("id", b"1")]),
        ]


def test_keys_go_where_the_java_client_puts_them() -> None:
    """The values are those of its own tests."""
    assert place_of(b"21") == 0x7FFFFFFF & -973932308
    assert place_of(b"foobar") == 0x7FFFFFFF & -790332482
    assert place_of(b"a-little-bit-long-string") == 0x7FFFFFFF & -985981536


def test_events_without_a_key_go_round_batch_by_batch() -> None:
    got = made(rows(*([b"x" * 500] * 100)), limit=4096, turn=2)
    assert [chunk.partition for chunk in got[:5]] == [2, 0, 1, 2, 0]


def test_a_record_above_the_limit_is_told() -> None:
    assert oversized(rows(b"x", b"y" * 1024, b"z"), 1024) == [1]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=4), st.binary(max_size=300)), max_size=60),
    st.integers(500, 2000),
    st.sampled_from(["none", "gzip", "lz4"]),
)
def test_each_event_is_in_one_batch_within_the_limit_and_in_order(
    records: list[tuple[bytes | None, bytes]], limit: int, compression: Compression
) -> None:
    of = rows(*(value for _, value in records), keys=[key for key, _ in records])
    got = made(of, limit=limit, compression=compression)
    assert sorted(at for chunk in got for at in chunk.positions) == list(range(len(records)))
    keyed: dict[bytes, list[int]] = {}
    for chunk in got:
        assert chunk.size <= limit
        chunk.stamp(1, 0, 0)
        batch = list(read(chunk))
        assert [(record.key, record.value) for record in batch] == [records[at] for at in chunk.positions]
        for at in chunk.positions:
            if (key := records[at][0]) is not None:
                keyed.setdefault(key, []).append(at)
                assert chunk.partition == place_of(key) % 3
    assert all(ats == sorted(ats) for ats in keyed.values())
