"""The streams that are known from what was stored of them."""

from shipper_plugins.tail.registry import Known

SOUND = b'{"path":"/a","dev":1,"ino":2,"offset":3}'


def test_a_position_that_is_damaged_is_no_stream_and_the_others_are_there():
    for damaged in [b"", b"{}", b"\xff", b'{"path":"\xff"}', b'{"x":' + b"[" * 5000]:
        known = Known({"1": damaged, "2": SOUND})

        assert [(stream.key, stream.offset) for stream in known.by_file.values()] == [("2", 3)]
