"""Revisions: their texts, the cut, `drained`, and the credentials that they name."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shipper.spool import credentials, feeding, limits, revisions
from shipper.spool.credentials import Before
from shipper.spool.ground import Ground, Part, urgent
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.limits import SpoolLimits
from shipper.spool.parts.letters import Letters
from shipper.spool.queue import Moved
from shipper.spool.revisions import Cut, Known, LaneKey, LaneRow, Stored, Text
from shipper.values import LARGEST_COUNT, Receipt, Revision
from shipper.values import Revisions as Stages


class Standing(NamedTuple):
    """The revisions, and the credentials in use, at one moment."""

    stored: Stored
    stages: Stages
    in_use: list[str]


def _standing(db: sqlite3.Connection, still_used: Collection[str], since: Revision | None = None) -> Standing:
    """Returns the revisions from `since` on, and the credentials in use, `still_used` included."""
    return Standing(revisions.stored(db, since), revisions.stages(db), credentials.in_use(db, still_used))


def _advance(
    db: sqlite3.Connection,
    closing: Revision | None,
    still_used: Collection[str],
    before: Before = "listed",
    most_bytes: int = LARGEST_COUNT,
    since: Revision | None = None,
) -> tuple[Receipt | None, list[str], Standing]:
    """Stores `drained` for the newest drained revision; returns its receipt, and released credentials that it lacks;
    and what `standing` returns after that.

    The receipt lists at most `most_bytes` of released credentials as JSON.
    """
    receipt = revisions.drained(db, closing, still_used, before, most_bytes)
    if receipt is None:
        free = credentials.release(db, still_used)
    else:
        free = credentials.unlisted(db, receipt.credentials.in_use)
    return receipt, free, _standing(db, still_used, since)


class Revisions(Part):
    """Revisions. Their limits are those of the whole spool; `letters` hears where the dead letters' have changed."""

    def __init__(self, ground: Ground, letters: Letters) -> None:
        super().__init__(ground)
        self._letters = letters

    standing = urgent(_standing)
    forget = urgent(revisions.forget)
    advance = urgent(_advance)
    release = urgent(credentials.release)
    forget_credentials = urgent(credentials.forget)
    fingerprints = urgent(credentials.fingerprints)

    async def receive(self, text: Text, marks: Mapping[str, bytes], skipped: Collection[Text] = ()) -> list[Known]:
        """Stores a valid policy; see `revisions.receive`."""
        return await self.ground.urgent(lambda db: revisions.receive(db, self.sealer, text, marks, skipped))

    async def cut(
        self,
        at: Revision,
        wanted: Sequence[tuple[LaneKey, LaneSettings]],
        terms: SpoolLimits = limits.DEFAULTS,
        contacts: Mapping[str, Sequence[str]] = MappingProxyType({}),
        state: Sequence[feeding.Route] = (),
    ) -> Cut:
        """Makes a revision active, puts the barriers, and stores its limits, in one transaction.

        `contacts` are digests of the hosts of each output that says when it asks them (`forward` has the rule), `state`
        the inputs of keyed state.
        """
        ground, now = self.ground, self.ground.now()

        def cut(db: sqlite3.Connection) -> Cut:
            limits.store(db, terms)
            return revisions.cut(db, self.sealer, at, wanted, contacts, state, now)

        done, figures = await ground.urgent(ground.counted(cut))
        figures.moved(done.retracted)
        for lane, events, gone in done.fed:
            figures.moved(Moved(lane, entry, None) for entry in gone)
            figures.fed(at, lane, events)
        self._hold(terms)
        return done

    async def take_over(self, terms: SpoolLimits) -> None:
        """Stores limits of the active revision; a spool of an earlier version has none."""
        await self.ground.urgent(lambda db: limits.store(db, terms))
        self._hold(terms)

    def _hold(self, terms: SpoolLimits) -> None:
        is_other_store = terms.dead_letters != self.ground.limits.dead_letters
        self.ground.limits = terms
        if is_other_store:
            self._letters.free()

    async def lanes(self) -> list[LaneRow]:
        return await self.ground.urgent(lambda db: revisions.lanes(db, self.sealer))

    async def policy_text(self, at: Revision) -> str | None:
        """Returns the stored text of a revision, or None. Raises Damaged."""
        return await self.ground.urgent(lambda db: revisions.policy_text(db, self.sealer, at))
