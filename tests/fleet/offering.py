"""A membership that offers what a test wants, and keeps what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import trio

from shipper.fleet.membership.offered import Offered
from shipper.fleet.records import Text
from shipper.fleet.records import Version as Triple
from shipper.supervise.answers import Stage
from shipper.values import Counts, Revision


class Offering:
    """Stands in for `membership.Membership`, without a store."""

    def __init__(self) -> None:
        self.offered: Offered | None = None
        self.answers: list[tuple[str, str, str, Sequence[str]]] = []
        self.ledgers: list[tuple[Counts | None, str]] = []
        self.has_left = trio.Event()
        self.may_leave = trio.Event()
        self._changed = trio.Event()

    def offer(self, number: int, policy: str, secrets: Mapping[str, tuple[str, bytes]] | None = None) -> Offered:
        """Offers a version; `secrets` are ids and contents by name."""
        given = secrets or {}
        text = Text(policy, {name: id for name, (id, _) in given.items()}, nonce=str(number))
        contents = {name: content for name, (_, content) in given.items()}
        self.offered = Offered(Triple(0, number, f"{number:064x}"), text, contents)
        self._changed.set()
        self._changed = trio.Event()
        return self.offered

    async def changed(self) -> None:
        await self._changed.wait()

    def answered(
        self,
        version: str,
        revision: Revision,
        stage: Stage | Literal["refused"],
        reason: str = "",
        problems: Sequence[str] = (),
        ledger: Counts | None = None,
        local: str = "",
    ) -> None:
        self.ledgers.append((ledger, local))
        self.answers.append((version, stage, reason, problems))

    def stages(self, number: int) -> list[str]:
        """Returns the stages of a version, as they were answered."""
        return [stage for version, stage, _, _ in self.answers if version.split(".")[1] == str(number)]

    async def leave(self) -> None:
        await self.may_leave.wait()
        self.has_left.set()

    def status(self) -> dict[str, Any]:
        return dict.fromkeys(("newest", "running", "refused", "lease_seconds", "ledger")) | {
            "fleet": "prod",
            "member": "web-1",
            "state": "member",
            "reason": "",
            "stages": {},
            "local": "",
        }
