"""The `relay` output: relays log events to the door of a principal, each batch with the identity that it has here.

Keyed state goes beside them: see `relay_state`.

    outputs:
      principal:
        type: relay
        name: berlin
        hosts: ["https://principal-1:6789", "https://principal-2:6789"]
        credential: k1

    send ──┐
    send ──┼─ parts that wait ──> a request, of several parts ──> confirmed, each by its place
    send ──┘

- One batch of the queue is one part: it is fed apart (`Feeding.apart`), since batches that are put together lose the
  identity by which the other side knows what it has. Many are on their way at once, and go in few requests.
- One host at a time. A host that cannot be reached gives its place to the next one; where a request got no answer, the
  same host is asked for a handshake first, as it may have the events.
- A session begins with a handshake. In each request the sender says up to where it has the answers durably; so the
  other side forgets what cannot come again. A principal that was started anew wants another handshake.

The format is in `shipper_plugins.relay.frames`, what is asked in `shipper_plugins.inputs.relay`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

import msgspec
import trio

from shipper.plugin import (
    API_KEY,
    BEARER_TOKEN,
    CERTIFICATE,
    Answer,
    Answers,
    BadOption,
    Batch,
    ClientTls,
    Code,
    Credential,
    CredentialId,
    Duration,
    Feeding,
    Held,
    Later,
    NotBegun,
    Outcome,
    Output,
    OutputContext,
    Ranked,
    Sender,
    StartFailed,
    TooLarge,
    backoff,
    client_context,
    takes,
)
from shipper.sdk.http_answer import NoAnswer, Response, Unreachable, address
from shipper_plugins.outputs.elasticsearch import Backoff, Host, check_host, is_here
from shipper_plugins.outputs.relay_state import StateSide, Talk
from shipper_plugins.relay import frames, state
from shipper_plugins.relay.frames import Answered, FrameError, Head, Hello, Outcomes, Part, Poll, Told, Welcome, part_of

if TYPE_CHECKING:
    from shipper.sdk.http import Client

MOST_SENT = 32
"""Batches that are on their way at once."""
_BESIDE = 2
"""Connections for other requests: one for those that wait for answers, which may take long, and one for all others."""
MOST_BYTES = 4 << 20
"""Of the events of a request, unless one batch has more."""
_MOST_UNKNOWN = 1 << 16
"""The same, before the other side has said what it takes."""
IDLE_SECONDS = 100.0
"""A connection stays open from heartbeat to heartbeat: by that the other side sees that this process lives."""
_JSON = "application/json"
_BIG = 64 << 10
_PACKERS = 2
POLL_SECONDS = frames.MOST_WAIT
"""How long a request for answers waits for them, at most."""
_SESSIONS = 3
"""Handshakes for one request."""
T = TypeVar("T")
_CODE = re.compile(r"[a-z_]{1,40}")
_instance = os.urandom(16).hex()
"""Of this process: its queues are one sender to the other side."""


class RelayOutput(Output, frozen=True, kw_only=True):
    """Relays log events to another shipper, which takes each of them once; and the last word of keyed state."""

    live: ClassVar[frozenset[str]] = frozenset({"flush", "timeout", "backoff"})
    relays: ClassVar[bool] = True
    counts_requests: ClassVar[bool] = True
    tells_of_answers: ClassVar[bool] = True

    workers: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    """Requests for log events under way at once: one, of many batches. A session has at most three connections."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """Who this shipper is there: the name of its edge in the policy of the principal."""
    hosts: Annotated[tuple[Host, ...], msgspec.Meta(min_length=1, max_length=64)]
    """URLs of principals, such as https://principal-1:6789; one is used at a time, the next one when it is gone."""
    credential: Annotated[CredentialId, takes(API_KEY, BEARER_TOKEN, CERTIFICATE)]
    """The id of the secret to authenticate with."""
    tls: ClientTls = msgspec.field(default_factory=ClientTls)
    """How to check the hosts."""
    timeout: Duration = Duration(60)
    """How long a request may take in all."""
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    """How long to wait before the next attempt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, host in enumerate(self.hosts):
            try:
                check_host(host)
            except ValueError as error:
                raise BadOption(str(error), "hosts", number) from None
            if host in self.hosts[:number]:
                raise BadOption("a host is named twice", "hosts", number)
        if not 0 < self.timeout <= 3600:
            raise BadOption("timeout is above 0 and at most 1h", "timeout")
        if not 0 < self.backoff.first <= self.backoff.longest:
            raise BadOption("backoff.first is above 0 and at most backoff.longest", "backoff", "first")

    def feeding(self) -> Feeding:
        """See `Output.feeding`."""
        backoff = self.backoff.first, self.backoff.longest
        fed = replace(super().feeding(), apart=True, in_flight=MOST_SENT, backoff=backoff, client="lane")
        return replace(fed, events=state.MOST_VERSIONS, is_open_idle=True)

    def takes_state(self) -> bool:
        """See `Output.takes_state`."""
        return True

    def targets(self, batch: Batch) -> Sequence[str]:
        """See `Output.targets`: where log events have no room, keyed state goes on."""
        return ["events" if batch.versions is None else "state"] * batch.count

    def warnings(self) -> Sequence[str]:
        plain = [host for host in self.hosts if host.startswith("http://") and not is_here(host)]
        return [f"the credential goes to {host} unencrypted; write https://" for host in plain]

    def load(self) -> None:
        """See `Output.load`: aiohttp."""
        import shipper.sdk.http  # noqa: F401

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        credential = context.credentials[self.credential]
        try:
            headers = _headers(self, credential)
            tls = await trio.to_thread.run_sync(_tls, self, credential)
        except ValueError as error:
            raise StartFailed(f"output {context.name}: {error}", code=Code.CREDENTIAL_INVALID) from None

        from shipper.sdk.http import open_client

        async with open_client(
            context.aio,
            headers,
            tls,
            server_name=self.tls.server_name,
            connections=self.workers + _BESIDE,
            seconds=self.timeout,
            idle=IDLE_SECONDS,
            answered=context.answered,
            may_begin=context.may_begin,
            requests=context.requests,
        ) as client:
            sender = _Relay(self, client, context)
            async with trio.open_nursery() as nursery:
                for _ in range(self.workers):
                    nursery.start_soon(sender.deliver)
                nursery.start_soon(sender.attend)
                nursery.start_soon(sender.listen)
                yield sender
                nursery.cancel_scope.cancel()


def _headers(output: RelayOutput, credential: Credential) -> dict[str, str]:
    """Raises ValueError for a credential that cannot be used here; the message does not quote it."""
    headers = {"Accept": "application/json"}
    if not credential.fits(CERTIFICATE):
        headers["Authorization"] = credential.authorization()
    elif any(host.startswith("http://") for host in output.hosts):
        raise ValueError("a certificate needs hosts with https://")
    return headers


def _tls(output: RelayOutput, credential: Credential) -> ssl.SSLContext | Literal[False]:
    if all(host.startswith("http://") for host in output.hosts):
        return False
    return client_context(output.tls, credential)


# -- sending -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Job:
    """One call of `send`."""

    part: Part
    count: int
    size: int
    """Of its events, as they are."""
    is_alone: bool = False
    """Whether it was refused together with others, and goes alone."""
    answers: Answers | None = None
    error: Exception | None = None
    ended: trio.Event = field(default_factory=trio.Event)
    request: _Request | None = None
    items: Sequence[int] = ()
    final: dict[int, Ranked] = field(default_factory=dict)
    """By item, the final answers that are known, if the principal gives them later than its confirmation."""

    @property
    def identity(self) -> tuple[str, int]:
        return self.part.origin.hex(), self.part.seq

    def end(self, answers: Answers | None = None, error: Exception | None = None) -> None:
        if not self.ended.is_set():
            self.answers, self.error = answers, error
            self.ended.set()

    def told(self, final: Mapping[int, Ranked]) -> None:
        """Ends when the answers for all its items are known."""
        self.final |= {item: final[item] for item in self.items if item in final}
        if len(self.final) == self.count:
            ranks = [self.final[item] for item in self.items]
            others = {at: _COUNTED[rank] for at, rank in enumerate(ranks) if rank is not Ranked.DELIVERED}
            self.end(Answers(self.count, others))


@dataclass(eq=False, slots=True)
class _Request:
    """What is under way together."""

    jobs: list[_Job]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


_COUNTED = {
    Ranked.DUPLICATE: Answer(Outcome.DUPLICATE),
    Ranked.SUPERSEDED: Answer(Outcome.DUPLICATE),
    Ranked.DEAD_LETTER: Answer(Outcome.DEAD_LETTER, "a dead letter of the principal, which keeps it"),
    Ranked.DROPPED: Answer(Outcome.DROPPED, "dropped at the principal"),
    Ranked.DAMAGED: Answer(Outcome.DAMAGED, "stored events of the principal were damaged"),
}
"""By the final answer of the principal: what this shipper counts."""


class _Refused(Exception):
    """A part cannot be taken, perhaps since it went with others."""

    def __init__(self, outcome: Outcome, reason: str, code: str) -> None:
        super().__init__(reason)
        self.outcome, self.code = outcome, code


class _Over(Exception):
    """The session of a request has ended."""


class _Busy(Later):
    """The other side has no room now."""


class _NoRoom(_Busy):
    """It has none for log events."""


class _Relay:
    """The Sender of an open `relay` output."""

    def __init__(self, output: RelayOutput, client: Client, context: OutputContext) -> None:
        self._output, self._client, self._context = output, client, context
        self._waiting: list[_Job] = []
        self._awaited: dict[_Job, Welcome] = {}
        """What the principal has stored, in which session, and answers for later."""
        self._awaits = trio.Event()
        self._jobs: dict[tuple[str, int], list[_Job]] = {}
        """All jobs, by the identity of their batches."""
        self._asked: Welcome | None = None
        self._told = 0
        """Up to where answers were told in the session that was asked last."""
        self._confirms = context.meters.gauge("confirms_delivered", "1: the principal answers when it has delivered.")
        self._news = trio.Event()
        self._lock = trio.Lock()
        self._packers = trio.CapacityLimiter(_PACKERS)
        self._at = 0
        """The host that is used."""
        self._session: Welcome | None = None
        self._low = 0
        """The mark that was said last in this session."""
        self._said = trio.current_time()
        self._ended = trio.Event()
        """Set, and replaced by another one, when a session has ended."""
        self._state = StateSide(context, self._in_session)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; returns when its part is confirmed, or its versions are answered."""
        if batch.versions is not None:
            return await self._send_state(batch)
        if self._session is not None:
            self._check_size(len(batch.body), self._session)
        is_big = len(batch.body) > _BIG
        part = await trio.to_thread.run_sync(part_of, batch, limiter=self._packers) if is_big else part_of(batch)
        items = range(batch.count) if batch.items is None else batch.items
        job = _Job(part, batch.count, len(batch.body), items=items)
        self._waiting.append(job)
        same = self._jobs.setdefault(job.identity, [])
        same.append(job)
        self._tell()
        try:
            await job.ended.wait()
        except trio.Cancelled:
            await self._withdraw(job)
            raise
        finally:
            self._awaited.pop(job, None)
            same.remove(job)
            if not same:
                self._jobs.pop(job.identity, None)
        if job.error is not None:
            raise job.error
        assert job.answers is not None
        return job.answers

    async def _send_state(self, batch: Batch) -> Answers:
        try:
            return await self._state.send(batch)
        except _Refused as refused:
            if batch.count > 1 and refused.outcome is Outcome.REJECTED:
                raise TooLarge(str(refused)) from None
            answer = Answer(refused.outcome, str(refused), code=refused.code)
            return Answers(batch.count, dict.fromkeys(range(batch.count), answer))

    async def _withdraw(self, job: _Job) -> None:
        """Nobody waits for it: it is not sent, and a request of which nobody waits for any part is aborted."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job.request is not None:
            job.request.jobs.remove(job)
            if not job.request.jobs:
                job.request.scope.cancel("nobody waits for an answer")
                with trio.CancelScope(shield=True):
                    await job.request.ended.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Have parts sent as they come, one request after the other."""
        while True:
            while not self._waiting:
                await self._news.wait()
            request = _Request(self._next())
            for job in request.jobs:
                job.request = request
            try:
                with request.scope:
                    await self._deliver(request)
            finally:
                request.ended.set()

    def _next(self) -> list[_Job]:
        """The parts of the next request, in the order in which they came."""
        most = min(MOST_BYTES, _MOST_UNKNOWN if self._session is None else self._session.max_part_bytes)
        jobs: list[_Job] = []
        size = 0
        for job in self._waiting[: frames.MOST_PARTS]:
            size += job.size
            if jobs and (size > most or job.is_alone or jobs[0].is_alone):
                break
            jobs.append(job)
        del self._waiting[: len(jobs)]
        return sorted(jobs, key=lambda job: job.part.place)

    async def _deliver(self, request: _Request) -> None:
        """End its jobs, or have each of them sent alone."""
        jobs = list(request.jobs)
        try:
            session, said = await self._ask(jobs)
        except _NoRoom as error:
            answer = Answer(Outcome.LATER, str(error), of_target=True, code=error.code)
            for job in jobs:
                job.end(Answers(job.count, dict.fromkeys(range(job.count), answer), error.retry_after))
        except (_Refused, TooLarge) as error:
            if len(jobs) > 1:
                self._again_alone(request)
            elif isinstance(error, _Refused):
                answer = Answer(error.outcome, str(error), code=error.code)
                jobs[0].end(Answers(jobs[0].count, dict.fromkeys(range(jobs[0].count), answer)))
            else:
                jobs[0].end(error=error)
        except Exception as error:
            for job in jobs:
                job.end(error=error)
        else:
            confirmed, awaited = frozenset(said.confirmed), frozenset(said.awaited)
            for job in request.jobs:
                if job.part.place in confirmed:
                    job.end(Answers(job.count))
                elif job.part.place not in awaited:
                    job.end(error=_unconfirmed())
                elif not job.ended.is_set():
                    self._awaited[job], job.request = session, None
                    self._awaits.set()

    def _again_alone(self, request: _Request) -> None:
        for job in request.jobs:
            job.is_alone, job.request = True, None
        self._waiting = [*request.jobs, *self._waiting]
        self._tell()

    async def _ask(self, jobs: Sequence[_Job]) -> tuple[Welcome, Answered]:
        """What is said of them, and in which session. Raises Later, Held, NotBegun, TooLarge or _Refused."""

        async def ask(talk: Talk) -> tuple[Welcome, Answered]:
            for job in jobs:
                self._check_size(job.size, talk.session)
            parts = [job.part for job in jobs]
            head = Head(talk.session.generation, self._context.lane, talk.low, parts=len(parts))
            return talk.session, await talk.ask("parts", frames.MEDIA_TYPE, frames.encode(head, parts), Answered)

        try:
            return await self._in_session(ask)
        except _Busy as busy:
            if self._state.is_routed:
                raise _NoRoom(str(busy), busy.retry_after) from None
            raise

    async def _in_session(self, act: Callable[[Talk], Awaitable[T]]) -> T:
        """What is done in the session of now; again in a new one, if it has ended. Raises what `_post` and `act` do."""
        for _ in range(_SESSIONS + len(self._output.hosts)):
            session, low, host = await self._begun()
            try:
                return await act(_Talk(session, low, host, self._post))
            except (Unreachable, _Over):
                self._forget(session)
            except NoAnswer:  # the handshake comes first now, and its host need not be this one
                self._forget(session)
                raise
        raise Later("the principal ends each session at once", code=Code.UNAVAILABLE)

    def _check_size(self, size: int, session: Welcome) -> None:
        if size > session.max_part_bytes:
            raise TooLarge(f"a batch is larger than the {session.max_part_bytes} bytes that the principal takes")

    async def _post(self, host: str, what: str, body: Sequence[bytes], kind: str = _JSON) -> Response:
        """Raises Unreachable, NoAnswer or NotBegun."""
        self._said = trio.current_time()
        return await self._client.post(host, f"/v1/relay/{what}", body, headers={"Content-Type": kind})

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _begun(self) -> tuple[Welcome, int, str]:
        """The session, its low-water mark of now, and its host."""
        async with self._lock:
            low = self._context.lowest()
            if self._session is not None and low < self._low:  # entries come below the mark again, as by an order
                self._forget(self._session)
            if self._session is None:
                self._session = await self._begin()
            self._low = low
            return self._session, low, self._output.hosts[self._at]

    async def _begin(self) -> Welcome:
        """Shake hands with the host that is used, or the next one that can be reached."""
        hello = msgspec.json.encode(Hello(frames.PROTOCOL, _instance, self._context.lane))
        hosts = self._output.hosts
        for after in range(len(hosts)):
            at = (self._at + after) % len(hosts)
            try:
                response = await self._post(hosts[at], "session", [hello])
            except NoAnswer:
                if after == len(hosts) - 1:
                    raise
                continue
            if response.status != 200:
                raise _refusal(response, hosts[at])
            welcome = _read(response, Welcome, hosts[at])
            if welcome.edge != self._output.name:
                text = f"{address(hosts[at])}: this credential is not that of the edge {self._output.name}"
                raise Held(text, code="edge_name")
            self._at = at
            delivers = welcome.acknowledge == "delivered"
            self._confirms.set(delivers)
            self._context.delivers(delivers)
            return welcome
        raise AssertionError

    def _forget(self, session: Welcome) -> None:
        if self._session is session:
            self._session = None
            self._ended.set()
            self._ended = trio.Event()

    async def attend(self) -> None:
        """Keep a session, also if nothing is sent: compare keyed state in each new one, and say that this sender is
        there."""
        waits = backoff(*self._output.feeding().backoff)
        while True:
            try:
                await self._state.agree()
            except Later as error:
                await trio.sleep(max(next(waits), error.retry_after or 0.0))
            except (Held, NotBegun, TooLarge, _Refused):
                await trio.sleep(next(waits))
            else:
                waits = backoff(*self._output.feeding().backoff)
                await self._beat()

    async def _beat(self) -> None:
        """Say that this sender is there, while it has nothing to send; until the session that was agreed has ended."""
        while (session := self._session) is not None and session is self._state.agreed:
            left = self._said + max(1.0, session.heartbeat) - trio.current_time()
            if left > 0:
                with trio.move_on_after(left):
                    await self._ended.wait()
                continue
            head = msgspec.json.encode(Head(session.generation, self._context.lane, self._low))
            try:
                response = await self._post(self._output.hosts[self._at], "heartbeat", [head])
            except Later:
                self._forget(session)
            except NotBegun:
                await trio.sleep(1.0)
            else:
                if response.status != 200:
                    self._forget(session)

    # -- answers that come later ---------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Ask for answers, while some are awaited."""
        while True:
            while not self._awaited:
                self._awaits = trio.Event()
                await self._awaits.wait()
            try:
                await self._in_session(self._poll)
            except Exception as error:
                for job in self._awaited:
                    job.end(error=_later(error))
                self._awaited.clear()

    async def _poll(self, talk: Talk) -> None:
        """Ask what became of what is awaited. In another session all of it is sent again first: so the principal, which
        may be another one, knows of it.
        """
        self._send_again(talk.session)
        if not self._awaited:
            return
        after = self._told if self._asked is talk.session else 0
        wait = min(POLL_SECONDS, float(self._output.timeout) / 2)
        poll = Poll(Head(talk.session.generation, self._context.lane, talk.low), after, wait)
        told = await talk.ask("answers", _JSON, [msgspec.json.encode(poll)], Told)
        self._note(told.answers)
        self._asked, self._told = talk.session, told.upto

    def _note(self, answers: Sequence[Outcomes]) -> None:
        """Raises FrameError."""
        for one in answers:
            final = one.by_item()
            for job in self._jobs.get((one.origin, one.seq), ()):
                job.told(final)
        self._awaited = {job: at for job, at in self._awaited.items() if not job.ended.is_set()}

    def _send_again(self, session: Welcome) -> None:
        """What was stored in another session than this one."""
        again = [job for job, at in self._awaited.items() if at is not session]
        for job in again:
            del self._awaited[job]
        self._waiting += again
        if again:
            self._tell()


