"""Judges the use of secrets: from the releases that objects tell, the transcripts, and the destination's log."""

from __future__ import annotations

from collections.abc import Iterator

from tests.campaign_kubernetes.records import Member, Policy, Use
from tests.campaign_kubernetes.seen import Bound, Seen

NOTICED = 1.5
"""Seconds within which a busy destination notes a request."""


def faults_of_keys(seen: Seen) -> Iterator[str]:
    """Yields all that is wrong with the use of secrets."""
    yield from released_early(seen)
    yield from supplied_after(seen)
    yield from announced_after(seen)
    yield from used_after(seen)
    yield from used_without_lease(seen)
    yield from provisioned_twice(seen)
    yield from mixed(seen)


def released_early(seen: Seen) -> Iterator[str]:
    """What is released, no sidecar holds, unless its lease is over."""
    for bound in seen.bounds:
        for name, transcript in seen.transcripts.items():
            if transcript.sends_until(bound.at) < bound.at + seen.of_clocks:
                continue
            for held in sorted(transcript.holds(bound.at) & bound.spent):
                yield f"{held} was released ({_told(bound)}) while the sidecar of {name} might use it"


def supplied_after(seen: Seen) -> Iterator[str]:
    """What is released is not given to a sidecar that may send; nor may one send that still has it."""
    for name, transcript in seen.transcripts.items():
        for at, id, content in transcript.supplied:
            bound = seen.released.get(content)
            if bound is not None and at > bound.at and transcript.sends_until(at) >= at + seen.of_clocks:
                yield f"the sidecar of {name} was given {content} as {id} {at - bound.at:.3f} s after {_told(bound)}"
        for at, until in transcript.leases:
            if until is not None and until > at + seen.of_clocks and not transcript.had_lease(at, seen.of_clocks):
                for content in transcript.holds(at) & {one for one, bound in seen.released.items() if bound.at < at}:
                    yield f"the sidecar of {name} got a lease at {at:.3f}, and has {content}, which is released"


def announced_after(seen: Seen) -> Iterator[str]:
    """What is released stands in no status that is written afterwards, unless it stood there before."""
    before: dict[str, frozenset[Use]] = {}
    for state in seen.of(Member):
        member = state.record
        assert isinstance(member, Member)
        for use in set(member.using) - before.get(member.name, frozenset()):
            bound = seen.released.get(seen.content_at((use.uid, use.key), use.version))
            if bound is not None and state.version > bound.version:
                yield f"{member.name} announced {use} at version {state.version}, after {_told(bound)}"
        before[member.name] = frozenset(member.using)


def used_after(seen: Seen) -> Iterator[str]:
    """What the destination has forgotten is not used, and nobody is refused."""
    for one in seen.requests:
        revoked = seen.revoked.get(one.key)
        if revoked is not None and one.at > revoked:
            yield f"{one.member} used {one.key} {one.at - revoked:.3f} s after it was revoked: {one.status}"
        elif one.status == 401:
            yield f"{one.member} was refused at {one.at:.3f}, with {one.key or 'an unknown key'}"


def used_without_lease(seen: Seen) -> Iterator[str]:
    """A sidecar that needs a lease sends nothing when it is over."""
    for one in seen.requests:
        transcript = seen.transcripts.get(one.member)
        late = one.at + seen.of_clocks - transcript.sends_until(one.at) if transcript is not None else 0.0
        if late > NOTICED:
            yield f"{one.member} sent {late:.3f} s after its lease, at {one.at:.3f}"


def provisioned_twice(seen: Seen) -> Iterator[str]:
    """What a sidecar has, it does not get under a new number; and it never gets an older edit of a policy."""
    for name, transcript in seen.transcripts.items():
        for before, offer in transcript.provisioned_again():
            yield f"the sidecar of {name} was given {dict(offer.marks)} as {before.revision} and as {offer.revision}"
        newest: dict[str, int] = {}
        for offer in transcript.offers:
            for policy, mark in offer.marks.items():
                if mark.number < newest.get(policy, 0):
                    yield f"the sidecar of {name} was given {policy} {mark.number} after {newest[policy]}"
                newest[policy] = max(mark.number, newest.get(policy, 0))


def mixed(seen: Seen) -> Iterator[str]:
    """What a sidecar gets of a policy is of one generation, and its content is of the key that this one names."""
    edits = {
        (policy.name, policy.mark.number): policy.sends
        for policy in (state.record for state in seen.of(Policy))
        if isinstance(policy, Policy) and policy.mark is not None
    }
    for name, transcript in seen.transcripts.items():
        for offer in transcript.offers:
            for policy, mark in offer.marks.items():
                sends = edits.get((policy, mark.number))
                if sends is None or policy not in offer.sends:
                    continue
                timeout, id = offer.sends[policy]
                secret = offer.contents.get(id, "").rpartition(".")[0]
                if (timeout, secret) != (sends.timeout, f"{sends.secret}.{sends.key}"):
                    yield f"the sidecar of {name} got {policy} {mark.number} with {secret} and {timeout}, not {sends}"


def _told(bound: Bound) -> str:
    return f"{bound.secret} was released before {bound.before}, at version {bound.version}"
