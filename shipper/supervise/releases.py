"""Decides which credentials may be revoked now.

A credential may be revoked when the sidecar has listed it as released, and no policy that was sent since, and not
nacked, refers to it: an ack may cross a newer policy in the pipe. So each listing is stored with the revision up to
which the sidecar had read, and each credential with the newest revision that refers to it; the listing must not be
older.

    sent 1{a}  sent 2{b}  sent 3{a}  ──>
                       <──  ack 2 drained, released [a]      listed a at 2 < 3: not free
                       <──  nack 3                           the reference is gone: a is free

A sidecar does not list a credential that it never had. A sidecar process starts without secrets, and `ready` lists
those that it uses; so a credential that is neither listed there nor sent to this process is not in use. It is free once
a policy is active; before, the first working policy may still refer to it.

A credential of the present files is never free, even if its revision was nacked: it would be revoked before the policy
is corrected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shipper.protocol.messages import Ack, Nack, Ready, Released
from shipper.values import Revision

_NONE = Revision(-1, -1)


class Releases:
    """The references to credentials that one supervisor process knows."""

    def __init__(self) -> None:
        self._active = False
        """Whether any policy is active."""
        self._met: dict[str, Revision] = {}
        """The first revision of each id that was sent, or is about to be sent, to this sidecar process."""
        self._pending: dict[Revision, frozenset[str]] = {}
        """The ids of policies that were sent and may still be nacked."""
        self._settled: dict[str, Revision] = {}
        """The newest active revision that refers to each id."""
        self._listed: dict[str, Revision] = {}
        self._read = _NONE
        """The newest revision that the sidecar has read for certain."""

    def ready(self, message: Ready) -> None:
        """A new sidecar process is ready: it has read nothing yet, and holds no secret."""
        self._active = message.revisions.active is not None
        self._met = dict.fromkeys(message.credentials_in_use, _NONE)
        self._pending, self._settled, self._listed, self._read = {}, {}, {}, _NONE

    def meets(self, ids: Iterable[str]) -> None:
        """The sidecar uses these ids, or gets their secrets outside of a policy."""
        for id in ids:
            self._met.setdefault(id, _NONE)

    def sent(self, at: Revision, ids: Iterable[str]) -> None:
        """A policy is sent; call this before its first byte is written, and never while an earlier copy has no
        answer."""
        self._pending[at] = frozenset(ids)
        for id in self._pending[at]:
            self._met.setdefault(id, at)

    def unsent(self, at: Revision) -> None:
        """A newer policy has replaced a sent one before its first byte was written: undoes `sent`."""
        for id in self._pending.pop(at, ()):
            if self._met.get(id) == at:
                del self._met[id]
                for other in sorted(other for other, ids in self._pending.items() if id in ids):
                    self._met.setdefault(id, other)

    def ack(self, message: Ack) -> None:
        at = Revision(message.epoch, message.revision)
        self._read = max(self._read, at)
        if message.stage != "received":
            self._active = True
            self._settle(at)
        if message.credentials is not None:
            self._list(message.credentials.released, at)

    def released(self, message: Released) -> None:
        self._list(message.credentials, self._read)

    def nack(self, message: Nack) -> None:
        at = Revision(message.epoch, message.revision)
        self._pending.pop(at, None)
        self._list(message.released, Revision(at.epoch, at.number - 1))  # the same number may be sent again

    def free(self, known: Iterable[str], wanted: Collection[str]) -> list[str]:
        """Returns those of the known ids that may be revoked now; `wanted` are the ids of the files."""
        return [id for id in known if id not in wanted and (self._unmet(id) or self._given_up(id))]

    def forget(self, id: str) -> None:
        """Forgets a released id."""
        self._met.pop(id, None)
        self._listed.pop(id, None)
        self._settled.pop(id, None)

    def _unmet(self, id: str) -> bool:
        return self._active and id not in self._met

    def _given_up(self, id: str) -> bool:
        pending = (at for at, ids in self._pending.items() if id in ids)
        newest = max(self._settled.get(id, _NONE), *pending, _NONE)
        return id in self._listed and self._listed[id] >= newest

    def _list(self, ids: Iterable[str], at: Revision) -> None:
        for id in ids:
            self._listed[id] = max(at, self._listed.get(id, _NONE))

    def _settle(self, at: Revision) -> None:
        """Policies that were sent up to this revision became active or were replaced."""
        for older in [older for older in self._pending if older <= at]:
            for id in self._pending.pop(older):
                self._settled[id] = max(older, self._settled.get(id, _NONE))
