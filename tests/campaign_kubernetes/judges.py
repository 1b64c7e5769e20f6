"""Judges what objects say: from their history and the audit log.

Each judge yields a text for each fault, and knows nothing of what was done, nor of the program's code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tests.campaign_kubernetes.audit import Write
from tests.campaign_kubernetes.history import State
from tests.campaign_kubernetes.records import Deleted, Member, Policy, Secret
from tests.campaign_kubernetes.seen import Credential, Seen
from tests.campaign_kubernetes.transcript import STAGES

BORN = 3.0
"""Seconds after its first report for which a judgement may not know a member yet."""
STATUS_WRITES = 5
"""Of a policy, for each of its generations that a leader has seen."""
MORE_WRITES = 20
"""Of a policy, for members that come and go."""


def faults_of_objects(seen: Seen) -> Iterator[str]:
    """Yields all that is wrong with what objects say."""
    yield from differing(seen)
    yield from went_back(seen)
    yield from half_told(seen)
    yield from drained_early(seen)
    yield from gone_early(seen)
    yield from untrue_reports(seen)
    yield from wrong_writers(seen)
    yield from too_many_writes(seen)
    yield from without_reason(seen)


# -- the audit log and etcd --------------------------------------------------------------------------------------------


def differing(seen: Seen) -> Iterator[str]:
    """What the audit log says of a version is what etcd had."""
    states = {state.version: state.record for state in seen.states}
    for write in seen.writes:
        if write.record is not None and write.code < 300 and write.verb != "delete":
            there = states.get(write.version)
            if there is None or isinstance(there, Deleted) or _was_the_last(write.record):
                continue
            if there != write.record:
                told = f"{write.record} in the audit log, {there} in etcd"
                yield f"{write.resource}/{write.name} at {write.version}: {told}"


def _was_the_last(record: object) -> bool:
    """Whether a write has ended the deletion of an object: it has no version of its own."""
    return isinstance(record, Policy) and record.deleting and not record.finalizers


# -- nothing goes back -------------------------------------------------------------------------------------------------


def went_back(seen: Seen) -> Iterator[str]:
    """Generations that were observed, bounds, and the tokens of leaders never go back."""
    figures: dict[tuple[str, ...], int] = {}
    for state in seen.states:
        for what, figure in _rising(state.record):
            if figure < figures.get(what, 0):
                yield f"{' '.join(what)} went back from {figures[what]} to {figure}, at version {state.version}"
            figures[what] = figure
    yield from _bounds_gone(seen)


def _rising(record: object) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(record, Policy):
        named = record.name, record.uid
        yield ("policy", *named, "observedGeneration"), record.observed
        yield ("policy", *named, "leader"), record.leader
        for kind, condition in record.conditions.items():
            yield ("policy", *named, f"condition {kind}"), condition.generation
    if isinstance(record, Secret):
        yield ("secret", record.name, record.uid, "leader"), record.leader
        for one in record.releases:
            yield ("secret", record.name, one.uid, one.key, "releasedBefore"), one.before


def _bounds_gone(seen: Seen) -> Iterator[str]:
    """A bound that was told stays, as long as its object does."""
    told: dict[str, set[Credential]] = {}
    for state in seen.of(Secret):
        assert isinstance(state.record, Secret)
        now = {(one.uid, one.key) for one in state.record.releases if one.before}
        for uid, key in told.get(state.record.uid, set()) - now:
            yield f"secret {state.record.name}: the bound of {uid} {key} has gone, at version {state.version}"
        told[state.record.uid] = now


def half_told(seen: Seen) -> Iterator[str]:
    """A status is of one generation that was there: whoever reads Drained=True there reads it of what was observed."""
    for state in seen.of(Policy):
        policy = state.record
        assert isinstance(policy, Policy)
        if policy.observed > policy.generation:
            yield f"policy {policy.name} observes {policy.observed} of {policy.generation}, at version {state.version}"
        for kind, condition in policy.conditions.items():
            if condition.status == "True" and kind != "Degraded" and condition.generation != policy.observed:
                yield (
                    f"policy {policy.name} is {kind} at {condition.generation} while {policy.observed} is observed, "
                    f"at version {state.version}"
                )


# -- drained -----------------------------------------------------------------------------------------------------------


class _Members:
    """What members have said so far, by their names."""

    def __init__(self) -> None:
        self.now: dict[str, Member] = {}
        self.drained: dict[tuple[str, str], int] = defaultdict(int)
        """By member and policy, the newest generation that it has ever said to be drained."""
        self._born: dict[str, float] = {}

    def take(self, state: State) -> None:
        record = state.record
        if isinstance(record, Deleted) and record.kind == "ShipperMember":
            self.now.pop(record.name, None)
            self._born.pop(record.name, None)
        if isinstance(record, Member):
            self._born.setdefault(record.name, state.at)
            self.now[record.name] = record
            for uid, entry in record.entries.items():
                if entry.stage == "drained":
                    of = record.name, uid
                    self.drained[of] = max(self.drained[of], entry.generation)

    def not_drained(self, policy: Policy, generation: int, at: float) -> Iterator[str]:
        """Yields the members that have to say that it is drained, and have not."""
        for name, member in self.now.items():
            entry = member.entries.get(policy.uid)
            if policy.labels.items() <= member.labels.items() and not policy.deleting:
                if self.drained[name, policy.uid] < generation and at - self._born[name] > BORN:
                    yield f"{name} has said {entry}"
            elif entry is not None and not (entry.removed and entry.stage == "drained"):
                yield f"{name} is not selected any more, and has said {entry}"

    def not_removed(self, policy: Policy) -> Iterator[str]:
        """Yields the members that still have events of a policy that is deleted."""
        for name, member in self.now.items():
            entry = member.entries.get(policy.uid)
            if entry is not None and not (entry.removed and entry.stage == "drained"):
                yield f"{name} has said {entry}"


def drained_early(seen: Seen) -> Iterator[str]:
    """A policy is drained at a generation only after each of its members has said so, and if it can be run."""
    members = _Members()
    told: dict[str, int] = {}
    for state in seen.states:
        members.take(state)
        policy = state.record
        if not isinstance(policy, Policy):
            continue
        generation, before = policy.drained(), told.get(policy.uid, 0)
        told[policy.uid] = generation
        if generation in (0, before):
            continue
        mark = seen.marks.get((policy.uid, generation))
        if mark is not None and mark.bad:
            yield f"policy {policy.name} is drained at {generation}, which nobody can run, at version {state.version}"
        for why in members.not_drained(policy, generation, state.at):
            yield f"policy {policy.name} is drained at {generation}, at version {state.version}, and {why}"


def gone_early(seen: Seen) -> Iterator[str]:
    """A policy whose deletion waits for its events is gone only after each of its members has drained them."""
    members = _Members()
    last: dict[str, Policy] = {}
    for state in seen.states:
        members.take(state)
        record = state.record
        if isinstance(record, Policy):
            last[record.name] = record
        if isinstance(record, Deleted) and record.kind == "ShipperPolicy" and record.name in last:
            policy = last.pop(record.name)
            for why in members.not_removed(policy) if policy.finalizers else ():
                yield f"policy {policy.name} is gone, at version {state.version}, and {why}"


def untrue_reports(seen: Seen) -> Iterator[str]:
    """What a member says of a generation, its sidecar has said before."""
    told: set[tuple[str, str, int, str, bool]] = set()
    names = {state.record.uid: state.record.name for state in seen.of(Policy) if isinstance(state.record, Policy)}
    for state in seen.of(Member):
        member = state.record
        assert isinstance(member, Member)
        if (transcript := seen.transcripts.get(member.name)) is None:
            continue
        for uid, entry in member.entries.items():
            one = member.name, uid, entry.generation, entry.stage, entry.removed
            if one in told or entry.stage not in STAGES or uid not in names:
                continue
            told.add(one)
            if entry.removed:
                is_true = entry.stage != "drained" or transcript.has_dropped(names[uid], state.at)
            else:
                mark = seen.marks.get((uid, entry.generation))
                number = mark.number if mark is not None else 0
                is_true = transcript.has_reached(entry.stage, names[uid], number, state.at)
                is_true = is_true and not (mark is not None and mark.bad)
            if not is_true:
                yield f"{member.name} says of {names[uid]} {entry}, at version {state.version}; its sidecar had not"


# -- who writes, and how often -----------------------------------------------------------------------------------------


def wrong_writers(seen: Seen) -> Iterator[str]:
    """A member writes its own status, and a leader those of policies and secrets; others write none of them."""
    members = {user: name for name, user in seen.users.items()}
    states = {state.version: state for state in seen.states}
    for write in seen.writes:
        if write.code >= 300:
            continue
        member = members.get(write.user)
        where = f"{write.user} wrote {write.resource}/{write.name}/{write.sub}, at version {write.version}"
        if write.resource == "shippermembers":
            wrong = write.name != member if member else write.sub == "status"
        elif write.resource in ("shipperpolicies", "shippersecrets"):
            wrong = (write.sub == "status") != (member is not None) and not _may_also(write, member, states)
        elif write.resource == "leases" and write.name.startswith("shipper-member-"):
            wrong = write.name != f"shipper-member-{member}" and not write.bounds
        else:
            wrong = write.resource == "secrets" and member is not None
        if wrong:
            yield where


def _may_also(write: Write, member: str | None, states: Mapping[int, State]) -> bool:
    """Whether a leader makes or ends the object of a Secret, or sets the finalizers of a policy and nothing else."""
    if member is None or write.resource == "shippersecrets":
        return member is not None
    record, state = write.record, states.get(write.version)
    if not isinstance(record, Policy) or _was_the_last(record) or state is None:
        return isinstance(record, Policy)
    before = _before(state, states)
    return before is None or before._replace(finalizers=()) == record._replace(finalizers=())


def _before(state: State, states: Mapping[int, State]) -> Policy | None:
    """Returns what a policy was before a version."""
    assert isinstance(state.record, Policy)
    older = [one for one in states if one < state.version]
    for version in sorted(older, reverse=True):
        record = states[version].record
        if isinstance(record, Policy) and record.uid == state.record.uid:
            return record
    return None


def writes_of_policies(seen: Seen) -> dict[str, tuple[int, int]]:
    """Returns by policy's uid, how often its status was written, and how many generations leaders have seen.

    What only says that there is another leader does not count.
    """
    writes: Counter[str] = Counter()
    generations: dict[str, set[int]] = defaultdict(set)
    before: dict[str, Policy] = {}
    for state in seen.of(Policy):
        policy = state.record
        assert isinstance(policy, Policy)
        last = before.get(policy.uid)
        if last is not None and last.generation == policy.generation:
            writes[policy.uid] += last._replace(leader=policy.leader, finalizers=policy.finalizers) != policy
        if policy.observed:
            generations[policy.uid].add(policy.observed)
        before[policy.uid] = policy
    return {uid: (writes[uid], len(generations[uid])) for uid in before}


def too_many_writes(seen: Seen) -> Iterator[str]:
    """A burst of generations costs few writes of a status."""
    for uid, (writes, generations) in writes_of_policies(seen).items():
        if writes > STATUS_WRITES * generations + MORE_WRITES:
            yield f"policy {uid}: {writes} writes of its status, for {generations} generations that were seen"


def without_reason(seen: Seen) -> Iterator[str]:
    """What is not drained says why, and for whom it waits."""
    for state in seen.of(Policy):
        policy = state.record
        assert isinstance(policy, Policy)
        condition = policy.conditions.get("Drained")
        if condition is None or condition.status == "True":
            continue
        if not condition.reason or not (policy.waiting or condition.message):
            yield f"policy {policy.name} is not drained without a reason, at version {state.version}: {condition}"
