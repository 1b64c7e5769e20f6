"""What keeps a member from taking part, as its host shows it: causes, each with what happened and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from shipper.apiserver.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized
from shipper.apiserver.reflector import uncounted
from shipper.kubernetes.member.machine import Member
from shipper.membership.causes import Causes

UNREACHABLE, REFUSED, OUTDATED = "unreachable", "refused", "crd_outdated"
"""The API server does not answer; it refuses; it does not know what this program writes."""
UNSAVED, APART, TAKEN, OUT, HELD, WAITS = "unsaved", "apart", "name_taken", "left", "held", "waits"
UNWATCHED, LABELS = "unwatched", "labels"

WAITS_SECONDS = 3.0
"""For which something may keep a policy from being run before that is a trouble: each new one waits to be judged."""

_PLACES = {"apart": APART, "taken": TAKEN, "out": OUT}
_REMEDY = {
    APART: "this member runs on and acknowledges nothing; if another supervisor has a copy of its directory, stop one "
    "of them, or give it another `member`",
    TAKEN: "nothing is taken over before that lease is over; stop the other one, or give one of them another `member`",
    OUT: "restart this supervisor to register again",
}
_CRDS = "apply the CustomResourceDefinitions of this version of shipper (packaging/kubernetes/crds)"


class CrdOutdated(ApiError):
    """What was written is not in the answer: the CustomResourceDefinition is older than this program."""


class Troubles(Causes[ApiError]):
    """What keeps a member of Kubernetes from taking part, or from seeing changes."""

    of_failures = (UNREACHABLE, REFUSED, OUTDATED)

    def __init__(self, show: Callable[[str, str | None], None]) -> None:
        """`show` gets a cause, and a message or None."""
        super().__init__(show)
        self._watches: dict[str, str] = {}
        self._waiting: dict[tuple[str, str], float] = {}
        """Since when each policy waits for something."""

    @staticmethod
    def cause_of(error: ApiError) -> str:
        """Returns the cause of a failed call."""
        if isinstance(error, CrdOutdated):
            return OUTDATED
        return REFUSED if isinstance(error, Forbidden | Unauthorized | NotFound | Invalid) else UNREACHABLE

    @staticmethod
    def in_words(error: ApiError) -> str:
        """Returns what happened, and the remedy where the error has none."""
        return f"{error}; {_CRDS}" if isinstance(error, NotFound | Invalid | CrdOutdated) else str(error)

    def watch(self, what: str, message: str | None) -> None:
        """Notes that changes of something are not seen; None: it is over."""
        if message is None:
            self._watches.pop(what, None)
        else:
            self._watches[what] = uncounted(message)
        self._put(UNWATCHED, "; ".join([*self._watches.values()][:3]) or None)

    def unsaved(self, message: str | None) -> None:
        """Notes that the disk took nothing; None: it is over."""
        self._put(UNSAVED, message)

    def look_at(self, member: Member, now: float) -> float:
        """Notes what the state of a member keeps it from; returns when to look again if nothing changes."""
        standing = member.standing
        for place, cause in _PLACES.items():
            self._put(cause, f"{standing.why}; {_REMEDY[cause]}" if standing.place == place else None)
        self._put(HELD, f"nothing is sent without a lease: {member.held}" if member.held else None)
        self._waiting = {one: self._waiting.get(one, now) for one in member.running.waits}
        shown = [one for one, since in self._waiting.items() if now >= since + WAITS_SECONDS]
        self._put(WAITS, waiting(shown))
        young = (since + WAITS_SECONDS for since in self._waiting.values() if now < since + WAITS_SECONDS)
        return min(young, default=inf)


def waiting(waits: Sequence[tuple[str, str]]) -> str | None:
    """Returns what policies wait for, in a sentence; None if none does."""
    shown = [f"policy {name}: {why}" for name, why in waits[:5]]
    more = [f"and {len(waits) - 5} more policies"] if len(waits) > 5 else []
    return "; ".join([*shown, *more]) or None
