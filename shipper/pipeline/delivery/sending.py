"""Performs requests: loads what a session hands out, sends it, and notes the answers in the spool.

What is sent next is decided elsewhere (`session`, `request`, `attempt`). A cancel aborts requests; received answers
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from shipper.pipeline.attempts.attempt import Attempt, Trouble
from shipper.pipeline.attempts.joining import Parts, grouped, joined
from shipper.pipeline.attempts.settling import Settling
from shipper.pipeline.attempts.suspects import blames_event, code_of, said
from shipper.pipeline.delivery.parcels import most_text
from shipper.pipeline.delivery.request import Request
from shipper.pipeline.delivery.session import Send, Session
from shipper.pipeline.destination.pool import Link, Means
from shipper.pipeline.memory.loading import LaneMemory, Loaded
from shipper.pipeline.memory.loans import Loan
from shipper.plugin import Sender
from shipper.process import log
from shipper.process.groups import contained
from shipper.sdk.codes import Why
from shipper.sdk.errors import Held, Later, StartFailed, TooLarge, raised_at
from shipper.sdk.event import Batch
from shipper.spool.queue import Entry

_log = log.get(__name__)

INLINE_BYTES = 64 << 10


class Teller(Protocol):
    """Whom the requests of a session tell of what becomes of them."""

    def changed(self) -> None:
        """The session has to be asked what is next."""

    def succeeded(self) -> None:
        """The first event of the session has its final answer."""

    def report(self, why: Why | None) -> None:
        """What is wrong now, or that nothing is."""


class Sending:
    """The requests of one session of a lane."""

    def __init__(
        self, link: Link, session: Session, memory: LaneMemory, settling: Settling, tell: Teller, means: Means
    ) -> None:
        self._name, self._targets, self._contact = link.key.output, link.output.targets, link.contact
        self._session, self._feeding = session, session.feed.feeding
        self._memory, self._settling, self._tell = memory, settling, tell
        self._taps, self._in_thread = means.taps, means.environment.in_thread

    async def perform(self, send: Send, sender: Sender) -> None:
        """Sends what is handed out, as far as memory goes, and notes the answers; not cancelled then: the destination
        has the events."""
        request = Request(send, self._session)
        loan, left = await self._load(request)
        try:
            await self._send_all(request, sender)
        except trio.Cancelled:
            await self._note(request, loan)
            raise
        is_noted_first = request.is_noted_first
        if is_noted_first:
            await self._note(request, loan)
        request.sent(left, trio.current_time())
        self._tell.changed()
        if not is_noted_first:
            await self._note(request, loan)
        self._session.noted(send)
        self._tell.changed()

    # -- before it is sent ---------------------------------------------------------------------------------------------

    async def _load(self, request: Request) -> tuple[Loan | None, Sequence[Entry]]:
        """Loads what there is memory for; returns the loan, and the entries that are left."""
        parcel = request.send.parcel
        load = await self._memory.load(
            parcel.entries,
            most_text(self._feeding),
            lambda: self._session.is_ending,
            whole=parcel.request is not None,
        )
        for entry in load.damaged:
            await self._settling.damaged(entry)
        request.loaded(load.loaded, [*load.damaged, *load.gone])
        for group in grouped(load.loaded, self._feeding):
            attempt, parts = await self._joined(group, request.send.few)
            targets = await self._targets_of(attempt.batch) if request.wants_targets else None
            request.add(attempt, parts, targets)
        if request.asks_nothing(load.left):
            self.tell_problem()
        if request.in_vain is not None:
            await self._settling.forget(request.in_vain)
            self._session.end()
        return load.loan, load.left

    async def _joined(self, group: Loaded, few: int | None) -> tuple[Attempt, Parts]:
        if len(group) == 1 or sum(len(batch.body) for _, batch in group) <= INLINE_BYTES:
            return joined(group, self._feeding.grouping, few)
        return await self._in_thread(joined, group, self._feeding.grouping, few)

    async def _targets_of(self, batch: Batch) -> Sequence[str] | None:
        """Returns the targets; None if the output fails to name them. Then everything is sent, and the output may fail
        on the event that is the cause."""
        try:
            inline = len(batch.body) <= INLINE_BYTES
            with contained():
                targets = self._targets(batch) if inline else await self._in_thread(self._targets, batch)
            if len(targets) == batch.count and set(map(type, targets)) <= {str}:
                return targets
            error = f"{len(targets)} targets for {batch.count} events, or targets that are no texts"
        except Exception as failure:
            error = raised_at(failure)
        _log.error("an output cannot say where events go", output=self._name, error=error)
        return None

    # -- the request ---------------------------------------------------------------------------------------------------

    async def _send_all(self, request: Request, sender: Sender) -> None:
        for attempt, parts in request.attempts:
            if self._session.trouble is not None:
                break
            works = request.works(parts)
            await self._send(request, attempt, parts, sender, works=works)
            if attempt.refusals() and not attempt.stops:
                if attempt.targets is None:
                    attempt.targets = await self._targets_of(attempt.batch)
                request.close_targets(attempt, trio.current_time())
            request.judge(attempt, parts, works=works)
            self._tell.changed()

    async def _send(self, request: Request, attempt: Attempt, parts: Parts, sender: Sender, *, works: bool) -> None:
        """Sends all of an attempt, piece by piece."""
        seqs = [entry.seq for entry, _ in parts]
        while (piece := attempt.next_piece()) is not None:
            positions, events = piece
            if attempt.stable is not None:
                name = await self._settling.composed(attempt.stable, positions)
                if name is None:
                    attempt.failed(Trouble("an order has moved a request here that has some of these events"))
                    break
                events = events.requested(name)
            self._taps.offer(f"outputs.{self._name}", events)
            try:
                with self._session.backlog.under_way(seqs, trio.current_time), contained():
                    answers = await sender.send(events)
                self._contact.answered()
                attempt.answered(positions, answers)
            except TooLarge as error:
                attempt.too_large(positions, str(error), error.code)
            except Held as error:
                attempt.failed(Trouble(str(error), held=True, code=error.code))
            except Later as error:
                attempt.put_off(error)
            except trio.Cancelled:
                attempt.failed(Trouble("the session was cancelled"))
                raise
            except Exception as error:
                self._session.is_client_suspect |= not isinstance(error, OSError)
                if request.goes_in_halves and blames_event(error):
                    attempt.broke(positions, said(error), works_otherwise=works, code=code_of(error))
                else:
                    attempt.failed(failed(self._name, error))
                    attempt.doubt = attempt.trouble if blames_event(error) else None
            self._session.answered = trio.current_time()

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _note(self, request: Request, loan: Loan | None) -> None:
        """Settles what was answered, and notes what is left. Not cancelled: the destination has the events."""
        with trio.CancelScope(shield=True):
            for attempt, parts in request.attempts:
                freed = self._settling.letters.freed
                settlements, renewed = await self._settling.settle(attempt, parts)
                now = trio.current_time()
                if request.settled(attempt, parts, settlements, renewed, now):
                    self._tell.succeeded()
                if freed != self._settling.letters.freed:
                    self._session.backlog.has_room(now)
                self.tell_problem()
        if loan is not None:
            loan.give_back()

    def tell_problem(self) -> None:
        """Reports what is wrong now, or that nothing is."""
        if self._session.trouble is None:
            self._tell.report(self._session.problem(trio.current_time()) or self._settling.rejected)


def failed(output: str, error: Exception) -> Trouble:
    """Returns the trouble for an error outside the contract; a plugin that cannot start gives its own reason."""
    if isinstance(error, StartFailed):
        return Trouble(str(error), held=True, code=error.code)
    _log.error("an output failed", output=output, error=said(error))
    return Trouble(said(error), code=code_of(error))
