"""The Secrets that policies name, as watches and reads have shown them: whichever is newer.

A Secret is used only if it has the label `shipper.dev/use: credential`. What keeps a key from being used is said in a
sentence, which never has any of a content.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from shipper.apiserver.objects import Event, Object, labels, uid, version
from shipper.apiserver.versions import compare
from shipper.kubernetes.kinds import USE_LABEL
from shipper.kubernetes.member.overtaking import Overtaking
from shipper.kubernetes.member.steps import Denied, SecretFound

SOON, SLOWLY = 1.0, 60.0
"""Seconds until a read that was refused is repeated: the first time, and at last."""


@dataclass(frozen=True, slots=True)
class Current:
    """The content of a key, and the version of the Secret that has it."""

    uid: str
    version: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no content that may be used."""

    why: str


Answer: TypeAlias = Current | Missing | None
"""None: it is not known yet."""


@dataclass(slots=True)
class _Seen:
    object: Object | None = field(default=None, repr=False)
    is_known: bool = False
    denied: str = ""
    """Why the watch is refused."""
    unread: str = ""
    """Why a read was refused, while a watch may show changes."""
    asked: float = -inf
    again: float = inf
    """When a refused read is repeated, and when the last one was."""
    pause: float = SOON


class Secrets:
    """By name.

    A read that was refused is repeated: first after SOON, then more and more slowly, and at every sign of change, since
    nothing tells that a right was granted.
    """

    def __init__(self) -> None:
        self.reading = Overtaking()
        self._seen: dict[str, _Seen] = {}

    def forget(self, name: str) -> None:
        """No watch shows this Secret any more, so what is known of it grows old."""
        self._seen.pop(name, None)

    def saw(self, name: str, event: Event) -> Object | None:
        """The watch of one Secret has shown this; returns the object if it is news."""
        seen = self._seen.setdefault(name, _Seen())
        seen.denied = ""
        if event.type == "SYNCED":
            seen.is_known = True
            return None
        _hasten(seen)
        self.reading.shown(name)
        found = event.object
        if seen.object is not None and compare(version(found), version(seen.object)) == -1:
            return None
        if event.type == "DELETED":
            if seen.object is None or uid(seen.object) == uid(found):
                seen.object, seen.is_known = None, True
            return None
        seen.object, seen.is_known = found, True
        return found

    def read(self, name: str, found: SecretFound, now: float) -> bool:
        """A read by quorum has found this; returns whether that is what is known now."""
        seen = self._seen.setdefault(name, _Seen())
        if isinstance(found, Denied):
            seen.is_known, seen.unread = True, found.why
            seen.asked, seen.again, seen.pause = now, now + seen.pause, min(SLOWLY, 2 * seen.pause)
            return True
        known = seen.object
        is_newer = self.reading.is_newer(name, found, uid(known) if known else "", version(known) if known else "")
        if is_newer is None:
            return False
        seen.is_known, seen.denied = True, ""
        seen.unread, seen.again, seen.pause = "", inf, SOON
        if is_newer and (found is None or known is None or compare(version(found), version(known)) != -1):
            seen.object = found
        return True

    def present(self, name: str) -> Object | None:
        """Returns the Secret of a name as it is known now; None if there is none."""
        seen = self._seen.get(name)
        return seen.object if seen is not None else None

    def hasten(self) -> None:
        """There is a sign of change: refused reads are repeated soon."""
        for seen in self._seen.values():
            _hasten(seen)

    def due(self, now: float) -> frozenset[str]:
        """Returns the names of the Secrets to read again now."""
        return frozenset(name for name, seen in self._seen.items() if seen.again <= now)

    def again_at(self, names: Collection[str]) -> float:
        """Returns when one of these Secrets is to be read again if nothing changes."""
        return min((seen.again for name, seen in self._seen.items() if name in names), default=inf)

    def denied(self, name: str, why: str) -> None:
        """This member may not read it; what it had before is not taken as current any more."""
        self._seen[name] = _Seen(is_known=True, denied=why)

    def answer(self, name: str, key: str) -> Answer:
        """Returns the content of a key now."""
        seen = self._seen.get(name)
        if seen is None or not seen.is_known:
            return None
        if why := seen.denied or seen.unread:
            return Missing(f"this member may not read the Secret {name}: {why}")
        if seen.object is None:
            return Missing(f"there is no Secret {name}")
        if labels(seen.object).get(USE_LABEL) != "credential":
            return Missing(f"the Secret {name} may not be used: it lacks the label {USE_LABEL}: credential")
        content = dict(contents(seen.object)).get(key)
        if content is None:
            return Missing(f"the Secret {name} has no key {key}")
        return Current(uid(seen.object), version(seen.object), content)


def _hasten(seen: _Seen) -> None:
    if seen.unread:
        seen.again, seen.pause = min(seen.again, seen.asked + SOON), SOON


def contents(found: Object) -> Iterator[tuple[str, bytes]]:
    """Yields the keys of a Secret and their contents."""
    data = found.get("data")
    for key, value in data.items() if isinstance(data, dict) else ():
        try:
            yield str(key), base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
