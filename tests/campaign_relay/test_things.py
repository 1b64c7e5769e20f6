"""The judgement of keys: it lets pass what may be, and finds what may not."""

from __future__ import annotations

import json

import pytest

from shipper.testing import Document
from tests.campaign_relay.things import Thing, Things

THING = Thing("berlin", "inventory", "a")


def written(n: int | None, place: int) -> Document:
    says = {**THING._asdict(), "place": place, "deleted": n is None}
    source = {"shipper": says} if n is None else {"shipper": says, "n": n}
    return Document("index", "state-inventory", "id", json.dumps(source).encode(), place)


def said(*what: int | None) -> Things:
    things = Things()
    for n in what:
        if n is None:
            things.delete(THING)
        else:
            assert things.put(THING) == b'{"n":%d}' % n
    return things


@pytest.mark.parametrize("writes", [(2, 1), (None, 1), (3, None), (7,), (1, 3, 1)])
def test_an_older_version_behind_a_newer_one_and_one_that_was_never_said_are_found(writes: tuple[int | None]) -> None:
    things = said(1, None, 3)
    things.note([written(n, place) for place, n in enumerate(writes, 1)])

    assert THING in things.wrong()


def test_a_document_that_is_another_than_was_written_is_found() -> None:
    things = said(1)
    things.note([written(1, 1)])
    document = written(1, 1).source

    assert things.differing({"state-inventory": {"id": document}, "logs": {"x": b"{}"}}) == []
    assert things.differing({"state-inventory": {"id": written(1, 2).source}}) == [THING]
    assert things.differing({}) == [THING]
