"""Faults made by hand in what becomes of keyed state; see `mutants`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from shipper.pipeline.lane import Lane
from shipper.sdk.state import Change, Kept
from shipper.spool import dead_letters, feeding, keyed, lifting, places, queue, slots, waiting
from shipper.spool.spool import Spool
from shipper.values import Confirmed, Counts


def answers_settle_any_version(patch: pytest.MonkeyPatch) -> None:
    """The answer for a version settles the newer one that has taken its slot, also one that is handed out already."""
    patch.setattr(slots, "is_renewed", lambda db, lane, seq, place: False)
    patch.setattr(Lane, "front", property(lambda self: 0))


def superseded_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """A newer version supersedes those that other destinations are still to have."""
    original = waiting.destinations

    def destinations(db: sqlite3.Connection, lanes: Collection[int]) -> Any:
        return _All(original(db, lanes))

    patch.setattr(waiting, "destinations", destinations)


class _All(frozenset[Any]):
    def __contains__(self, other: object) -> bool:
        return True


def new_destinations_get_nothing(patch: pytest.MonkeyPatch) -> None:
    """A moved or an added output gets what changes since, and nothing of what is there."""
    patch.setattr(feeding, "_feed", lambda *arguments: 0)


def old_versions_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    """A retired lane still has the slot for the version before, and the version is gone."""
    patch.setattr(waiting, "keep_old", lambda db, those: None)


def the_fence_has_the_last_word(patch: pytest.MonkeyPatch) -> None:
    """A version that is refused for its place is given up, though it is the last word of this very process."""
    patch.setattr(lifting, "reissue", lambda *arguments: [])


def any_epoch_is_issued_again(patch: pytest.MonkeyPatch) -> None:
    """Also what an earlier process admitted is raised above the fence."""
    original = lifting.reissue

    def reissue(*arguments: Any) -> Any:
        return original(*arguments[:-1], 0)  # type: ignore[call-arg]

    patch.setattr(lifting, "reissue", reissue)


def superseded_counts_nowhere(patch: pytest.MonkeyPatch) -> None:
    """The barrier above a version that was superseded does not learn of it."""
    original = queue.count_answers

    def count_answers(db: sqlite3.Connection, lane: int, seq: int, counts: Counts, *confirmed: Confirmed) -> None:
        original(db, lane, seq, structs.replace(counts, superseded=0), *confirmed)

    patch.setattr(queue, "count_answers", count_answers)


def places_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Each process gives the places of the one before."""
    patch.setattr(places, "begin", lambda db, now: places._set_epoch(db, 1))


def edges_may_go_back(patch: pytest.MonkeyPatch) -> None:
    """What an edge says is new, whatever its place."""
    original = keyed._known

    def known(has: Any, change: Change) -> Kept | None:
        answer = original(has, change)
        return None if answer is not None and answer.fenced else answer

    patch.setattr(keyed, "_known", known)


def places_of_edges_are_ours(patch: pytest.MonkeyPatch) -> None:
    """What an edge says late gets a place above all that it said before."""
    original = Spool.keep

    async def keep(self: Spool, arrival: keyed.Arrival, *arguments: Any, **options: Any) -> keyed.Admitted:
        ours = replace(arrival, changes=[change._replace(place=None) for change in arrival.changes])
        return await original(self, ours, *arguments, **options)

    patch.setattr(Spool, "keep", keep)


def letters_name_no_key(patch: pytest.MonkeyPatch) -> None:
    """Of a version that was refused nobody knows which key it is of."""
    patch.setattr(dead_letters, "_state", lambda version: {})


def acknowledged_without_the_newest(patch: pytest.MonkeyPatch) -> None:
    """Of several changes the last one is acknowledged, and not stored."""
    original = Spool.keep

    async def keep(self: Spool, arrival: keyed.Arrival, *arguments: Any, **options: Any) -> keyed.Admitted:
        if len(arrival.changes) < 2:
            return await original(self, arrival, *arguments, **options)
        fewer = replace(arrival, changes=arrival.changes[:-1])
        admitted = await original(self, fewer, *arguments, **options)
        return admitted._replace(kept=(*admitted.kept, admitted.kept[-1]._replace(fenced=True)))

    patch.setattr(Spool, "keep", keep)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    answers_settle_any_version: "K1",
    superseded_from_anywhere: "K3",
    new_destinations_get_nothing: "K1",
    old_versions_are_not_copied: "B11",
    the_fence_has_the_last_word: "K1",
    any_epoch_is_issued_again: "K7",
    superseded_counts_nowhere: "L1",
    places_begin_anew: "K5",
    edges_may_go_back: "K5",
    places_of_edges_are_ours: "K2",
    letters_name_no_key: "K4",
    acknowledged_without_the_newest: "K1",
}
