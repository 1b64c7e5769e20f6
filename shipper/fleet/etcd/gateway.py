"""Calls of etcd's JSON gateway: at one host after the other, with a token, within a bounded time.

A call that may be repeated is asked of each host once. Any other call is asked of the next host only if the one before
has certainly not carried it out; else its effect is unknown, which is the caller's to find out. No call is asked twice
in a way that could hide a write of its own.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import trio

from shipper.fleet.etcd.answers import (
    AuthenticationOff,
    CertificateRefused,
    NotDone,
    Token,
    TokenRefused,
    decoded,
    failed,
)
from shipper.fleet.etcd.hosts import Dialer, Host, TlsFiles
from shipper.fleet.etcd.http import LARGEST_ERROR, Answer, Connection, TooLarge
from shipper.fleet.store import SECONDS, StoreError, StoreRefused, StoreUnreachable
from shipper.sdk.errors import ShipperError
from shipper.sdk.http_answer import NoAnswer, Unreachable

MOST_CALLS = 8
"""At a time; more wait for their turn."""
MOST_IDLE = 2
SHORTEST_TRY = 2.0

Login = Callable[[], tuple[str, str]]
"""Returns the user's name and password, in a thread, each time a token is needed. Raises ShipperError or OSError."""

T = TypeVar("T")
_ALERT = re.compile(r"alert .*(certificate|unknown ca)")
_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked of etcd."""

    path: str
    message: Mapping[str, Any]
    purpose: str
    """What for, in words: an error says it."""
    repeatable: bool = True
    """Whether it may be carried out twice."""
    seconds: float = math.inf
    """The longest it takes, at most SECONDS."""


@dataclass(slots=True)
class _Tries:
    """How far a call has come."""

    host: Host | None = None
    problems: list[str] = field(default_factory=list)


class AnswerTooLarge(StoreError):
    """An answer is over the limit; a smaller one may be asked for."""


class Gateway:
    """Calls, and the connections for them."""

    def __init__(self, hosts: Sequence[Host], tls: TlsFiles, login: Login | None = None) -> None:
        self._hosts = tuple(hosts)
        self._preferred = random.randrange(len(hosts))
        self._dialer = Dialer(tls)
        self._login = login
        self._token: str | None = None
        self._logging_in = trio.Lock()
        self._reader = trio.CapacityLimiter(1)
        self._turns = trio.CapacityLimiter(MOST_CALLS)
        self._idle: list[tuple[Host, Connection]] = []

    @property
    def preferred(self) -> Host:
        """The host that is asked first."""
        return self._hosts[self._preferred]

    def leave(self, host: Host) -> None:
        """Prefers the next host from now on, if `host` is the preferred one."""
        if host is self.preferred:
            self._preferred = (self._preferred + 1) % len(self._hosts)

    async def call(self, call: Call, type: type[T]) -> T:
        """Returns the answer; raises StoreError, within the seconds of the call."""
        tries = _Tries()
        seconds = min(call.seconds, SECONDS)
        with trio.move_on_after(seconds):
            async with self._turns:
                return await self._anywhere(call, type, tries)
        if tries.host is not None:
            self.leave(tries.host)
        late = f"{tries.host or 'etcd'}: {call.purpose}: no answer within {seconds:g} s"
        raise StoreUnreachable("; ".join([*tries.problems, late]))

    async def _anywhere(self, call: Call, type: type[T], tries: _Tries) -> T:
        first = self._preferred
        for step in range(len(self._hosts)):
            tries.host = host = self._hosts[(first + step) % len(self._hosts)]
            try:
                return await self._at(host, call, type)
            except (StoreUnreachable, CertificateRefused) as error:
                self.leave(host)
                tries.problems.append(str(error))
                kind = StoreUnreachable if isinstance(error, StoreUnreachable) else StoreRefused
                if not call.repeatable and not isinstance(error, NotDone | CertificateRefused):
                    break
        raise kind("; ".join(tries.problems))

    @property
    def share(self) -> float:
        """Seconds of one try, so that each of up to five hosts gets one."""
        return self._share(SECONDS)

    def _share(self, seconds: float) -> float:
        return max(min(SHORTEST_TRY, seconds / 3), seconds / len(self._hosts) - 0.1)

    async def _at(self, host: Host, call: Call, type: type[T]) -> T:
        if not call.repeatable:
            return await self._authorized(host, call, type)
        share = self._share(min(call.seconds, SECONDS))
        with trio.move_on_after(share):
            return await self._authorized(host, call, type)
        raise StoreUnreachable(f"{host}: {call.purpose}: no answer within {share:.1f} s")

    async def _authorized(self, host: Host, call: Call, type: type[T]) -> T:
        token = await self.token(host)
        try:
            return decoded(await self._asked(host, call, token), type, str(host))
        except TokenRefused:
            if self._login is None:
                raise
        token = await self.token(host, refused=token)
        return decoded(await self._asked(host, call, token), type, str(host))

    async def token(self, host: Host, *, refused: str | None = None) -> str | None:
        """Returns a token for this user, another one than `refused`; empty if etcd has no users, None without one."""
        if self._login is None:
            return None
        async with self._logging_in:
            if self._token is None or self._token == refused:
                self._token = await self._new_token(host, self._login)
            return self._token

    async def _new_token(self, host: Host, login: Login) -> str:
        try:
            name, password = await trio.to_thread.run_sync(login, abandon_on_cancel=True, limiter=self._reader)
        except OSError as error:
            raise StoreRefused(f"the password for etcd cannot be read: {error.strerror}") from None
        except ShipperError as error:
            raise StoreRefused(f"the password for etcd: {error}") from None
        call = Call("/v3/auth/authenticate", {"name": name, "password": password}, "authenticate")
        try:
            return _checked(decoded(await self._asked(host, call, None), Token, str(host)).token, host)
        except AuthenticationOff:
            return ""
        except StoreRefused:
            raise StoreRefused(f"{host}: etcd refuses this user or its password") from None
        except StoreUnreachable as error:
            raise NotDone(*error.args) from None

    async def begun(self, host: Host, call: Call) -> Connection:
        """Returns a connection on which the answer to `call` begins; raises StoreError."""
        token = await self.token(host)
        try:
            return await self._begun(host, call, token)
        except TokenRefused:
            if self._login is None:
                raise
        return await self._begun(host, call, await self.token(host, refused=token))

    async def _begun(self, host: Host, call: Call, token: str | None) -> Connection:
        connection = await self._dialed(host)
        try:
            status = await connection.begin(call.path, msgspec.json.encode(call.message), headers(token))
            if status == 200:
                return connection
            raise failed(await connection.rest(LARGEST_ERROR, cut=True), str(host), status, call.purpose)
        except NoAnswer as error:
            await connection.aclose()
            raise _unanswered(error, call.purpose) from None
        except BaseException:
            await connection.aclose()
            raise

    async def _asked(self, host: Host, call: Call, token: str | None) -> bytes:
        """Returns the body of an answer that is 200."""
        try:
            answer = await self._answered(host, call, token)
        except TooLarge as error:
            raise AnswerTooLarge(str(error)) from None
        except NoAnswer as error:
            raise _unanswered(error, call.purpose) from None
        if answer.status != 200:
            raise failed(answer.body, str(host), answer.status, call.purpose)
        return answer.body

    async def _answered(self, host: Host, call: Call, token: str | None) -> Answer:
        body = msgspec.json.encode(call.message)
        idle = await self._taken(host)
        if idle is not None:
            try:
                return await self._exchanged(host, idle, call.path, body, token)
            except TooLarge:
                raise
            except NoAnswer:  # the host may have been restarted since
                if not call.repeatable:
                    raise
        return await self._exchanged(host, await self._dialed(host), call.path, body, token)

    async def _dialed(self, host: Host) -> Connection:
        try:
            return await self._dialer.dial(host, self.share)
        except Unreachable as error:
            raise _refused_certificate(error) or NotDone(str(error)) from None

    async def _exchanged(self, host: Host, connection: Connection, path: str, body: bytes, token: str | None) -> Answer:
        try:
            answer = await connection.ask(path, body, headers(token))
        except BaseException:
            await connection.aclose()
            raise
        await self._keep(host, connection)
        return answer

    async def _taken(self, host: Host) -> Connection | None:
        """Returns an idle connection to a host; ends those that the host has ended."""
        while (found := next((one for one in reversed(self._idle) if one[0] is host), None)) is not None:
            self._idle.remove(found)
            if found[1].is_silent():
                return found[1]
            await found[1].aclose()  # meanwhile other calls take and keep connections
        return None

    async def _keep(self, host: Host, connection: Connection) -> None:
        if not connection.renewed():
            await connection.aclose()
            return
        self._idle.append((host, connection))
        if len(self._idle) > MOST_IDLE:
            await self._idle.pop(0)[1].aclose()

    async def aclose(self) -> None:
        """Ends all idle connections."""
        while self._idle:
            await self._idle.pop()[1].aclose()


def _unanswered(error: NoAnswer, purpose: str) -> StoreError:
    return _refused_certificate(error) or StoreUnreachable(f"{error}, to: {purpose}")


def _refused_certificate(error: NoAnswer) -> CertificateRefused | None:
    """With TLS 1.3 this comes after the handshake; the host has read no request then."""
    if error.failure != "tls" or not _ALERT.search(str(error)):
        return None
    return CertificateRefused(f"{error}: etcd refuses the certificate of this client, or wants one (tls)")


def _checked(token: str, host: Host) -> str:
    """Returns a token that can be a header."""
    if not _TOKEN.fullmatch(token):
        raise NotDone(f"{host}: an answer that is not etcd's to: authenticate")
    return token


def headers(token: str | None) -> dict[str, str]:
    """Returns the headers of a call; a host without a leader refuses it at once."""
    required = {"Grpc-Metadata-hasleader": "true"}
    return {**required, "Authorization": token} if token else required
