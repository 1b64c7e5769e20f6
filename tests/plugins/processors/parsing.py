"""What `parse` makes of many events at once, judged by its reading of single ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import orjson

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.formats import json_lines
from shipper_plugins.processors.parse import Parse


def assert_as_alone(parse: Parse, lines: Sequence[str], shared: Fields) -> None:
    """Lines of a file become what each alone becomes, also as they are written; no key stands twice there."""
    batch = Batch.lines("".join(f"{line}\n" for line in lines).encode(), offset=10, gap=2, shared=shared)
    at_once = check_processor(parse, batch)
    alone = sorted_json(event for own in batch.own() for event in _alone(parse, Batch.events([own], shared=shared)))
    wire = [json.loads(row, object_pairs_hook=_unique) for row in at_once.json_lines().split(b"\n")[:-1]]

    assert sorted_json(at_once.whole()) == alone == sorted_json(wire)


def assert_documents_as_alone(parse: Parse, events: list[Fields], shared: Fields) -> None:
    """Events with fields of their own become what each alone becomes."""
    batch = Batch.events(events, shared=shared)
    alone = sorted_json(event for place in range(batch.count) for event in _alone(parse, batch.pick([place])))

    assert sorted_json(check_processor(parse, batch).whole()) == alone


def _alone(parse: Parse, batch: Batch) -> list[Fields]:
    shape = json_lines.shape(batch.shared)
    return batch.replace([parse._parsed(event, shape) for event in batch.own()]).whole()


def _unique(pairs: list[tuple[str, object]]) -> Fields:
    assert len(dict(pairs)) == len(pairs), "a key stands there twice"
    return dict(pairs)


def sorted_json(events: Iterable[Fields]) -> list[bytes]:
    return [orjson.dumps(event, option=orjson.OPT_SORT_KEYS) for event in events]
