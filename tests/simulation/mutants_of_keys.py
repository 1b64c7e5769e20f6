"""Faults made by hand in what becomes of keyed state; see `mutants`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from typing import Any

import pytest
from msgspec.structs import replace

from shipper.pipeline.delivery.lane import Lane
from shipper.sdk.state import Change, Kept
from shipper.spool import dead_letters, keyed, lifting, slots, waiting
from shipper.spool.parts.state import State


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


def old_versions_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    """A retired lane still has the slot for the version before, and the version is gone."""
    patch.setattr(waiting, "keep_old", lambda db, those: None)


def any_epoch_is_issued_again(patch: pytest.MonkeyPatch) -> None:
    """Also what an earlier process admitted is raised above the fence."""
    original = lifting.reissue

    def reissue(*arguments: Any) -> Any:
        return original(*arguments[:-1], 0)  # type: ignore[call-arg]

    patch.setattr(lifting, "reissue", reissue)


def edges_may_go_back(patch: pytest.MonkeyPatch) -> None:
    """What an edge says is new, whatever its place."""
    original = keyed._known

    def known(has: Any, change: Change) -> Kept | None:
        answer = original(has, change)
        return None if answer is not None and answer.fenced else answer

    patch.setattr(keyed, "_known", known)


def places_of_edges_are_ours(patch: pytest.MonkeyPatch) -> None:
    """What an edge says late gets a place above all that it said before."""
    original = State.keep

    async def keep(self: State, arrival: keyed.Arrival, *arguments: Any, **options: Any) -> keyed.Admitted:
        ours = replace(arrival, changes=[change._replace(place=None) for change in arrival.changes])
        return await original(self, ours, *arguments, **options)

    patch.setattr(State, "keep", keep)


def letters_name_no_key(patch: pytest.MonkeyPatch) -> None:
    """Of a version that was refused nobody knows which key it is of."""
    patch.setattr(dead_letters, "_state", lambda version: {})


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    answers_settle_any_version: "K1",
    superseded_from_anywhere: "K3",
    old_versions_are_not_copied: "B11",
    any_epoch_is_issued_again: "K7",
    edges_may_go_back: "K5",
    places_of_edges_are_ours: "K2",
    letters_name_no_key: "K4",
}
