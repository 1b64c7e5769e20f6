"""The judgement of keys: it lets pass what may be, and finds what may not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_any_choice_of_what_was_said_in_its_order_passes(deletes: list[bool], data: st.DataObject) -> None:
    history = [None if deleted else at + 1 for at, deleted in enumerate(deletes)]
    things = said(*history)
    chosen = data.draw(st.lists(st.sampled_from(range(len(history))), unique=True).map(sorted))
    things.note([written(history[at], place) for place, at in enumerate(chosen, 1)])

    assert things.wrong() == {}
    has = history[chosen[-1]] if chosen else None
    assert things.settled() == (has == history[-1])


@pytest.mark.parametrize("writes", [(2, 1), (None, 1), (3, None), (7,), (1, 3, 1)])
def test_an_older_version_behind_a_newer_one_and_one_that_was_never_said_are_found(writes: tuple[int | None]) -> None:
    things = said(1, None, 3)
    things.note([written(n, place) for place, n in enumerate(writes, 1)])

    assert THING in things.wrong()


def test_what_the_backend_refuses_is_no_write() -> None:
    things = said(1, 2)
    things.note([written(2, 5), written(1, 4)])

    assert things.wrong() == {}
    assert things.settled()
    assert things.seen == {"versions written": 1, "versions refused by the backend": 1}


@pytest.mark.parametrize("say", [Things.put, Things.delete])
def test_a_key_in_doubt_is_judged_again_when_something_new_is_said(say: Callable[[Things, Thing], object]) -> None:
    things = said(1, 2)
    things.note([written(1, 1)])
    assert not things.settled()
    things.doubt("berlin", "inventory")
    assert things.settled()
    say(things, THING)
    assert not things.settled()


def test_of_a_key_whose_deletion_is_in_doubt_a_document_is_judged() -> None:
    things = said(1, 2)
    things.note([written(1, 1)])
    things.doubt("berlin", "inventory", deletions_only=True)
    assert not things.settled()
    things.put(THING)
    things.delete(THING)
    assert things.settled()
    things.note([written(3, 2)])
    assert not things.settled()


def test_a_document_that_is_another_than_was_written_is_found() -> None:
    things = said(1)
    things.note([written(1, 1)])
    document = written(1, 1).source

    assert things.differing({"state-inventory": {"id": document}, "logs": {"x": b"{}"}}) == []
    assert things.differing({"state-inventory": {"id": written(1, 2).source}}) == [THING]
    assert things.differing({}) == [THING]


def test_a_key_that_stood_and_is_not_written_is_early_until_something_newer_is_said_of_it() -> None:
    things = said(1, 2)
    standing = things.standing("berlin", "inventory")
    assert standing == {THING: 2}
    things.note([written(1, 1)])
    assert things.early(standing) == {THING: "version 1 instead of version 2"}
    assert things.early({THING: 1}) == {}
    things.put(THING)
    assert things.early(standing) == {}
