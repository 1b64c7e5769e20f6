"""The final answers for versions of keyed state that their input waits for. Pure functions of the database.

They are rows of `awaited`, like those of batches, and are settled like those: each entry of a lane that has the version
names its row. There is at most one row a key, that of its current version: a newer one takes its place, and an older
one is superseded by it. It stays when it is complete, so a version that comes again has the answer that it had.

Rejected: columns of `keyed`. To note an answer would write the document once more.
"""

from __future__ import annotations

import sqlite3

from shipper.sdk.answers import Ranked
from shipper.sdk.state import Change, Kept, Version, answers_key
from shipper.spool import awaited
from shipper.spool.awaited import Awaited


def add(db: sqlite3.Connection, input: str, of: Version | Change, place: int, entries: int) -> int:
    """Makes the row of a version that waits on so many lanes; returns its id."""
    return awaited.add(db, input, Awaited(_key(of, place), 1), entries)


def forget(db: sqlite3.Connection, input: str, of: Version | Change, place: int) -> None:
    """Deletes the row of a version that is the current one no longer, if it has one."""
    awaited.forget(db, input, [_key(of, place)])


def forget_named(db: sqlite3.Connection, input: str, owner: str, name: bytes, place: int) -> None:
    """The same of a version by the digest that names its key; `owner` is the first part of its owner."""
    awaited.forget(db, input, [f"{owner}/{name.hex()}/{place}"])


def is_awaited(db: sqlite3.Connection, input: str, of: Version | Change, place: int) -> bool:
    """Whether a version has a row."""
    return _key(of, place) in awaited.answers(db, input, [_key(of, place)])


def with_answers(db: sqlite3.Connection, input: str, of: Version | Change, kept: Kept) -> Kept:
    """Adds what is known of the answers for the version that a key has."""
    key = _key(of, kept.place)
    found = awaited.answers(db, input, [key])
    if key not in found:
        return kept
    answers = found[key]
    return kept._replace(awaited=answers is None, final=None if answers is None else Ranked(answers[0]))


def give_way(db: sqlite3.Connection, gone: tuple[int, int], instead: tuple[int, int]) -> None:
    """Before an entry (lane, seq) is deleted for another one of the same version: that one is awaited in its place.

    No two entries name the same row then: the lanes of an admission are those of different outputs.
    """
    (reference,) = db.execute("SELECT awaited FROM todo WHERE lane = ? AND seq = ?", gone).fetchone()
    if reference:
        db.execute("UPDATE todo SET awaited = ? WHERE lane = ? AND seq = ?", (reference, *instead))


def _key(of: Version | Change, place: int) -> str:
    return answers_key(of.owner, of.collection, of.key, place)
