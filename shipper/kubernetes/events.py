"""Events of Kubernetes about what a person must see to: `kubectl describe` shows them with the policy or the member.

The API server forgets an Event after an hour. So there is a new one every REPEAT_SECONDS as long as the cause lasts, or
when it says something else. Its name is made of what it says, so that neither a restart nor another leader writes it
twice. Nothing waits for an Event: what cannot be written is tried again, more and more slowly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import NoReturn

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import AlreadyExists, ApiError
from shipper.apiserver.objects import Kind, Object
from shipper.process.environment import REAL, Environment
from shipper.sdk.retry import backoff

EVENTS = Kind("", "v1", "events", "Event")
REPEAT_SECONDS = 1800.0
GAP_SECONDS = 60.0
"""Between two Events about the same cause that say different things."""
NAMELESS_SECONDS = 5.0
"""Until an object is looked at again that has not been created yet."""
REFUSED_SECONDS = 60.0
"""The longest time until what could not be written is tried again."""

_LONGEST = 1000
"""Characters of a message; the API server takes 1024 bytes of some."""
_LONGEST_NAME = 200


@dataclass(slots=True)
class _Cause:
    kind: Kind
    name: str
    uid: Callable[[], str]
    reason: str
    message: str
    written: str = ""
    """The name of its last Event."""
    at: float = -inf


class Events:
    """`run` it once; `show` at any time."""

    def __init__(
        self,
        client: Client,
        reporter: str,
        say: Callable[[str], None] = lambda sentence: None,
        environment: Environment = REAL,
    ) -> None:
        """`reporter` is the name of this member; `say` gets a sentence when Events cannot be written."""
        self._client, self._reporter, self._say, self._environment = client, reporter, say, environment
        self._causes: dict[tuple[str, str, str], _Cause] = {}
        self._changed = trio.Event()

    def show(self, kind: Kind, name: str, uid: Callable[[], str], cause: str, reason: str, message: str | None) -> None:
        """Has a cause of an object shown, by one word as its reason; None: it is over.

        `uid` returns that of the object; empty before it is known.
        """
        key = kind.name, name, cause
        if message is None:
            self._causes.pop(key, None)
            return
        text = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
        known = self._causes.get(key)
        if known is None:
            self._causes[key] = _Cause(kind, name, uid, reason, text)
        else:
            known.uid, known.reason, known.message = uid, reason, text
        self._changed.set()

    def forget(self, kind: Kind) -> None:
        """Shows nothing more of objects of a kind: somebody else does."""
        self._causes = {key: one for key, one in self._causes.items() if key[0] != kind.name}

    async def run(self) -> NoReturn:
        """Writes Events until it is cancelled."""
        pauses = self._pauses()
        has_failed = False
        while True:
            self._changed = trio.Event()
            try:
                wait = await self._write_all()
            except ApiError as error:
                if not has_failed:
                    self._say(f"Events that `kubectl describe` shows cannot be written: {error}")
                has_failed = True
                await trio.sleep(next(pauses))
                continue
            has_failed, pauses = False, self._pauses()
            with trio.move_on_after(wait):
                await self._changed.wait()

    async def _write_all(self) -> float:
        """Writes what is due; returns the seconds until more may be. Raises ApiError."""
        wait = REPEAT_SECONDS
        for one in [*self._causes.values()]:
            now, uid = self._environment.boottime(), one.uid()
            made = self._event(one, uid)
            if not uid:
                wait = min(wait, NAMELESS_SECONDS)
            elif made["metadata"]["name"] == one.written:
                wait = min(wait, REPEAT_SECONDS - self._environment.wall() % REPEAT_SECONDS)
            elif now < one.at + GAP_SECONDS:
                wait = min(wait, one.at + GAP_SECONDS - now)
            else:
                with suppress(AlreadyExists):
                    await self._client.create(EVENTS, made)
                one.written, one.at = made["metadata"]["name"], now
        return max(wait, 0.1)

    def _event(self, one: _Cause, uid: str) -> Object:
        wall = self._environment.wall()
        at = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = "\0".join([uid, one.reason, one.message, str(int(wall // REPEAT_SECONDS))])
        digest = hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]
        namespace = self._client.namespace
        about = {
            "apiVersion": f"{one.kind.group}/{one.kind.version}",
            "kind": one.kind.name,
            "name": one.name,
            "namespace": namespace,
            "uid": uid,
        }
        return {
            "apiVersion": "v1",
            "kind": EVENTS.name,
            "metadata": {"name": f"{one.name[:_LONGEST_NAME].rstrip('-.')}.{digest}", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": one.reason,
            "message": one.message,
            "source": {"component": "shipper", "host": self._reporter},
            "reportingComponent": "shipper.dev/shipper",
            "reportingInstance": self._reporter[:128],
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

    def _pauses(self) -> Iterator[float]:
        return backoff(1.0, REFUSED_SECONDS, draw=self._environment.draw)