@dataclass(frozen=True, slots=True)
class _Talk:
    """See `Talk`: what is asked of one host, in one session."""

    session: Welcome
    low: int
    _host: str
    _post: Callable[[str, str, Sequence[bytes], str], Awaitable[Response]]

    async def ask(self, what: str, kind: str, body: list[bytes], answer: type[frames.M]) -> frames.M:
        """Raises _Over if the session has ended."""
        response = await self._post(self._host, what, body, kind)
        if response.status == 200:
            return _read(response, answer, self._host)
        if _code(response) == "session_over":
            raise _Over
        raise _refusal(response, self._host)


def _later(error: Exception) -> Exception:
    if isinstance(error, FrameError | _Refused):
        return Later("the principal gives answers that are none", code=Code.BAD_ANSWER)
    return error


def _unconfirmed() -> Later:
    return Later("the principal did not confirm what was sent", code=Code.BAD_ANSWER)


# -- answers -----------------------------------------------------------------------------------------------------------


def _read(response: Response, kind: type[frames.M], host: str) -> frames.M:
    try:
        return frames.read(response.body, kind)
    except FrameError:
        raise Later(f"{address(host)}: its answer is not that of a relay", code=Code.BAD_ANSWER) from None


class _Error(msgspec.Struct):
    code: str = ""


class _Errors(msgspec.Struct):
    error: _Error


def _code(response: Response) -> str:
    """That of a refusal; empty where it is not one of a relay."""
    try:
        code = frames.read(response.body, _Errors).error.code
    except FrameError:
        return ""
    return code if _CODE.fullmatch(code) else ""


def _refusal(response: Response, host: str) -> Exception:
    """What follows from an answer that is no confirmation."""
    status, code = response.status, _code(response)
    text = f"{address(host)}: {status} {code}".rstrip()
    if code == "edge_cloned":
        return Held(f"{text}: another live process has the name of this edge there", code=code)
    if code == "identity_conflict":
        return _Refused(Outcome.HELD, f"{text}: it has other events under this identity", code)
    if code == "part_refused":
        return _Refused(Outcome.REJECTED, text, Code.REJECTED)
    if status in (401, 403) or code == "protocol":
        return Held(text)
    if status == 413:
        return TooLarge(text)
    return (_Busy if status == 429 else Later)(text, _retry_after(response))


def _retry_after(response: Response) -> float | None:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if re.fullmatch(r"[0-9]{1,6}", seconds) else None
