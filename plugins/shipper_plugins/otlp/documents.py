"""Records as JSON by columns: what `events.event_of` makes of each, without an object for each. No I/O.

A field is read of all records, written by one call of the encoder, and joined with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValueList

from shipper.plugin import Fields, join
from shipper.sdk.columns import Column, encoded, numerals
from shipper.sdk.typed import as_json
from shipper_plugins.otlp.events import is_structured, second_of
from shipper_plugins.otlp.protobuf import records_of, value_of
from shipper_plugins.otlp.views import Layer, Read, Texts

Columns = tuple[Column, ...]


def documents(messages: Sequence[bytes]) -> bytes:
    """Returns records, each with a time, as JSON objects, each ended by a line feed; raises DecodeError for an invalid
    one."""
    records = records_of(messages, Read)
    observed = [record.observed_time_unix_nano for record in records]
    times = [record.time_unix_nano or seen for record, seen in zip(records, observed, strict=True)]
    return join(
        len(times),
        b'{"@timestamp":',
        _times(times),
        *_field("observed_timestamp", observed, _times),
        *_field("severity_number", [record.severity_number for record in records]),
        *_field("severity_text", [record.severity_text for record in records]),
        *_bodies([b"".join(record.body) for record in records]),  # of several, one message with all their fields
        *_field("attributes", _attributes([record.attributes[:] for record in records])),
        *_field("dropped_attributes_count", [record.dropped_attributes_count for record in records]),
        *_ids("trace_id", [record.trace_id for record in records]),
        *_ids("span_id", [record.span_id for record in records]),
        *_field("flags", [record.flags for record in records]),
        *_field("event_name", [record.event_name for record in records]),
        b"}\n",
    )


def _field(name: str, values: Sequence[Any], write: Callable[[Sequence[Any]], list[bytes]] = as_json) -> Columns:
    """Returns columns of a field that each record has whose value is not empty."""
    before = b',"%b":' % name.encode()
    if all(values):
        return before, write(values)
    if not any(values):
        return ()
    texts = iter(write([value for value in values if value]))
    return ([before + next(texts) if value else b"" for value in values],)


def _times(times: Sequence[int]) -> list[bytes]:
    """Returns what `events.written` returns of each, as JSON."""
    texts = [text.zfill(10) for text in numerals(times)]
    seconds = {second: second_of(int(second)).encode() for second in {text[:-9] for text in texts}}
    return [b'"%b.%bZ"' % (seconds[text[:-9]], text[-9:]) for text in texts]


def _attributes(attributes: Sequence[Sequence[bytes]]) -> list[Fields]:
    """Returns the attributes of each record; what several have is read once."""
    pairs = list(dict.fromkeys(chain.from_iterable(attributes)))
    read = KeyValueList.FromString(Layer(first=pairs).SerializeToString()).values
    known = dict(zip(pairs, [(pair.key, value_of(pair.value)) for pair in read], strict=True))
    return [dict(map(known.__getitem__, own)) for own in attributes]


def _ids(name: str, ids: Sequence[bytes]) -> Columns:
    return _field(name, [id.hex() for id in ids]) if any(ids) else ()


def _bodies(bodies: Sequence[bytes]) -> Columns:
    texts = _texts(bodies)
    if texts is not None:
        return b',"body":{"text":', encoded(texts), b"}"
    values = [value_of(AnyValue.FromString(body)) for body in bodies]
    return _field("body", [None if value is None else _body(value) for value in values])


def _texts(values: Sequence[bytes]) -> list[str] | None:
    """Returns the texts of values that are texts; None if others are among them.

    Messages one after the other are one with all their fields. If each has a field, all fields are texts, and there are
    as many as messages, each message is a text.
    """
    joined = b"".join(values)
    texts: list[str] = Texts.FromString(joined).texts[:]
    is_all = all(values) and len(texts) == len(values) and Texts(texts=texts).SerializeToString() == joined
    return texts if is_all else None


def _body(value: Any) -> dict[str, Any]:
    return {"structured" if is_structured(value) else "text": value}
