"""The status for `shipper status`: the sidecar's observation, and the troubles of the supervisor.

The sidecar does not know of invalid files, or of an `on_release` that fails: it stays HEALTHY. So the whole is DEGRADED
while the supervisor has troubles, unless the sidecar is worse. A sidecar with a status server gets them (`supervision`)
in a key of `observe`, which others ignore, so that its server shows the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from shipper import __version__
from shipper.protocol.messages import Observed
from shipper.status.health import hindered
from shipper.supervise.conversation import Conversation
from shipper.supervise.ledger import Kept, Wait

UNABLE = "the sidecar cannot start"
UNSERVED = "there is no status server"
UNSAVED = "the state cannot be saved"
ABSENT = "nothing runs until every secret is present"
KEYLESS = "nothing runs until the state key is present"
UNHEARD = "some questions get no answer"
HUNG = "the watchdog is not fed"
_KINDS = {
    UNABLE: "sidecar",
    UNSERVED: "http",
    UNSAVED: "state",
    ABSENT: "secret",
    KEYLESS: "state_key",
    UNHEARD: "askers",
    HUNG: "state",
}
_MOST = 10
"""Messages of one cause: a directory of policies may have many mistakes."""


class Troubles:
    """The present troubles of the supervisor: causes in words (`on_release fails for es-1`), each with its messages."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when a cause begins or ends."""
        self._messages: dict[str, list[str]] = {}
        self._kinds: dict[str, str] = {}
        """The kind of each cause, one of `messages.TROUBLES`."""
        self._changed = changed

    def begin(self, cause: str, messages: Iterable[str], *, kind: str | None = None) -> None:
        """Sets the messages of a cause; `kind` may be omitted for the causes of this module."""
        self._kinds[cause] = kind or _KINDS.get(cause, "other")
        self._messages[cause] = [text.encode(errors="replace").decode() for text in islice(messages, _MOST)]
        self._changed()

    def over(self, cause: str) -> bool:
        """Removes a cause; returns whether it was present."""
        was = self._messages.pop(cause, None) is not None
        self._kinds.pop(cause, None)
        if was:
            self._changed()
        return was

    def __contains__(self, cause: str) -> bool:
        return cause in self._messages

    def whole(self, observed: Observed | None) -> tuple[str, str]:
        """Returns state and message of the whole; UNKNOWN until a sidecar has sent an observation."""
        state, message, code = (observed.state, observed.message, observed.code) if observed else ("UNKNOWN", "", "")
        return hindered(state, message, code, ((self._kinds[cause], cause) for cause in self._messages))

    def rows(self) -> list[dict[str, str]]:
        """Returns every message with its cause."""
        return [
            {"kind": self._kinds[cause], "cause": cause, "message": text}
            for cause, texts in self._messages.items()
            for text in texts
        ]


class Everywhere:
    """The troubles of several members, for a cause that concerns all of them."""

    def __init__(self, of_each: Sequence[Troubles]) -> None:
        self._of_each = of_each

    def begin(self, cause: str, messages: Iterable[str], *, kind: str | None = None) -> None:
        """As `Troubles.begin`, for each."""
        known = list(islice(messages, _MOST))
        for troubles in self._of_each:
            troubles.begin(cause, known, kind=kind)

    def over(self, cause: str) -> bool:
        """As `Troubles.over`, for each; returns whether any had it."""
        had = [troubles for troubles in self._of_each if troubles.over(cause)]
        return bool(had)


def invalid(source: str) -> str:
    """Returns the cause for a source without a valid policy; its kind is `policy`."""
    return f"{source} are not a valid policy"


def unrevoked(id: str) -> str:
    """Returns the cause for a credential whose `on_release` fails."""
    return f"on_release fails for {id}"


def noting_askers(troubles: Troubles, say: Callable[[str, Mapping[str, Any]], None]) -> Callable[[str | None], None]:
    """Returns a callback for `questions.serve` that records and reports why questions get no answer; None ends that."""

    def note(problem: str | None) -> None:
        if problem is None:
            troubles.over(UNHEARD)
        elif UNHEARD not in troubles:
            troubles.begin(UNHEARD, [problem])
            say("unheard", {"state": "DEGRADED", "message": problem})

    return note


