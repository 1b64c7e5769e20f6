"""Follows the Secrets that are in use, each by its name, and their versions alone: no content comes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError
from shipper.apiserver.objects import SECRETS, Event, uid, version
from shipper.apiserver.reflector import Reflector
from shipper.kubernetes.summing.release import Secret
from shipper.kubernetes.summing.tasks import FORBIDDEN, REFUSED_SECONDS
from shipper.kubernetes.summing.troubles import Troubles
from shipper.kubernetes.summing.writing import NO_RIGHT, Writing
from shipper.process.environment import Environment
from shipper.sdk.retry import backoff

UNSEEN = "secret_unseen"
"""A cause of troubles."""


@dataclass
class _Followed:
    secret: Secret | None = None
    """None before it was read."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Following:
    """`changed` is called with the name of a Secret that has another version now."""

    def __init__(
        self,
        client: Client,
        writing: Writing,
        troubles: Troubles,
        environment: Environment,
        changed: Callable[[str], None],
    ) -> None:
        self._client, self._writing, self._troubles = client, writing, troubles
        self._environment, self._changed = environment, changed
        self._all: dict[str, _Followed] = {}

    def secret(self, name: str) -> Secret | None:
        """Returns a Secret as it was seen last; None before that."""
        followed = self._all.get(name)
        return None if followed is None else followed.secret

    def want(self, names: Iterable[str], nursery: trio.Nursery) -> None:
        """Follows these and no others."""
        wanted = {*names}
        for name in self._all.keys() - wanted:
            self._all.pop(name).scope.cancel("nobody names this Secret any more")
            self._troubles.over(f"Secret {name}")
        for name in sorted(wanted - self._all.keys()):
            self._all[name] = followed = _Followed()
            nursery.start_soon(self._follow, name, followed)

    async def _follow(self, name: str, followed: _Followed) -> None:
        """Follows a Secret, as soon as there is a right to it."""

        def heed(event: Event) -> None:
            if event.type != "SYNCED":
                followed.secret = _seen(name, event)
                self._changed(name)

        def trouble(text: str | None) -> None:
            if text is None:
                self._troubles.over(f"Secret {name}")
            else:
                self._troubles.failed(UNSEEN, f"Secret {name}", text)

        with followed.scope:
            await self._permitted(name, followed)
            await Reflector(
                self._client,
                SECRETS,
                fields=f"metadata.name={name}",
                metadata_only=True,
                heed=heed,
                trouble=trouble,
                environment=self._environment,
            ).run()

    async def _permitted(self, name: str, followed: _Followed) -> None:
        """Returns when the Secret could be read."""
        refusals = backoff(1.0, REFUSED_SECONDS, draw=self._environment.draw)
        pauses = backoff(0.1, 10.0, draw=self._environment.draw)
        while True:
            try:
                followed.secret = await self._writing.secret(name)
            except NO_RIGHT as error:
                followed.secret = Secret(name, "")
                text = f"{error}; what is released of it is known from members alone"
                self._troubles.failed(FORBIDDEN, f"Secret {name}", text)
                self._changed(name)
                await trio.sleep(next(refusals))
            except ApiError as error:
                self._troubles.failed(UNSEEN, f"Secret {name}", str(error))
                await trio.sleep(next(pauses))
            else:
                self._troubles.over(f"Secret {name}")
                self._changed(name)
                return


def _seen(name: str, event: Event) -> Secret:
    return Secret(name, version(event.object), "" if event.type == "DELETED" else uid(event.object))
