"""Judges a campaign: from the transcripts of the members, the answers, and what the backend and the store have seen.

Each function yields one text for each fault, and knows nothing of what was done.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shipper.fleet.judge import Verdict
from shipper.fleet.records import Version
from shipper.fleet.standings import OPENING
from shipper.process.environment import boottime
from tests.campaign_fleet.transcript import Transcript, What

NOTICED = 1.5
"""Seconds within which a busy backend notes a request."""


class Published(NamedTuple):
    """A version that the store has had."""

    version: Version
    at: float
    """Not later than the instant at which it was published."""
    what: What | None
    """None if nobody could read it in time."""


class Answer(NamedTuple):
    """An answer of `wait`, at the instant at which somebody had it."""

    at: float
    verdict: Verdict
    asked: str


class Use(NamedTuple):
    """A request at the backend."""

    at: float
    member: str
    key: str
    status: int


class Revoked(NamedTuple):
    """A key that was revoked."""

    at: float
    why: str
    id: str
    excepted: Collection[str]
    """Members that the answer had named."""


@dataclass
class Seen:
    """What the judges may look at."""

    transcripts: dict[str, Transcript] = field(default_factory=dict)
    joined: dict[str, float] = field(default_factory=dict)
    """When a member said first that it takes part."""
    history: list[Published] = field(default_factory=list)
    promised: list[Version] = field(default_factory=list)
    """What publishers were answered."""
    answers: list[Answer] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    revoked: dict[str, Revoked] = field(default_factory=dict)
    """By key."""


def faults(seen: Seen) -> list[str]:
    """Returns all that is wrong."""
    for transcript in seen.transcripts.values():
        transcript.again()
    early = (fault for answer in seen.answers for fault in opened_early(seen, answer))
    silent = (fault for answer in seen.answers for fault in closed_without_reason(answer))
    uses = (*used_after(seen), *supplied_after(seen), *used_without_lease(seen))
    return [*numbers_of_two(seen), *promises_broken(seen), *early, *silent, *uses]


def numbers_of_two(seen: Seen) -> Iterator[str]:
    """A number is of one version, and of one publisher."""
    digests: dict[tuple[int, int], set[str]] = defaultdict(set)
    for version in [*(one.version for one in seen.history), *seen.promised]:
        digests[version[:2]].add(version.sha256)
    for number, found in digests.items():
        if len(found) > 1:
            yield f"the number {number} is of {len(found)} versions: {sorted(found)}"
    for version in sorted({one for one in seen.promised if seen.promised.count(one) > 1}):
        yield f"two publishers were answered {version}"


def promises_broken(seen: Seen) -> Iterator[str]:
    """What a publisher was answered is in the history, in the order of the numbers."""
    numbers = [one.version[:2] for one in seen.history]
    if numbers != sorted(numbers):
        yield f"the history is not in order: {numbers}"
    for version in {*seen.promised} - {one.version for one in seen.history}:
        yield f"version {version} was answered to a publisher, and was never in the store"


def opened_early(seen: Seen, answer: Answer) -> Iterator[str]:
    """Where an answer opens, each member has said the stage before, or is listed with an exception."""
    verdict = answer.verdict
    if verdict.state != "open" or verdict.triple is None:
        return
    excepted = {one.name for one in verdict.members if one.kind in OPENING}
    for name, transcript in seen.transcripts.items():
        if name in excepted or seen.joined.get(name, answer.at) >= answer.at:
            continue
        if not has_reached(seen.history, transcript, verdict, answer.at):
            yield (
                f"{answer.asked}: version {verdict.triple} {verdict.stage} was open at {answer.at:.3f}, and {name} had "
                f"not said so; it had said {transcript.newest}"
            )


def has_reached(history: Iterable[Published], transcript: Transcript, verdict: Verdict, at: float) -> bool:
    """Whether a transcript has a stage of the verdict's version, or of a newer one, by an instant."""
    assert verdict.triple is not None
    newer = [one for one in history if one.version[:2] >= verdict.triple[:2] and one.at <= at]
    if any(one.what is None for one in newer):
        return True
    for revision, heard, what in transcript.implied(verdict.stage, at):
        for one in newer:
            if one.what == what and (heard >= one.at or not transcript.follows(revision, one.at)):
                return True
    return False


def closed_without_reason(answer: Answer) -> Iterator[str]:
    """Where an answer is closed, it lists a member that keeps it closed, and why."""
    verdict = answer.verdict
    if verdict.state not in ("closed", "refused"):
        return
    closing = [one for one in verdict.members if one.kind not in OPENING]
    if not closing or any(not one.why for one in closing):
        yield f"{answer.asked}: {verdict.state} without a reason: {verdict}"


def used_after(seen: Seen) -> Iterator[str]:
    """What was revoked is not used afterwards, but by members that the answer had named."""
    for use in seen.uses:
        revoked = seen.revoked.get(use.key)
        if revoked is not None and use.at > revoked.at and use.member not in revoked.excepted:
            late = use.at - revoked.at
            yield f"{use.member} used {use.key} {late:.3f} s after it was revoked, for {revoked.why}: {use.status}"
        elif use.status == 401 and (revoked is None or use.member not in revoked.excepted):
            yield f"{use.member} was refused at {use.at:.3f}, with the key {use.key!r}"


def used_without_lease(seen: Seen) -> Iterator[str]:
    """A member that needs a lease sends nothing when it is over."""
    ahead = boottime() - time.monotonic()
    for use in seen.uses:
        transcript = seen.transcripts.get(use.member)
        late = use.at + ahead - transcript.sends_until(use.at) if transcript is not None else 0.0
        if late > NOTICED:
            yield f"{use.member} sent {late:.3f} s after its lease, at {use.at:.3f}"


def supplied_after(seen: Seen) -> Iterator[str]:
    """What was revoked is not given to a sidecar afterwards."""
    revoked: Mapping[str, Revoked] = {one.id: one for one in seen.revoked.values() if one.id}
    for name, transcript in seen.transcripts.items():
        for at, id in transcript.supplied:
            if id in revoked and at > revoked[id].at and name not in revoked[id].excepted:
                yield f"the sidecar of {name} was given {id} {at - revoked[id].at:.3f} s after it was revoked"
