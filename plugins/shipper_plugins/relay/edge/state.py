"""Keyed state of a `relay` output: versions are sent one request after the other, and compared in each new session.

    a new session ──> the sets of both sides are compared (`digests`) ──> what differs is sent again; what is surplus
    there is deleted there or taken back, as `RoutedState.decide` says; then versions go, in the order of the queue

The same decision follows when the answer for an older version names a newer one, as after this directory went back.

A request for versions is apart from those for log events, and on a connection that these leave free. One is under way
at a time, so no version is on its way twice. Versions that the principal answers later wait in `versions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import trio

from shipper.plugin import Answer, Answers, Batch, Code, Later, Outcome, OutputContext, PluginFault
from shipper.plugin.state import Change, Mark, RoutedState, Version, digest_of, point_of
from shipper_plugins.relay import state
from shipper_plugins.relay.digests import Comparison, Differences, Unreadable
from shipper_plugins.relay.edge.sessions import JSON, MOST_ANSWERED, Sessions, Talk
from shipper_plugins.relay.edge.versions import VersionsJob, WaitingVersions, answer_of
from shipper_plugins.relay.frames import Welcome
from shipper_plugins.relay.state import (
    Compare,
    Compared,
    Given,
    Named,
    Other,
    StateAnswered,
    StateHead,
    Surplus,
    Wanted,
)

LONG_PAUSE = 0.2
"""Seconds between two questions of a comparison that is long."""
_FORMER = "the answer of the principal to what was compared cannot be read"


@dataclass(slots=True)
class _Found:
    """What a comparison found, of the keys that were routed to this lane then."""

    marks: list[Mark]
    differences: Differences


class StateSide:
    """The keyed state of an open output; `waiting` are the versions that the principal answers later."""

    def __init__(self, context: OutputContext, sessions: Sessions, waiting: WaitingVersions) -> None:
        self._context, self._sessions, self._waiting = context, sessions, waiting
        self._turn = trio.Lock()
        self.agreed: Welcome | None = None
        """The session in which both sides have been compared."""
        self.is_routed = False
        """Whether keyed state is routed to this lane, as far as is known."""
        self._again: trio.Event | None = None
        """When to compare again in the same session, if nobody could decide about some version yet."""
        self._waits = trio.Event()
        """Set when there is such a time."""
        self._adopted = context.meters.counter("state_adopted", "Versions that were taken back from the other side.")
        self._sent_again = context.meters.counter("state_sent_again", "Keys that the other side lacked.")
        self._surplus = context.meters.counter("state_surplus", "Keys of the other side that were not here.")

    async def agree(self) -> None:
        """Compares both sides, unless the present session has done so. Raises what `Sender.send` may raise."""
        async with self._turn:
            await self._sessions.within(self._agree)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`, for a batch of versions. Others go while it waits for final answers."""
        self.is_routed = True
        job = VersionsJob(batch)

        async def send(talk: Talk) -> None:
            await self._agree(talk)
            positions = job.open()
            if not positions:  # newer versions of all its keys went meanwhile
                return
            left = batch if len(positions) == batch.count else batch.pick(positions)
            head = StateHead.of(talk.head())
            body = await trio.to_thread.run_sync(state.encode, head, left, talk.session.max_document_bytes)
            self._waiting.begin(job, positions, talk.session)
            answered = await talk.ask("versions", state.MEDIA_TYPE, body, StateAnswered)
            job.is_stored |= answered.is_any_stored(len(positions))
            confirmed = self._waiting.said(job, _answers(positions, answered), talk.session)
            self._sessions.lineage.confirmed(talk.session.lineage, state=confirmed)
            await self._decide(talk, _newer(left, answered))

        with self._waiting.of(job):
            while not job.is_over:
                async with self._turn:
                    await self._sessions.within(send)
                await job.wait()
        return job.answers()

    # -- comparing -----------------------------------------------------------------------------------------------------

    async def _agree(self, talk: Talk) -> None:
        if self.agreed is talk.session:
            return
        routed = self._context.state
        self._again = None
        marks = None if routed is None else await routed.marks()
        self.is_routed = marks is not None
        if marks is not None:
            await self._repair(talk, await self._compare(talk, marks))
        self.agreed = talk.session

    async def _compare(self, talk: Talk, marks: list[Mark]) -> _Found:
        comparison, highest = await trio.to_thread.run_sync(_begun, marks)
        while (question := comparison.question()) is not None:
            asked = Compare(talk.session.generation, self._context.lane, question)
            compared = await talk.ask("compare", JSON, [msgspec.json.encode(asked)], Compared)
            await self._see(talk.session, compared, highest)
            try:
                await trio.to_thread.run_sync(comparison.take, compared.answer)
            except Unreadable:
                raise Later(_FORMER, code=Code.BAD_ANSWER) from None
            if comparison.is_long:
                await trio.sleep(LONG_PAUSE)
        return _Found(marks, comparison.differences())

    async def _see(self, session: Welcome, compared: Compared, highest: int) -> None:
        """Takes places above what the other side knows, as after a loss of its directory; or below, after a loss of
        ours."""
        self._sessions.lineage.compared(session.lineage, compared.highest_of_all)
        assert self._context.state is not None
        if compared.highest > highest:
            await self._context.state.place_above(compared.highest)

    async def _repair(self, talk: Talk, found: _Found) -> None:
        """Sends what the other side lacks, or has in another version; deletes what only it has."""
        routed = self._context.state
        assert routed is not None
        mine = frozenset(point for point, _ in found.differences.ours)
        if mine:
            again = await trio.to_thread.run_sync(state.keys_of, found.marks, mine)
            self._sent_again.add(len(again))
            await routed.send_again(again)
        there = sorted({point for point, _ in found.differences.theirs} - mine)
        for chunk in state.chunks(there):
            asked = Surplus(talk.session.generation, self._context.lane, list(chunk))
            named = await talk.ask("surplus", JSON, [msgspec.json.encode(asked)], Named)
            self._surplus.add(len(named.keys))
            await self._decide(talk, named.versions())

    async def undecided(self) -> None:
        """Returns when both sides must be compared again in this session; perhaps never."""
        while self._again is None:
            self._waits = trio.Event()
            await self._waits.wait()
        await self._again.wait()
        self.agreed = None

    async def _decide(self, talk: Talk, versions: list[Version]) -> None:
        """Makes both sides agree about keys of which the other one has these versions."""
        routed = self._context.state
        if routed is None or not versions:
            return
        decided = await routed.decide(versions)
        if self._again is None and decided.again is not None:
            self._again = decided.again
            self._waits.set()
        gone = [Change(one.collection, one.key, None, one.owner, one.place) for one in decided.wanted if one.deleted]
        await self._adopt(routed, gone)
        names = {(one.owner, one.collection, one.key) for one in decided.wanted}
        wanted = [(one.owner, point_of(one.collection, one.key)) for one in decided.wanted if not one.deleted]
        most = MOST_ANSWERED + 2 * (state.MOST_GIVEN + talk.session.max_document_bytes)
        while wanted:
            asked = Wanted(talk.session.generation, self._context.lane, wanted[: state.MOST_NAMED])
            given = await talk.ask("documents", JSON, [msgspec.json.encode(asked)], Given, most)
            await self._adopt(routed, [one for one in given.changes() if (one.owner, one.collection, one.key) in names])
            del wanted[: given.read]

    async def _adopt(self, routed: RoutedState, changes: list[Change]) -> None:
        try:
            await routed.adopt(changes)
        except PluginFault:
            raise Later("the principal sends invalid versions", code=Code.BAD_ANSWER) from None
        self._adopted.add(len(changes))


