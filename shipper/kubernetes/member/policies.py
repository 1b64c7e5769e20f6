"""The policies of the namespace, as the watch and reads have shown them: the newest generation of each uid.

A burst of generations costs nothing but the last one. An object that is deleted and created again has another uid, and
is another policy. One that waits for its finalizers selects nobody any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from shipper.apiserver.objects import Event, Listing, Object, created, generation, is_deleted, name, uid, version
from shipper.apiserver.versions import compare, is_covered, is_number
from shipper.kubernetes.kinds import PolicySpec, Requirement, Selector
from shipper.kubernetes.member.overtaking import Overtaking
from shipper.kubernetes.member.steps import Judge, Judgement
from shipper.kubernetes.selectors import matches
from shipper.sdk.codes import Code

AGAIN = 10.0
"""Seconds until a generation is judged again whose problem may pass without a change of it."""
_PASSING = (Code.FILE_UNREADABLE, Code.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Known:
    """A policy at its newest generation."""

    name: str
    uid: str
    generation: int
    created: str
    version: str
    selector: Selector
    policy: Mapping[str, Any] = field(repr=False)
    is_deleted: bool = False
    problem: str = ""
    """Why its spec cannot be read."""

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.generation


class Policies:
    """By uid."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.synced = False
        """Whether all were shown once."""
        self.reading = Overtaking()
        self._floor = ""
        """All changes up to it are known from a list."""
        self._judged: dict[tuple[str, int], Judgement] = {}
        self._again: dict[tuple[str, int], float] = {}
        """When a generation is judged again: a file that it names may come later."""

    def saw(self, event: Event) -> None:
        """The watch has shown this."""
        if event.type == "SYNCED":
            self.synced = True
            return
        at = version(event.object)
        if is_number(at) and is_covered(at, self._floor):
            return
        self.reading.shown(name(event.object))
        if event.type == "DELETED":
            self._lost(uid(event.object))
        else:
            self._take(event.object)

    def listed(self, listing: Listing) -> None:
        """A list by quorum has these; what the watch has shown meanwhile is not changed by it unless it is newer."""
        self.synced, self._floor = True, listing.version
        for lost in self.known.keys() - {uid(found) for found in listing.items}:
            if not is_covered(listing.version, self.known[lost].version):
                self._lost(lost)
        for found in listing.items:
            if self._is_newer(name(found), found):
                self._take(found)

    def read(self, called: str, found: Object | None) -> bool:
        """A read by quorum of a policy has found this; returns whether that is what is known now."""
        is_newer = self._is_newer(called, found)
        if is_newer is None:
            return False
        if is_newer:
            for lost in [one.uid for one in self.known.values() if one.name == called]:
                if found is None or uid(found) != lost:
                    self._lost(lost)
            if found is not None:
                self._take(found)
        return True

    def _is_newer(self, called: str, found: Object | None) -> bool | None:
        known = self.at(called)
        return self.reading.is_newer(called, found, known.uid if known else "", known.version if known else "")

    def selected(self, labels: Mapping[str, str]) -> list[Known]:
        """Returns the policies that a member with these labels runs, the oldest first."""
        found = [one for one in self.known.values() if not one.is_deleted and matches(one.selector, labels)]
        return sorted(found, key=lambda one: (one.created, one.uid))

    def at(self, called: str) -> Known | None:
        """Returns the policy of a name."""
        return next((one for one in self.known.values() if one.name == called), None)

    # -- judgements ----------------------------------------------------------------------------------------------------

    def judgement(self, one: Known) -> Judgement | None:
        """Returns the judgement of a newest generation; None if there is none yet."""
        return self._judged.get(one.key)

    def unjudged(self, selected: Iterable[Known], now: float) -> Judge | None:
        """Returns the step that judges the next generation."""
        for one in selected:
            if not one.problem and (one.key not in self._judged or now >= self._again.get(one.key, inf)):
                return Judge(one.name, one.uid, one.generation, one.policy)
        return None

    def judged(self, step: Judge, judgement: Judgement, now: float) -> None:
        """A generation was judged; one that is no longer the newest counts no more."""
        known = self.known.get(step.uid)
        if known is None or known.generation != step.generation:
            return
        self._judged[known.key] = judgement
        self._again.pop(known.key, None)
        if any(problem.code in _PASSING for problem in judgement.problems):
            self._again[known.key] = now + AGAIN

    def again_at(self, now: float) -> float:
        """Returns when a generation has to be judged again; infinite if none has."""
        return min((at for at in self._again.values() if at > now), default=inf)

    # ------------------------------------------------------------------------------------------------------------------

    def _take(self, found: Object) -> None:
        before = self.known.get(uid(found))
        if before is not None and compare(version(found), before.version) == -1:
            return
        known = _known(found, before.selector if before is not None else _NOBODY)
        if before is not None and before.generation != known.generation:
            self._forget(before)
        self.known[known.uid] = known

    def _lost(self, lost: str) -> None:
        if (known := self.known.pop(lost, None)) is not None:
            self._forget(known)

    def _forget(self, known: Known) -> None:
        self._judged.pop(known.key, None)
        self._again.pop(known.key, None)


_NOBODY = Selector(match_expressions=(Requirement(key="", operator="In"),))


def _known(found: Object, before: Selector) -> Known:
    """Returns a policy; where its spec cannot be read it selects whom it has selected `before`."""
    problem, spec = "", PolicySpec(policy={}, members=before)
    try:
        spec = msgspec.convert(found.get("spec"), PolicySpec)
    except msgspec.ValidationError as error:
        problem = f"the spec is not as this shipper knows it: {error}"
    return Known(
        name(found),
        uid(found),
        generation(found),
        created(found),
        version(found),
        spec.members,
        spec.policy,
        is_deleted(found),
        problem,
    )
