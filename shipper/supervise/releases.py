"""The one rule of a supervisor, as a value: which credentials may be revoked now.

A credential may be revoked when the sidecar listed it as released, and no policy that was sent since, and not nacked,
refers to it: an ack may cross a newer policy in the pipe. So each listing carries the revision up to which the sidecar
had read when it wrote it, and each credential the newest revision that refers to it; the listing must not be older.

    sent 1{a}  sent 2{b}  sent 3{a}  ──>
                       <──  ack 2 drained, released [a]      listed a at 2 < 3: not free
                       <──  nack 3                           the reference is gone: a is free

What the files refer to now is never free either, though its revision was nacked: people mend a policy, and would find
its key revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shipper.messages import Ack, Nack, Ready, Released, Revision

_NONE = Revision(-1, -1)


class Releases:
    """Who refers to which credential, as far as one supervisor process knows."""

    def __init__(self) -> None:
        self._pending: dict[Revision, frozenset[str]] = {}
        """Policies that were sent, and may still be nacked."""
        self._settled: dict[str, Revision] = {}
        """Of each id, the newest revision that refers to it and became active."""
        self._listed: dict[str, Revision] = {}
        self._read = _NONE
        """The newest revision that the sidecar has surely read."""

    def sent(self, at: Revision, ids: Iterable[str]) -> None:
        """A policy goes out; call it before the first byte can."""
        self._pending[at] = frozenset(ids)

    def ready(self, message: Ready, known: Iterable[str]) -> None:
        """A new sidecar process: what it had not received is lost, and what it does not use, nothing uses."""
        received = message.revisions.received or _NONE
        active = message.revisions.active
        self._pending = {at: ids for at, ids in self._pending.items() if at <= received}
        self._read = received
        used = set(message.credentials_in_use)
        self._listed = {id: at for id, at in self._listed.items() if id not in used}
        if active is not None:
            self._list((id for id in known if id not in used), active)

    def ack(self, message: Ack) -> None:
        at = Revision(message.epoch, message.revision)
        self._read = max(self._read, at)
        if message.stage != "received":
            self._settle(at)
        if message.credentials is not None:
            self._list(message.credentials.released, at)

    def released(self, message: Released) -> None:
        self._list(message.credentials, self._read)

    def nack(self, message: Nack) -> None:
        at = Revision(message.epoch, message.revision)
        self._pending.pop(at, None)
        self._list(message.released, at)

    def free(self, known: Iterable[str], wanted: Collection[str]) -> list[str]:
        """Those of the known ids that may be revoked now; `wanted` is what the files refer to."""
        return [id for id in known if id not in wanted and id in self._listed and self._listed[id] >= self._newest(id)]

    def forget(self, id: str) -> None:
        """The id was released; nothing speaks of it again."""
        self._listed.pop(id, None)
        self._settled.pop(id, None)

    def _newest(self, id: str) -> Revision:
        pending = (at for at, ids in self._pending.items() if id in ids)
        return max(self._settled.get(id, _NONE), *pending, _NONE)

    def _list(self, ids: Iterable[str], at: Revision) -> None:
        for id in ids:
            self._listed[id] = max(at, self._listed.get(id, _NONE))

    def _settle(self, at: Revision) -> None:
        """What was sent up to here became active or was replaced."""
        for older in [older for older in self._pending if older <= at]:
            for id in self._pending.pop(older):
                self._settled[id] = max(older, self._settled.get(id, _NONE))
