"""Releases the fleet's secrets, on hosts that have an `on_release`: `release.Steps` in action.

The elected candidate watches the whole fleet; the others watch one key. The command runs at least once for each
released id, one at a time, with retries for ever, and with these variables beside those of `supervise/revoke`:

    SHIPPER_FLEET           prod
    SHIPPER_FENCING_TOKEN   17     rises with each election; whatever the command writes to must refuse a lower one

A backend ends a secret by its name. So the command waits while the fleet may use another secret of that name, such as
the new password of a user; that is reported.

A command may still run on a host that has lost the election, until it ends or is killed: so it must be idempotent.

The elected candidate also forgets members after their `forget_after`. So a fleet without any `on_release` forgets
nobody by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import trio

from shipper.fleet import operations, release
from shipper.fleet.election import Election
from shipper.fleet.errors import Refused
from shipper.fleet.records import HEAD, SECRETS, Head, Leader, Secret
from shipper.fleet.release import Steps, forgettable
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.store import Store, StoreError
from shipper.fleet.view import View
from shipper.policy.registry import Registry
from shipper.sdk.credentials import SHAPES
from shipper.sdk.errors import ShipperError
from shipper.sdk.retry import backoff
from shipper.supervise import secrets
from shipper.supervise.config import OnRelease
from shipper.supervise.ledger import Kept
from shipper.supervise.revoke import Revoker

_RETRY_SECONDS = (1.0, 60.0)
_LOOK_SECONDS = 5.0
"""Between two looks for a secret in use with the name of one that waits."""
_LOST = "the store has no content of it, so it has no name; see `shipper fleet secret list`"
_REST_SECONDS = 0.25
"""Between two looks at a fleet that changes all the time."""


class Observer(Protocol):
    """What is needed of `observer.Observer`."""

    def view(self) -> View: ...

    async def changed(self, deadline: float | None = None) -> object:
        """Returns after a change, or at the deadline, by trio's clock as `View.now`; a view knows all up to it then."""
        ...


