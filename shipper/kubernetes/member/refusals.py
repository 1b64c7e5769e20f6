"""What the sidecar has refused: a generation of a policy with its contents, or more than one.

A refusal of a vector is that of the policies to which its problems lead. Where they lead to none, it is that of all
that the sidecar was not seen to run before. What is refused is left out, so that it does not hold up other policies; it
counts until its generation or its contents change. What is valid and could not start (`failed`), perhaps because a port
is taken, is tried again now and then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from shipper.kubernetes.kinds import Nack
from shipper.kubernetes.member.memory import Part
from shipper.kubernetes.merging import WHERE, Merge, written
from shipper.sdk.errors import Problem

Reason = Literal["invalid", "conflict", "secret_missing", "unsupported", "failed"]

FIRST_RETRY, LONGEST_RETRY = 30.0, 600.0
"""Seconds until what could not start is tried again."""
MOST = 8
"""Refusals that are remembered of one policy: generations and contents that come back."""
_LONGEST = 2000
_LONGEST_PATH = 1000


@dataclass(frozen=True, slots=True)
class _Refused:
    key: tuple[int, tuple[str, ...]]
    nack: Nack
    until: float
    wait: float


class Refusals:
    """By uid."""

    def __init__(self) -> None:
        self._refused: dict[str, list[_Refused]] = {}

    def of(self, part: Part, now: float) -> Nack | None:
        """Returns why a part is not to be offered now."""
        found = self._find(part)
        return found.nack if found is not None and now < found.until else None

    def again_at(self, now: float) -> float:
        """Returns when something may be tried again; infinite if nothing may."""
        every = (one.until for found in self._refused.values() for one in found)
        return min((until for until in every if until > now), default=inf)

    def refuse(
        self, blamed: Iterable[Part], merge: Merge, reason: str, problems: Sequence[Problem], many: bool, now: float
    ) -> None:
        """These parts of a vector of `many` were refused, or of one alone."""
        for part in blamed:
            own = [problem for problem in problems if merge.owner(problem.path) == part.uid]
            self._add(part, _nack(part, reason, own or problems, many), now)

    def _add(self, part: Part, nack: Nack, now: float) -> None:
        before = self._find(part)
        wait = FIRST_RETRY if before is None else min(LONGEST_RETRY, before.wait * 2)
        new = _Refused((part.generation, part.contents), nack, now + wait if nack.reason == "failed" else inf, wait)
        others = [one for one in self._refused.get(part.uid, []) if one.key != new.key]
        self._refused[part.uid] = [*others, new][-MOST:]

    def accepted(self, parts: Iterable[Part]) -> None:
        """The sidecar runs these: what was refused of them before counts no more."""
        for part in parts:
            key = part.generation, part.contents
            left = [one for one in self._refused.get(part.uid, []) if one.key != key]
            self._refused.pop(part.uid, None)
            if left:
                self._refused[part.uid] = left

    @property
    def ids(self) -> frozenset[str]:
        """The ids of contents in what was refused: with others it would not be the same."""
        return frozenset(id for found in self._refused.values() for one in found for id in one.key[1])

    def retain(self, uids: Collection[str]) -> None:
        """Forgets all other policies."""
        self._refused = {uid: found for uid, found in self._refused.items() if uid in uids}

    def _find(self, part: Part) -> _Refused | None:
        key = part.generation, part.contents
        return next((one for one in self._refused.get(part.uid, []) if one.key == key), None)


def blamed(parts: Sequence[Part], good: Mapping[str, Part], merge: Merge, problems: Sequence[Problem]) -> list[Part]:
    """Returns the parts of a refused vector to which its problems lead, or all that were never seen to run."""
    fresh = [part for part in parts if part != good.get(part.uid)]
    owners = {merge.owner(problem.path) for problem in problems}
    return [part for part in fresh if part.uid in owners] or fresh


def told(generation: int, reason: Reason, message: str, path: str = "") -> Nack:
    """Returns a nack of a bounded size."""
    return Nack(generation=generation, reason=reason, message=message[:_LONGEST], path=path[:_LONGEST_PATH])


def _nack(part: Part, reason: str, problems: Sequence[Problem], many: bool) -> Nack:
    path = written(problems[0].path, part.policy) if problems and problems[0].path else WHERE
    text = problems[0].message if problems else "the sidecar has refused it"
    return told(part.generation, _reason(reason, many), text, path)


def _reason(reason: str, many: bool) -> Reason:
    """Each part was valid alone, so it is the company that is not."""
    if reason.startswith("credential"):
        return "secret_missing"
    if reason == "invalid":
        return "conflict" if many else "invalid"
    return "failed"
