"""Versions that a destination fences again and again: each second one waits. No I/O.

A version that was fenced is sent again above the fence, at once. A destination that keeps to its word takes it then.
One that has a newer version each time, since another writer has the same keys, or since it says so, would have it sent
without end and without a pause. So a key that is fenced twice in a row is held like anything that is refused, and comes
again after a wait; other keys do not wait for it.

Keys are counted in `PLACES`, which some share: then one may wait without need, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from shipper.sdk.answers import Answer, Answers, Outcome
from shipper.sdk.state import Version

PLACES = 1 << 18
REASON = "it has a newer version of a key, each time that it is sent one above that: who else writes it?"

_FREE, _FENCED, _HELD = range(3)


class Fences:
    """What one lane knows of its keys; it takes no memory before there is a fence."""

    def __init__(self) -> None:
        self._known = bytearray()

    def judged(self, versions: Sequence[Version | None], answers: Answers) -> Answers:
        """Returns the answers for these versions; one that is fenced after it was sent again above a fence is held."""
        fenced = {at for at, answer in answers.others.items() if _is_fence(answer)}
        if not (fenced or self._known):
            return answers
        self._known = self._known or bytearray(PLACES)
        held = {}
        for at, version in enumerate(versions):
            place = _place(version)
            if at not in fenced:
                self._known[place] = _FREE
            elif self._known[place] == _FENCED:
                self._known[place] = _HELD
                held[at] = Answer(Outcome.HELD, REASON)
            else:
                self._known[place] = _FENCED
        return Answers(answers.count, {**answers.others, **held}, answers.retry_after, answers.is_stored)


def _is_fence(answer: Answer) -> bool:
    return answer.outcome is Outcome.SUPERSEDED and answer.fence is not None


def _place(version: Version | None) -> int:
    return 0 if version is None else hash((version.owner, version.collection, version.key)) % PLACES