class Releasing:
    """The candidate of one host."""

    def __init__(
        self,
        store: Store,
        seals: Seals,
        fleet: str,
        candidate: Leader,
        lease: float,
        command: OnRelease,
        *,
        observing: Callable[[Store, Seals], AbstractAsyncContextManager[Observer]],
        environment: Callable[[], Mapping[str, str]],
        trouble: Callable[[str, str | None], None],
        trusted: Callable[[], bool] = lambda: True,
        say: Callable[[str, Mapping[str, Any]], None] = lambda what, fields: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`trouble(cause, message)` is called with what keeps releases from going on, and with None when that is over;
        `trusted` returns whether this host has found the store to be the one that it knows, and not restored;
        `say(what, fields)` reports what happens."""
        self._store, self._seals, self._fleet = store, seals, fleet
        self._election = Election(store, seals, candidate, lease)
        self._command, self._environment = command, environment
        self._observing, self._trouble, self._trusted = observing, trouble, trusted
        self._say, self._wall = say, wall
        self.token: int | None = None
        """While this host is elected."""

    async def run(self) -> None:
        """Stands for election, and releases while elected; runs for ever. A store that is away is a trouble."""
        waits = backoff(*_RETRY_SECONDS)
        while True:
            if self._trusted():
                try:
                    await self._election.lead(self._lead)
                except* ShipperError as errors:
                    self._trouble("releases", str(_first(errors)))
                else:
                    waits = backoff(*_RETRY_SECONDS)
            await trio.sleep(next(waits))

    async def _lead(self, token: int) -> None:
        """Releases while the head has this token."""
        self.token = token
        self._say("fleet_elected", {"fleet": self._fleet, "token": token})
        try:
            async with self._observing(self._store, self._seals) as observer:
                async with trio.open_nursery() as nursery:
                    self._trouble("releases", None)
                    await _Term(self, token, observer, nursery).serve()
                    nursery.cancel_scope.cancel("another candidate is elected")
                while _is_suspended(observer.view(), token):
                    await observer.changed()
        finally:
            self.token = None

    async def _write(self, before: Head, after: Head) -> None:
        """Swaps the head, if it still is the one from which the new one was made."""
        found = await self._store.read(HEAD)
        if found.entry is not None and self._seals.open(HEAD, found.entry.value, Head) == before:
            await self._store.swap(HEAD, self._seals.seal(HEAD, after.replacing()), expected=found.entry.revision)

    async def _kept(self, id: str, name: str) -> Kept | None:
        """Returns what the command may know of a secret, without its public name if it has none; None if the store has
        no authentic record of it. Raises StoreError."""
        key = SECRETS + id
        entry = (await self._store.read(key)).entry
        try:
            content = self._seals.open(key, entry.value if entry is not None else b"", Secret).content
        except Unauthentic:
            return None
        fields: dict[str, str] = {}
        public: list[str] = []
        with suppress(ValueError):
            credential = secrets.interpreted(content.decode("utf-8-sig"))
            shapes = () if credential.fits(*SHAPES) else await trio.to_thread.run_sync(Registry.installed().shapes)
            secrets.hide(credential, shapes)
            fields, public = dict(credential.fields), sorted(credential.public(shapes)) if shapes else []
        return Kept(id, fields, [f"fleet:{name}"] if name else [], [], public=public)


class _Term:
    """The time from an election to its end."""

    def __init__(self, of: Releasing, token: int, observer: Observer, nursery: trio.Nursery) -> None:
        self._of, self._observer, self._nursery = of, observer, nursery
        self._steps = Steps(token)
        self._revoker = Revoker(of._command, self._environment, self._failed, self._may, at_once=1)
        self._waiting = trio.CancelScope()
        self._contents: dict[str, Kept | None] = {}
        """What was read of the secrets that are in use; an id never gets another content. None: the store has none."""

    async def serve(self) -> None:
        """Returns when a view shows that this candidate has no authority."""
        while True:
            view = self._observer.view()
            if not (self._steps.leads(view) and self._of._trusted()):
                return
            head = self._steps.next(view, self._of._wall())
            if head != view.head:
                await self._of._write(view.head, head)
            else:
                for id in self._steps.due(view):
                    self._nursery.start_soon(self._revoke, id, view.head.released[id].name)
                await self._forget(view)
            await self._turn(view)

    async def _turn(self, view: View) -> None:
        """Waits for a change, a success, or the end of a wait, which counts from what the view knew: else changes that
        come all the time would put it off."""
        seconds = self._steps.wait(view, self._of._wall())
        deadline = math.inf if seconds is None else view.now + seconds
        with trio.CancelScope() as self._waiting:
            if not self._steps.has_news:
                await self._observer.changed(deadline)
        await trio.sleep(_REST_SECONDS)

    async def _forget(self, view: View) -> None:
        for name in forgettable(view, self._of._wall()):
            with suppress(Refused):
                await operations.forget(self._of._store, self._of._seals, name, only=view.reports[name].write_id)

    async def _revoke(self, id: str, name: str) -> None:
        if release.is_given_up(self._observer.view().head, id):
            self._of._say("given_up", {"credential": id, "name": name})
        else:
            await self._run(id, name)
        self._of._trouble(f"on_release {id}", None)
        self._steps.succeeded(id)
        self._waiting.cancel("a command has succeeded")

    async def _run(self, id: str, name: str) -> None:
        """Returns when the command has succeeded."""
        while (kept := await self._known(id, name)) is None:
            self._failed(id, _LOST, _LOOK_SECONDS)
            await trio.sleep(_LOOK_SECONDS)
        told = ""
        while (used := await self._used_as(kept)) or not await self._revoker.revoke(kept):
            if used != told:
                told = used
                fields = {"name": kept.name, "sources": kept.sources, "used": used, "until": "released"}
                self._of._say("release_waits", {"credential": id, **fields})
            await trio.sleep(_LOOK_SECONDS)
        self._of._say("revoked", {"credential": id, "name": kept.name})

    async def _used_as(self, kept: Kept) -> str:
        """Returns the id of a secret in use that ends with this one; empty without any."""
        for id in release.live_ids(self._observer.view().head):
            if self._contents.get(id) is None:
                self._contents[id] = await self._known(id, "", of=kept.id)
            if id != kept.id and self._may_end(id, kept):
                return id
        return ""

    def _may_end(self, id: str, kept: Kept) -> bool:
        """Whether the end of a secret may be that of another one: they have one name, or a member uses that one, and
        the store has lost its content."""
        other = self._contents[id]
        if other is not None:
            return other.known_as == kept.known_as
        return any(id in report.using for report in self._observer.view().reports.values())

    def _may(self, kept: Kept) -> bool:
        """Whether no secret in use ends with this one, for certain."""
        live = [id for id in release.live_ids(self._observer.view().head) if id != kept.id]
        return all(id in self._contents and not self._may_end(id, kept) for id in live)

    async def _known(self, id: str, name: str, *, of: str = "") -> Kept | None:
        """Returns what the command may know of a secret, once the store says it: a command that does not get the public
        name of a key has nothing to revoke, and would succeed. Until then the release of `of`, or else of `id`,
        fails."""
        waits = backoff(*_RETRY_SECONDS)
        while True:
            try:
                return await self._of._kept(id, name)
            except StoreError as error:
                seconds = next(waits)
                self._failed(of or id, str(error), seconds)
                await trio.sleep(seconds)

    def _failed(self, id: str, reason: str, seconds: float) -> None:
        self._of._trouble(f"on_release {id}", f"on_release failed for the fleet's secret {id}: {reason}")
        self._steps.failed(id)
        self._waiting.cancel("a command has failed")

    def _environment(self) -> Mapping[str, str]:
        of = self._of
        return {**of._environment(), "SHIPPER_FLEET": of._fleet, "SHIPPER_FENCING_TOKEN": str(self._steps.token)}


def _is_suspended(view: View, token: int) -> bool:
    """Whether no candidate may act: then another election, which is a write of the head, would change nothing."""
    return view.head.token == token and (view.restored or view.head.accepting is not None)


def _first(errors: BaseException) -> BaseException:
    """Returns one of the errors of a group."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
