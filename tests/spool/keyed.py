"""Keyed state in the rows of a database in memory, without a store: what the tests of it do to it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from shipper.sdk.event import Batch
from shipper.sdk.state import Change, Kept
from shipper.spool import dead_letters, keyed, lifting, places, queue, revisions, schema
from shipper.spool.database import with_damage
from shipper.spool.feeding import Route
from shipper.spool.keyed import Admitted, Arrival
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.queue import Entry, Settled, Settlement
from shipper.spool.revisions import LaneKey, Text
from shipper.spool.schema import SLOT
from shipper.values import Counts, Revision
from tests.databases import in_memory
from tests.spool.test_spool_revisions import new_sealer

INPUT = "state/in"
LIMITS = dead_letters.Limits()
NOW = 1_000.0


class To(NamedTuple):
    """Where an output goes, and as whom."""

    place: str = "a"
    credential: str = "k1"


class Shelf:
    """The rows; `lanes` are those of the active revision, by output."""

    def __init__(self) -> None:
        self.db = in_memory()
        with_damage(schema.prepare)(self.db)
        self.sealer = new_sealer()
        self.at = Revision(0, 0)
        self.lanes: dict[str, int] = {}
        self.epoch = places.begin(self.db, NOW)
        self._numbers = itertools.count(1)

    def activate(
        self, inputs: Mapping[str, tuple[str, ...]] | None = None, *, retracts: bool = False, **outputs: To
    ) -> revisions.Cut:
        """A revision with these outputs; `inputs` are routed to all of them, or to those that are named."""
        self.at = Revision(0, next(self._numbers))
        keys = [LaneKey(name, "fake", to.place, (to.credential,), state=True) for name, to in outputs.items()]
        revisions.receive(self.db, self.sealer, Text(self.at, "sha", str(self.at), "barrier", [], ""), {})
        routes = {INPUT: tuple(outputs)} if inputs is None else inputs
        state = [Route(input, names, retracts) for input, names in routes.items()]
        wanted = [(key, LaneSettings({"credential": key.credentials[0]}, (("credential",),))) for key in keys]
        cut = revisions.cut(self.db, self.sealer, self.at, wanted, {}, state, NOW)
        self.lanes = {row.key.output: row.id for row in cut.lanes}
        return cut

    def admit(
        self,
        *changes: Change,
        fronts: Mapping[int, int] | None = None,
        input: str = INPUT,
        awaited: bool = False,
    ) -> Admitted:
        """Admit changes for all active lanes."""
        arrival = Arrival(self.at, input, list(self.lanes.values()), changes, fronts=fronts or {}, awaited=awaited)
        return keyed.keep(self.db, self.sealer, NOW, arrival)

    def keep(self, key: str, document: bytes | None, *, fronts: Mapping[int, int] | None = None) -> Kept:
        """Admit one change of an own key."""
        (kept,) = self.admit(Change("things", key, document), fronts=fronts).kept
        return kept

    def entries(self, lane: int) -> list[Entry]:
        """What a lane has to do."""
        return queue.window(self.db, lane, 0, 1000)

    def waiting(self, lane: int) -> list[tuple[str, bytes | None]]:
        """The keys and documents that wait on a lane, in their order."""
        return [said(self.load(lane, entry)) for entry in self.entries(lane) if entry.kind == SLOT]

    def load(self, lane: int, entry: Entry) -> Batch:
        """The version of an entry."""
        return queue.load(self.db, self.sealer, lane, entry)

    def settle(self, lane: int, seq: int, place: int | None = None, **counts: int) -> Settled | None:
        """Note the answer for a slot; delivered, if nothing else is said."""
        settlement = Settlement(Counts(**(counts or {"delivered": 1})), place=place)
        return queue.settle(self.db, self.sealer, lane, seq, settlement, LIMITS, NOW)

    def answer(self, lane: int, seq: int, place: int, fence: int) -> list[queue.Moved]:
        """Note that the destination has another version, with that of its fence."""
        settlement = Settlement(Counts(superseded=1), place=place, fence=(fence, b""))
        moved = lifting.reissue(self.db, self.sealer, NOW, lane, seq, settlement, self.epoch)
        queue.settle(self.db, self.sealer, lane, seq, settlement, LIMITS, NOW)
        return moved

    def deliver_all(self, lane: int) -> list[tuple[str, bytes | None]]:
        """Deliver what waits on a lane below its first barrier, and settle that."""
        done = []
        for entry in self.entries(lane):
            if entry.is_barrier:
                assert revisions.settle_barrier(self.db, lane, entry.seq) in ("settled", "gone")
                break
            done.append(said(self.load(lane, entry)))
            self.settle(lane, entry.seq)
        return done

    def settled(self) -> Counts:
        """The sums of all barriers that were settled."""
        row = self.db.execute(
            "SELECT total(accepted), total(delivered), total(duplicate), total(dead_letter), total(dropped),"
            " total(damaged), total(superseded) FROM settled"
        ).fetchone()
        return Counts(*map(int, row))

    def count(self, table: str) -> int:
        (count,) = self.db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


def said(batch: Batch) -> tuple[str, bytes | None]:
    """The key and the document of a version."""
    assert batch.versions is not None
    (version,) = batch.versions
    assert version is not None
    return version.key, None if version.deleted else batch.body[:-1]