def _begun(marks: list[Mark]) -> tuple[Comparison, int]:
    """Returns a comparison of these, and the highest place of own keys."""
    return Comparison(state.digests_of(marks)), state.highest(marks, "")


# -- answers -----------------------------------------------------------------------------------------------------------


def _answers(positions: Sequence[int], answered: StateAnswered) -> dict[int, Answer | None]:
    """Returns, by position, the answers for sent versions: None if stored; awaited ones are missing.

    Raises Later for an invalid answer.
    """
    if not all(0 <= other.at < len(positions) for other in answered.others):
        raise Later("the principal answered for versions that were not sent", code=Code.BAD_ANSWER)
    awaited = {positions[other.at] for other in answered.others if other.code == "awaited"}
    others = {positions[other.at]: _answer(other) for other in answered.others if other.code != "awaited"}
    return {at: others.get(at) for at in positions if at not in awaited}


def _newer(batch: Batch, answered: StateAnswered) -> list[Version]:
    """Returns the versions that the other side has instead of older ones."""
    nothing = digest_of(None).hex()
    versions = batch.versions or ()
    fenced = [(versions[other.at], other) for other in answered.others if other.code == "fenced"]
    return [
        one._replace(place=other.place, deleted=other.digest == nothing)
        for one, other in fenced
        if one is not None and one.place < other.place
    ]


def _answer(other: Other) -> Answer | None:
    if other.code == "duplicate":
        return Answer(Outcome.DUPLICATE)
    if other.code == "final":
        return answer_of(other.answer)
    if other.code == "fenced":
        try:
            return Answer(Outcome.SUPERSEDED, fence=(other.place, bytes.fromhex(other.digest)))
        except ValueError:
            raise Later("the principal names a fence without a digest", code=Code.BAD_ANSWER) from None
    if other.code == "full":
        return Answer(Outcome.HELD, "the principal has no room for more keys of this edge", code="state_full")
    reasons = {"collection": "the principal takes no such collection from this edge"}
    return Answer(Outcome.REJECTED, reasons.get(other.code, "the document is larger than the principal takes"))
