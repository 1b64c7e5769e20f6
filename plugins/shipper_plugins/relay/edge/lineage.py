"""Whether the principal of a `relay` output still knows what it has confirmed.

Each state directory of a principal has a lineage. What it has confirmed is noted durably, before the confirmation
counts. If it knows less in a later session, its directory went back to an older copy: what it had confirmed since that
copy may be lost there, and log events are no longer here to be sent again. The output reports that as a problem until
the next session. Keyed state is compared in each session anyway, and missing versions are sent again.
"""

from __future__ import annotations

import hashlib
import logging

from shipper.plugin import Code, OutputContext
from shipper.plugin.relay import Confirmed
from shipper.sdk.http_answer import address
from shipper_plugins.relay.frames import Welcome

_log = logging.getLogger(__name__)


class Lineage:
    """The lineage of an open output, and of the principal of its session."""

    def __init__(self, context: OutputContext) -> None:
        self._context = context
        self._known: dict[str, Confirmed] | None = None
        self._losses: list[str] = []
        """The losses that this session has shown."""
        self._went_back = context.meters.counter("principal_went_back", "Sessions with a principal that went back.")

    async def begin(self, welcome: Welcome, host: str) -> None:
        """A session has begun: checks whether this principal knows all log events that it has confirmed."""
        if self._known is None:
            self._known = {} if self._context.lineages is None else dict(await self._context.lineages.known())
        self._losses.clear()
        name = hashlib.sha256(host.encode()).hexdigest()[:16]
        before = self._known.get(welcome.lineage)
        if before is None and any(one.host == name for one in self._known.values()):
            text = "output %s: %s has another state directory than before; all keys of state are sent there"
            _log.info(text, self._context.name, address(host))
        before = before or Confirmed()
        self._note(welcome.lineage, before._replace(events=min(before.events, welcome.highest), host=name))
        self._tell("log events", welcome.highest, before.events)

    def compared(self, lineage: str, highest: int) -> None:
        """The principal has versions up to this place."""
        before = self._of(lineage)
        self._note(lineage, before._replace(state=min(before.state, highest)))
        self._tell("keyed state", highest, before.state)

    def confirmed(self, lineage: str, *, events: int = 0, state: int = 0) -> None:
        """The principal has confirmed these places; call it before the answer is given."""
        before = self._of(lineage)
        self._note(lineage, before._replace(events=max(before.events, events), state=max(before.state, state)))

    def _of(self, lineage: str) -> Confirmed:
        return (self._known or {}).get(lineage, Confirmed())

    def _note(self, lineage: str, confirmed: Confirmed) -> None:
        if self._known is None or self._known.get(lineage) == confirmed:
            return
        self._known[lineage] = confirmed
        if self._context.lineages is not None:
            self._context.lineages.note(lineage, confirmed)

    def _tell(self, what: str, knows: int, confirmed: int) -> None:
        if knows < confirmed:
            if not self._losses:
                self._went_back.add()
            self._losses.append(f"{what} at the places {knows + 1} to {confirmed}")
            _log.warning("output %s: %s", self._context.name, self._text())
        if self._losses:
            self._context.notice(self._text(), Code.PRINCIPAL_WENT_BACK)
        else:
            self._context.notice(None, Code.OK)

    def _text(self) -> str:
        lost = " and ".join(self._losses)
        return f"the principal went back to an older state directory: it lacks {lost}, which it had confirmed"
