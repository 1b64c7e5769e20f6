"""The names of data streams: whatever an event says, its name is one that Elasticsearch takes."""

from __future__ import annotations

from typing import Any

import pytest

from shipper.sdk.event import Batch
from shipper.sdk.joining import together
from shipper_plugins import data_streams

_STREAM = {"type": "logs", "dataset": "nginx", "namespace": "prod"}


def test_a_shared_data_stream_is_one_name() -> None:
    assert data_streams.of(Batch.lines(b"x\n", offset=0, shared={"data_stream": _STREAM})) == "logs-nginx-prod"


def test_events_with_data_streams_of_their_own_have_one_name_each() -> None:
    batch = Batch.events([{"data_stream": _STREAM}, {"data_stream": {"dataset": "app"}}, {}])

    assert data_streams.of(batch) == ["logs-nginx-prod", "logs-app-default", "logs-generic-default"]


def test_a_part_that_is_no_name_never_becomes_part_of_an_index() -> None:
    for bad in ["BAD X/../", "", "a-b", "a\n", "x" * 101, None, 5, ["x"]]:
        for part in ("type", "dataset", "namespace"):
            shared = Batch.documents([b"{}"], shared={"data_stream": {part: bad}})
            own = Batch.events([{"data_stream": {part: bad}}])

            assert (data_streams.of(shared), data_streams.of(own)) == ("logs-generic-default", ["logs-generic-default"])


def test_events_without_a_data_stream_have_none() -> None:
    assert data_streams.of(Batch.events([{"a": 1}])) is None


@pytest.mark.parametrize("odd", ["text", ["list"], 7, True])
def test_a_data_stream_that_is_no_object_does_not_stop_its_neighbours(odd: Any) -> None:
    """Documents are a client's: whatever it sends under this name, its batch can be encoded."""
    streams = data_streams.of(Batch.events([{"data_stream": odd}, {"data_stream": _STREAM}]))

    assert isinstance(streams, list)
    assert streams[1] == "logs-nginx-prod"


def test_a_document_that_is_no_json_does_not_keep_the_others_from_their_streams() -> None:
    batch = Batch.documents([b'{"data_stream":{"dataset":"a"}}', b'{"data_stream":', b'{"n":1}'])

    assert data_streams.of(batch) == ["logs-a-default", data_streams.DEFAULT, data_streams.DEFAULT]


def test_events_that_are_sent_together_keep_their_data_streams() -> None:
    """Those of inputs of their own, one that says nothing for all its events, and none at all."""
    batches = [
        Batch.lines(b"x\ny\n", offset=0, shared={"data_stream": _STREAM}),
        Batch.lines(b"z\n", offset=0, shared={"data_stream": {**_STREAM, "dataset": "app"}}),
        Batch.events([{"data_stream": {"dataset": "own"}}, {}]),
    ]

    assert data_streams.of(together(batches, ["data_stream"])) == [
        *["logs-nginx-prod"] * 2,
        "logs-app-prod",
        "logs-own-default",
        data_streams.DEFAULT,
    ]
    assert data_streams.of(together([batches[1], Batch.events([{}])], ["data_stream"])) == [
        "logs-app-prod",
        data_streams.DEFAULT,
    ]
