"""Answers questions about the fleet that come over HTTP (`http`), the same on every member.

    GET /fleet/versions/7?stage=drained&wait=30s&nack_grace=10s     a `Verdict`
    GET /fleet/members                                              a `Fleet`
    GET /fleet/versions                                             its versions

| status | meaning |
|---|---|
| 200 | open: every member that counts has reached the stage; or a list |
| 202 | closed, still, when the wait was over |
| 409 | refused: `members` has the members that refuse it, and why |
| 404 | there is no such version, or it is gone from the history (`state`) |
| 503 | `store_unreachable`, `store_refused`, `unauthentic`: this member cannot answer; `store_restored`: nobody can |

`stage` is `drained` by default, `wait` is 0 s, and is cut at 5 min. Each answer has the revision of the store at which
it was judged (`at`), and is never older than its question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import msgspec
import trio

from shipper.fleet.certificates import renewals
from shipper.fleet.judge import Asked, State, Verdict, asked
from shipper.fleet.observer import Observer, Observers, wait
from shipper.fleet.opening import Opened
from shipper.fleet.overview import Fleet, overview
from shipper.fleet.page import Glances
from shipper.fleet.seal import Unauthentic
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import StoreError, StoreRefused
from shipper.membership.door import Answer, Door, Refused, Request, refusal
from shipper.membership.http import LONGEST_WAIT, serve
from shipper.membership.page import Page
from shipper.sdk.credentials import BEARER_TOKEN
from shipper.sdk.units import Duration
from shipper.status.http import parse_address
from shipper.supervise.answers import STAGES, Stage

NACK_GRACE = 10.0
"""Seconds for which a nack may be cleared, where a question says nothing else."""

_VERSIONS = "/fleet/versions"
_STATUS: Mapping[State, int] = {
    "open": 200,
    "closed": 202,
    "refused": 409,
    "unknown": 404,
    "gone": 404,
    "store_restored": 503,
}
_RESTORED = "the store was restored from an older state: see `shipper fleet accept-restore`"
_RETRY = {"Retry-After": "2"}


class Questions:
    """Answers on one member; `observers` watch the store only while there is a question.

    `restored` returns whether this member has found that the store went back behind what it had seen.
    """

    def __init__(self, observers: Observers, restored: Callable[[], bool] = lambda: False) -> None:
        self._observers, self._restored = observers, restored

    async def answer(self, request: Request) -> Answer:
        """Returns the answer; raises Refused for a question that is none."""
        try:
            answer = await self._answer(request)
            return refusal(503, "store_restored", _RESTORED, _RETRY) if self._restored() else answer
        except Unauthentic as error:
            return refusal(503, "unauthentic", str(error))
        except StoreRefused as error:
            return refusal(503, "store_refused", str(error))
        except StoreError as error:
            return refusal(503, "store_unreachable", str(error), _RETRY)

    async def seen(self) -> Fleet:
        """Returns the whole fleet for a page; raises StoreError or Unauthentic where there is no answer."""
        found = await self._overview()
        if self._restored():
            raise StoreError(_RESTORED)
        return found

    async def _overview(self) -> Fleet:
        async with self._observers.observing() as observer:
            return overview(await observer.fresh())

    async def _answer(self, request: Request) -> Answer:
        if request.path == "/fleet/members":
            _check(request, ())
            return _json(200, await self._overview())
        if request.path == _VERSIONS:
            _check(request, ())
            fleet = await self._overview()
            return _json(200, {"at": fleet.at, "newest": fleet.newest, "versions": fleet.versions})
        if request.path.startswith(f"{_VERSIONS}/"):
            question = _Question.of(request)
            async with self._observers.observing() as observer:
                return _of_verdict(await question.ask(observer))
        raise Refused(refusal(404, "not_found", f"unknown path; there are /fleet/members and {_VERSIONS}"))


@asynccontextmanager
async def answering(
    fleet: Opened,
    http: str | None,
    sidecar: Callable[[], str | None],
    restored: Callable[[], bool] = lambda: False,
    trouble: Callable[[str | None], None] = lambda problem: None,
    told: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
) -> AsyncIterator[str | None]:
    """Answers on this member while the block runs; yields the bound `host:port`, or None if there is none.

    That is the address `fleet.http`, else `http` of the whole configuration: then the sidecar gets `of_sidecar`.
    `sidecar` returns the address at which it answers, or None. `trouble` is called with the reason while a renewed
    certificate cannot be used, and with None at its end. `told` returns what `shipper status` says, for the page.
    """
    own = fleet.settings.http
    address = own.address if own else http
    if address is None:
        yield None
        return
    token = own.token if own else None
    tokens = (token.fields[BEARER_TOKEN.name].encode(),) if token else ()
    door = Door(parse_address(address)[0], own.context() if own else None, tokens)
    async with trio.open_nursery() as nursery:
        questions = Questions(Observers(fleet.store, fleet.seals, nursery), restored)
        async with AsyncExitStack() as stack:
            renewed = None
            if own and own.certificate and own.key:
                renewed = await stack.enter_async_context(aclosing(renewals(own.certificate, own.key, trouble)))
            page = Page(Glances(questions.seen).glance, told).answer
            yield await stack.enter_async_context(serve(address, door, questions.answer, sidecar, renewed, page=page))
        nursery.cancel_scope.cancel()


def of_sidecar(settings: FleetSettings, http: str | None) -> str | None:
    """Returns the address `http` of the sidecar: any of loopback where the supervisor has that of the configuration."""
    return "127.0.0.1:0" if http and settings.http is None else http


class _Question(msgspec.Struct, frozen=True):
    """What is asked about one version."""

    version: Asked
    stage: Stage
    seconds: float
    nack_grace: float

    @classmethod
    def of(cls, request: Request) -> _Question:
        """Raises Refused."""
        _check(request, ("stage", "wait", "nack_grace"))
        try:
            version = asked(request.path.removeprefix(f"{_VERSIONS}/"))
            stage = request.query.get("stage", "drained")
            if stage not in STAGES:
                raise ValueError(f"a stage is one of {', '.join(STAGES)}")
            seconds = min(_seconds(request, "wait", 0.0), LONGEST_WAIT)
            return cls(version, stage, seconds, _seconds(request, "nack_grace", NACK_GRACE))
        except ValueError as error:
            raise Refused(refusal(400, "bad_request", str(error))) from None

    async def ask(self, observer: Observer) -> Verdict:
        return await wait(observer, self.version, self.stage, self.seconds, self.nack_grace)


def _check(request: Request, names: tuple[str, ...]) -> None:
    if unknown := sorted(request.query.keys() - set(names)):
        known = f"; there are {', '.join(names)}" if names else ""
        raise Refused(refusal(400, "bad_request", f"unknown parameter {unknown[0]!r:.40}{known}"))


def _seconds(request: Request, name: str, default: float) -> float:
    try:
        return float(Duration.parse(request.query[name])) if name in request.query else default
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _of_verdict(verdict: Verdict) -> Answer:
    if verdict.state == "store_restored":
        return refusal(503, "store_restored", "; ".join(verdict.warnings) or _RESTORED, _RETRY)
    return _json(_STATUS[verdict.state], verdict)


def _json(status: int, value: object) -> Answer:
    return Answer(status, msgspec.json.encode(value))
