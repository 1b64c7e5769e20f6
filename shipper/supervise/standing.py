"""How it stands, for `shipper status`: what the sidecar says of itself, and what hinders the supervisor.

The sidecar knows nothing of files that are not valid, or of an `on_release` that fails: it ships on, HEALTHY. So the
whole is DEGRADED as long as the supervisor is hindered, unless the sidecar says worse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from shipper import __version__
from shipper.messages import Observed
from shipper.supervise.conversation import Conversation

_UNHEARD = "not everybody who asks is answered"
_MOST = 10
"""Messages of one cause: a directory of policies may hold many mistakes."""


class Troubles:
    """What hinders the supervisor: causes in words (`on_release fails for es-1`), each until it is over, and why."""

    def __init__(self) -> None:
        self._messages: dict[str, list[str]] = {}

    def begin(self, cause: str, messages: Iterable[str]) -> None:
        """These are the messages of a cause now."""
        self._messages[cause] = [text.encode(errors="replace").decode() for text in islice(messages, _MOST)]

    def over(self, cause: str) -> bool:
        """The cause is gone; says whether there was one."""
        return self._messages.pop(cause, None) is not None

    def __contains__(self, cause: str) -> bool:
        return cause in self._messages

    def whole(self, observed: Observed | None) -> tuple[str, str]:
        """State and message of all of it; UNKNOWN as long as no sidecar has told its own."""
        state, message = (observed.state, observed.message) if observed else ("UNKNOWN", "")
        if not self._messages or state in ("DEGRADED", "FAILED"):
            return state, message
        return "DEGRADED", next(iter(self._messages))

    def rows(self) -> list[dict[str, str]]:
        """Every message beside its cause."""
        return [{"cause": cause, "message": text} for cause, texts in self._messages.items() for text in texts]


def noting_askers(troubles: Troubles, say: Callable[[str, Mapping[str, Any]], None]) -> Callable[[str | None], None]:
    """Notes why askers get no answer, tells it when it begins, and takes None for its end."""

    def note(problem: str | None) -> None:
        if problem is None:
            troubles.over(_UNHEARD)
        elif _UNHEARD not in troubles:
            troubles.begin(_UNHEARD, [problem])
            say("unheard", {"state": "DEGRADED", "message": problem})

    return note


def told(conversation: Conversation, troubles: Troubles, phase: str, pid: int | None) -> dict[str, Any]:
    """The answer to `shipper status`; no secrets. `phase` and `pid` are the sidecar's."""
    state, message = troubles.whole(conversation.observed)
    return {
        "state": state,
        "message": message,
        "troubles": troubles.rows(),
        "supervisor": {"pid": os.getpid(), "version": __version__},
        "sidecar": {"state": phase, "pid": pid, "http": conversation.ready.http if conversation.ready else None},
        "wanted": list(conversation.ledger.at),
        "observed": msgspec.to_builtins(conversation.observed),
        "credentials": [
            {name: getattr(one, name) for name in ("id", "name", "sources", "units", "released")}
            | {"current": one.id in conversation.ledger.ids}
            for one in conversation.ledger.kept.values()
        ],
    }
