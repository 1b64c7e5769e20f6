"""The Sender of a `relay` output: combines the batches of many `send` calls into few requests.

    send ──┐
    send ──┼─ parts that wait ──> a request, of several parts ──> confirmed, each by its place
    send ──┘

One batch of the queue is one part. Batches are fed apart (`Feeding.apart`), since combined ones lose the identity by
which the other side knows what it has. Many are on their way at once.

They are not fed as requests that stay the same (`Feeding.stable`). What such a request is composed of would be one
batch, and that is durable since it has entered the queue: a part has the same events and the same identity in each
attempt and after each crash, and of a part that comes in halves, or without events that have their answers, the other
side knows the items. To store the composition too costs a transaction more for each part that comes alone, and a third
of the CPU of its delivery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from shipper.plugin import (
    Answer,
    Answers,
    Batch,
    Code,
    Held,
    Later,
    NotBegun,
    Outcome,
    OutputContext,
    Sender,
    TooLarge,
    backoff,
)
from shipper.plugin.relay import Principal
from shipper_plugins.relay import frames
from shipper_plugins.relay.edge.awaited import Awaited
from shipper_plugins.relay.edge.jobs import Job, Request
from shipper_plugins.relay.edge.refusals import Busy, Refused
from shipper_plugins.relay.edge.sessions import Sessions, Talk
from shipper_plugins.relay.edge.state import StateSide
from shipper_plugins.relay.frames import Answered, Welcome, part_of

if TYPE_CHECKING:
    from shipper.sdk.http import Client
    from shipper_plugins.relay.output import RelayOutput

MOST_BYTES = 4 << 20
"""Bytes of the events of a request, unless one batch has more."""
_MOST_UNKNOWN = 1 << 16
"""The same, before the other side has said what it permits."""
_BIG = 64 << 10
_PACKERS = 2


class _NoRoom(Busy):
    """The other side has no room for log events."""


class Relay(Sender):
    """The Sender of an open `relay` output; `deliver`, `attend` and `listen` run beside it."""

    def __init__(self, output: RelayOutput, client: Client, context: OutputContext) -> None:
        self._output, self._context = output, context
        self._sessions = Sessions(output, client, context)
        self._awaited = Awaited(self._sessions, float(output.timeout), self._send_again, context.taken, context.state)
        self._state = StateSide(context, self._sessions, self._awaited.versions)
        self._waiting: list[Job] = []
        self._news = trio.Event()
        self._packers = trio.CapacityLimiter(_PACKERS)
        self.listen = self._awaited.listen

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; returns when its part is confirmed, or its versions are answered."""
        if batch.versions is not None:
            return await self._send_state(batch)
        if self._sessions.current is not None:
            _check_size(batch.size, self._sessions.current)
        is_big = len(batch.body) > _BIG
        proof = None if batch.is_relayed else self._context.prove(batch.origin, self._output.name)
        to_thread = trio.to_thread.run_sync
        part = await to_thread(part_of, batch, proof, limiter=self._packers) if is_big else part_of(batch, proof)
        items = range(batch.count) if batch.items is None else batch.items
        job = Job(part, batch.count, batch.size, items, is_own=not batch.is_relayed)
        self._waiting.append(job)
        self._awaited.add(job)
        self._tell()
        try:
            await job.ended.wait()
        except trio.Cancelled:
            await self._withdraw(job)
            raise
        finally:
            self._awaited.remove(job)
        return job.result()

    def ending(self) -> None:
        """See `Sender.ending`."""
        self._awaited.give_up(Later("the principal has not answered for what it has stored", code=Code.NO_ANSWER))

    def principal(self) -> Principal:
        """See `Sender.principal`."""
        return self._sessions.principal

    async def _send_state(self, batch: Batch) -> Answers:
        try:
            return await self._state.send(batch)
        except Busy as busy:
            if not self._awaited.is_under_way:
                raise
            answer = Answer(Outcome.LATER, str(busy), of_target=True, code=busy.code)
            return Answers(batch.count, dict.fromkeys(range(batch.count), answer), busy.retry_after)
        except Refused as refused:
            if batch.count > 1 and refused.outcome is Outcome.REJECTED:
                raise TooLarge(str(refused)) from None
            answer = Answer(refused.outcome, str(refused), code=refused.code)
            return Answers(batch.count, dict.fromkeys(range(batch.count), answer))

    async def _withdraw(self, job: Job) -> None:
        """Nobody waits for a job: it is not sent, and a request without any awaited part is aborted."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job.request is not None:
            job.request.jobs.remove(job)
            if not job.request.jobs:
                job.request.scope.cancel("nobody waits for an answer")
                with trio.CancelScope(shield=True):
                    await job.request.ended.wait()

    def _send_again(self, jobs: Sequence[Job]) -> None:
        self._waiting += jobs
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def attend(self) -> None:
        """Keeps a session, also without events: compares keyed state in each new one, and sends heartbeats."""
        waits = backoff(*self._output.feeding().backoff)
        while True:
            try:
                await self._state.agree()
            except (Later, Held, NotBegun, TooLarge, Refused) as error:
                self._sessions.why = str(error)
                await trio.sleep(max(next(waits), getattr(error, "retry_after", None) or 0.0))
            else:
                waits = backoff(*self._output.feeding().backoff)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_ending, self._state.undecided, nursery.cancel_scope)
                    await self._sessions.beat(self._state.agreed)
                    nursery.cancel_scope.cancel("the session has ended")

    # -- requests ------------------------------------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Sends parts as they come, one request after the other."""
        while True:
            while not self._waiting:
                await self._news.wait()
            request = Request(self._next())
            for job in request.jobs:
                job.request = request
            try:
                with request.scope:
                    await self._deliver(request)
            finally:
                request.ended.set()

    def _next(self) -> list[Job]:
        """Returns the parts of the next request, in the order in which they came."""
        session = self._sessions.current
        most = min(MOST_BYTES, _MOST_UNKNOWN if session is None else session.max_part_bytes)
        jobs: list[Job] = []
        size = 0
        for job in self._waiting[: frames.MOST_PARTS]:
            size += job.size
            if jobs and (size > most or job.is_alone or jobs[0].is_alone):
                break
            jobs.append(job)
        del self._waiting[: len(jobs)]
        return sorted(jobs, key=lambda job: job.part.place)

    async def _deliver(self, request: Request) -> None:
        """Sends a request; ends its jobs with the answers, or has each of them sent alone."""
        jobs = list(request.jobs)
        try:
            session, said = await self._ask(jobs)
        except _NoRoom as error:
            for job in jobs:
                job.end_all(Answer(Outcome.LATER, str(error), of_target=True, code=error.code), error.retry_after)
        except (Refused, TooLarge) as error:
            if len(jobs) > 1:
                self._again_alone(request)
            elif isinstance(error, Refused):
                jobs[0].end_all(_refused(jobs[0], error))
            else:
                jobs[0].end(error=error)
        except Exception as error:
            for job in jobs:
                job.end(error=error)
        else:
            confirmed, awaited = frozenset(said.confirmed), frozenset(said.awaited)
            highest = max(confirmed & {job.part.place for job in jobs}, default=0)
            self._sessions.lineage.confirmed(session.lineage, events=highest)
            for job in request.jobs:
                if job.part.place in confirmed:
                    job.end(Answers(job.count, is_stored=True))
                elif job.part.place in awaited:
                    self._awaited.stored(job, session)
                else:
                    job.end(error=Later("the principal did not confirm what was sent", code=Code.BAD_ANSWER))

    def _again_alone(self, request: Request) -> None:
        for job in request.jobs:
            job.is_alone, job.request = True, None
        self._waiting = [*request.jobs, *self._waiting]
        self._tell()

    async def _ask(self, jobs: Sequence[Job]) -> tuple[Welcome, Answered]:
        """Returns the answer for parts, and its session. Raises Later, Held, NotBegun, TooLarge or Refused."""

        async def ask(talk: Talk) -> tuple[Welcome, Answered]:
            for job in jobs:
                _check_size(job.size, talk.session)
            parts = [job.part for job in jobs]
            body = frames.encode(talk.head(parts=len(parts)), parts)
            return talk.session, await talk.ask("parts", frames.MEDIA_TYPE, body, Answered)

        try:
            return await self._sessions.within(ask)
        except Busy as busy:
            if self._state.is_routed:
                raise _NoRoom(str(busy), busy.retry_after) from None
            raise


async def _ending(work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await work()
    scope.cancel("there is something else to do")


def _refused(job: Job, refused: Refused) -> Answer:
    """Returns the answer for each event of a part that cannot be taken.

    What this shipper accepted itself and cannot prove has lost its secret, by damage: requeued from the dead letters it
    gets a new identity. Nothing else helps, while what it relays waits for the policy of the principal.
    """
    if refused.code == frames.FOREIGN and job.is_own:
        return Answer(Outcome.REJECTED, "the secret of its origin is lost", code=refused.code)
    return Answer(refused.outcome, str(refused), code=refused.code)


def _check_size(size: int, session: Welcome) -> None:
    """Raises TooLarge for a batch of this size."""
    if size > session.max_part_bytes:
        raise TooLarge(f"a batch is larger than the {session.max_part_bytes} bytes that the principal takes")
