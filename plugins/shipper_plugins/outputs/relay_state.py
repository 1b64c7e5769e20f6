"""Keyed state of a `relay` output: versions are sent one request after the other, and compared in each new session.

    a new session ──> the sets of both sides are compared (`digests`) ──> what differs is sent again, what is surplus
    there and was given by this directory is deleted; then versions go, in the order of the queue

A request for versions is apart from those for log events, and on a connection that these leave free. One is under way
at a time, so no version is on its way twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import trio

from shipper.plugin import Answer, Answers, Batch, Code, Later, Mark, Outcome, OutputContext
from shipper_plugins.outputs.relay_sessions import JSON, Sessions, Talk
from shipper_plugins.relay import state
from shipper_plugins.relay.digests import Comparison, Differences, Digests, Unreadable
from shipper_plugins.relay.frames import Welcome
from shipper_plugins.relay.state import Compare, Compared, Named, Other, StateAnswered, StateHead, Surplus

_FORMER = "the answer of the principal to what was compared cannot be read"


@dataclass(slots=True)
class _Found:
    """What a comparison found, of the keys that were routed to this lane then."""

    marks: list[Mark]
    differences: Differences


class StateSide:
    """Of an open output."""

    def __init__(self, context: OutputContext, sessions: Sessions) -> None:
        self._context, self._sessions = context, sessions
        self._turn = trio.Lock()
        self.agreed: Welcome | None = None
        """The session in which both sides have been compared."""
        self.is_routed = False
        """Whether keyed state is routed to this lane, as far as is known."""
        self._sent_again = context.meters.counter("state_sent_again", "Keys that the other side lacked.")
        self._surplus = context.meters.counter("state_surplus", "Keys of the other side that were not here.")

    async def agree(self) -> None:
        """See to it that both sides were compared in the session of now. Raises what `Sender.send` may raise."""
        async with self._turn:
            await self._sessions.within(self._agree)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; of a batch of versions."""
        answers: list[Answers] = []
        self.is_routed = True

        async def send(talk: Talk) -> None:
            await self._agree(talk)
            waits = self._context.waits()
            head = StateHead(
                talk.session.generation,
                self._context.lane,
                talk.low,
                waiting=waits.events,
                versions=waits.versions,
            )
            body = await trio.to_thread.run_sync(state.encode, head, batch, talk.session.max_document_bytes)
            answered = await talk.ask("versions", state.MEDIA_TYPE, body, StateAnswered)
            answers.append(_answers(batch, answered))
            self._sessions.lineage.confirmed(talk.session.lineage, state=_highest(batch, answered))

        async with self._turn:
            await self._sessions.within(send)
        return answers[-1]

    # -- comparing -----------------------------------------------------------------------------------------------------

    async def _agree(self, talk: Talk) -> None:
        if self.agreed is talk.session:
            return
        routed = self._context.state
        marks = None if routed is None else await routed.marks()
        self.is_routed = marks is not None
        if marks is not None:
            await self._repair(talk, await self._compare(talk, marks))
        self.agreed = talk.session

    async def _compare(self, talk: Talk, marks: list[Mark]) -> _Found:
        comparison = Comparison(await trio.to_thread.run_sync(_digests, marks))
        while (question := comparison.question()) is not None:
            asked = Compare(talk.session.generation, self._context.lane, question)
            compared = await talk.ask("compare", JSON, [msgspec.json.encode(asked)], Compared)
            await self._see(talk.session, compared, marks)
            try:
                comparison.take(compared.answer)
            except Unreadable:
                raise Later(_FORMER, code=Code.BAD_ANSWER) from None
        return _Found(marks, comparison.differences())

    async def _see(self, session: Welcome, compared: Compared, marks: list[Mark]) -> None:
        """Places above what the other side knows, as after a loss of the directory; or below, as it lost its own."""
        self._sessions.lineage.compared(session.lineage, compared.highest_of_all)
        assert self._context.state is not None
        if compared.highest > state.highest(marks, ""):
            await self._context.state.place_above(compared.highest)

    async def _repair(self, talk: Talk, found: _Found) -> None:
        """Send what the other side has not, or in another version; delete what is there only."""
        routed = self._context.state
        assert routed is not None
        mine = frozenset(point for point, _ in found.differences.ours)
        again = state.keys_of(found.marks, mine)
        self._sent_again.add(len(again))
        await routed.send_again(again)
        there = sorted({point for point, _ in found.differences.theirs} - mine)
        for chunk in state.chunks(there):
            asked = Surplus(talk.session.generation, self._context.lane, list(chunk))
            named = await talk.ask("surplus", JSON, [msgspec.json.encode(asked)], Named)
            self._surplus.add(len(named.keys))
            await routed.delete(named.versions())


def _digests(marks: list[Mark]) -> Digests:
    return state.digests_of(marks)


# -- answers -----------------------------------------------------------------------------------------------------------


def _answers(batch: Batch, answered: StateAnswered) -> Answers:
    """Raises Later for an answer that cannot be."""
    others = {other.at: _answer(other) for other in answered.others}
    if not all(0 <= at < batch.count for at in others):
        raise Later("the principal answered for versions that were not sent", code=Code.BAD_ANSWER)
    return Answers(batch.count, others)


def _highest(batch: Batch, answered: StateAnswered) -> int:
    """The highest place of a version that the other side has; 0 if there is none."""
    lacking = {other.at for other in answered.others if other.code not in ("duplicate", "fenced")}
    return max((one.place for at, one in enumerate(batch.versions or ()) if one and at not in lacking), default=0)


def _answer(other: Other) -> Answer:
    if other.code == "duplicate":
        return Answer(Outcome.DUPLICATE)
    if other.code == "fenced":
        try:
            return Answer(Outcome.SUPERSEDED, fence=(other.place, bytes.fromhex(other.digest)))
        except ValueError:
            raise Later("the principal names a fence without a digest", code=Code.BAD_ANSWER) from None
    if other.code == "full":
        return Answer(Outcome.HELD, "the principal has no room for more keys of this edge", code="state_full")
    reasons = {"collection": "the principal takes no such collection from this edge"}
    return Answer(Outcome.REJECTED, reasons.get(other.code, "the document is larger than the principal takes"))