def supervision(
    conversation: Conversation,
    troubles: Troubles,
    restarts: int,
    directory: Path,
    waiting: Mapping[str, Wait] = MappingProxyType({}),
    paths: Sequence[Path] = (),
) -> dict[str, Any]:
    """Returns the `messages.Supervision` for the sidecar's status server.

    `directory` is the state directory, and `paths` are those of the policy, for commands to copy. `waiting` are the
    released credentials that wait: they cannot be revoked yet, and so do not count as released.

    The places that secrets are read from are left out, since that server may answer anybody on this host.
    """
    return {
        "troubles": troubles.rows(),
        "restarts": restarts,
        "unrevoked": sum(one.id not in waiting for one in conversation.ledger.pending),
        "version": __version__,
        "pid": os.getpid(),
        "directory": _written(directory),
        "policy": [_written(path) for path in paths],
        "wanted": list(conversation.ledger.at),
        "credentials": [
            *(
                one | {"released": one["released"] and one["id"] not in waiting} | _waits(waiting.get(one["id"]))
                for one in _credentials(conversation, ("id", "name", "units", "released", "shared"))
            ),
            *({name: one[name] for name in one if name != "sources"} for one in _absent(conversation)),
        ],
    }


def _written(path: Path) -> str:
    return os.fspath(path.absolute()).encode(errors="replace").decode()


def gone(kept: Kept, *, revoked: bool) -> dict[str, Any]:
    """Returns a credential that is being forgotten, as a `messages.Known` with its sources.

    `revoked`: by `on_release`, or by others.
    """
    known = {"id": kept.id, "name": kept.name, "sources": list(kept.sources), "units": [], "shared": kept.shared}
    return {**known, "released": True, "revoked": revoked, "current": False}


def _waits(wait: Wait | None) -> dict[str, str]:
    return {} if wait is None else {"waits_for": wait.id, "waits_until": wait.until}


def _absent(conversation: Conversation) -> Iterator[Mapping[str, Any]]:
    """Yields the forgotten credentials, but none that came back, or whose name one has that is known."""
    kept = conversation.ledger.kept
    names = {one.name for one in kept.values()} - {""}
    return (one for one in conversation.ledger.gone if one["id"] not in kept and one["name"] not in names)


def _credentials(conversation: Conversation, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {name: getattr(one, name) for name in names} | {"current": one.id in conversation.ledger.ids}
        for one in conversation.ledger.kept.values()
    ]


def status(
    conversation: Conversation,
    troubles: Troubles,
    phase: str,
    pid: int | None,
    restarts: int = 0,
    waiting: Mapping[str, Wait] = MappingProxyType({}),
    paths: Sequence[Path] = (),
) -> dict[str, Any]:
    """Returns the answer to `shipper status`; no secrets. `phase`, `pid` and `restarts` are the sidecar's, `paths`
    those of the policy.

    Of the forgotten credentials (`Ledger.gone`) it has those that a person can revoke, since no `on_release` did. A
    released one that is `waiting` has the id of the one that it waits for, `waits_for`, and `waits_until` that is
    `released` or `accepted`.
    """
    state, message = troubles.whole(conversation.observed)
    return {
        "state": state,
        "message": message,
        "running": True,
        "troubles": troubles.rows(),
        "supervisor": {"pid": os.getpid(), "version": __version__, "policy": [_written(path) for path in paths]},
        "sidecar": {
            "state": phase,
            "pid": pid,
            "http": conversation.ready.http if conversation.ready else None,
            "restarts": restarts,
        },
        "wanted": list(conversation.ledger.at),
        "observed": msgspec.to_builtins(conversation.observed),
        "credentials": [
            *(
                one | _waits(waiting.get(one["id"]))
                for one in _credentials(conversation, ("id", "name", "sources", "units", "released", "shared"))
            ),
            *(one for one in _absent(conversation) if not one["revoked"]),
        ],
    }
