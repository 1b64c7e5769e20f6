"""What a leader knows of all objects, and what of it is to be judged. Pure.

Events of watches change the picture, and mark what they touch as due: a report of a member, the policies in it and the
Secrets that it uses; a change of a member's labels, the policies that select it. Nothing is due because time goes by,
but for Leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shipper.apiserver.objects import Event, name, uid, version
from shipper.apiserver.versions import is_older
from shipper.kubernetes.kinds import LEADER_LEASE, MemberStatus, Using
from shipper.kubernetes.selectors import matches
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.judge import is_drained
from shipper.kubernetes.summing.liveness import Liveness
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.records import Lease, Member, Policy, Release
from shipper.kubernetes.summing.release import registering


class Picture:
    """See the module. Names are those of objects; `now` is of the clock of `Liveness`."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.members: dict[str, Member] = {}
        self.releases: dict[str, Release] = {}
        self.liveness = Liveness()
        self.standings = Standings()
        self.due_policies: set[str] = set()
        self.due_secrets: set[str] = set()
        self.ended: set[str] = set()
        """Members whose Pods are gone."""
        self._named: dict[str, frozenset[tuple[str, str]]] = {}
        """By policy: what it names as credentials."""

    # -- events --------------------------------------------------------------------------------------------------------

    def saw_policy(self, event: Event) -> None:
        """Takes a change of a policy; not one that is older than what is known."""
        of = name(event.object)
        if _is_old(event, self.policies.get(of)):
            return
        before = self._named.pop(of, frozenset())
        if event.type == "DELETED":
            self.policies.pop(of, None)
            self.due_policies.discard(of)
        else:
            self.policies[of] = found = records.policy(event.object)
            self._named[of] = records.named_keys(found.spec.policy) if found.spec and not found.deleted_at else before
            self.due_policies.add(of)
        self.due_secrets |= {secret for secret, _ in before ^ self._named.get(of, frozenset())}

    def saw_member(self, event: Event) -> None:
        """Takes a change of a member."""
        of = name(event.object)
        before, after = self.members.pop(of, None), None
        if event.type != "DELETED":
            self.members[of] = after = records.member(event.object)
        if after is None or (before is not None and before.uid != after.uid):
            self.ended.discard(of)
        self._touch(before, after)
        if before is None or after is None or _identity(before) != _identity(after):
            self.stand()

    def saw_lease(self, event: Event, now: float) -> None:
        """Takes a change of any Lease of the namespace."""
        found = records.lease(event.object)
        if not found.member or found.name == LEADER_LEASE:
            return
        before = self._held(found.member)
        if event.type == "DELETED":
            self.liveness.gone(found.member)
        else:
            self.liveness.saw(found, now)
        if before != self._held(found.member):  # and not a mere renewal
            self.stand()

    def _held(self, member: str) -> tuple[str, str | None]:
        lease = self.liveness.lease(member)
        return self.liveness.standing(member), None if lease is None else lease.holder

    def read_leases(self, found: Iterable[Lease], now: float) -> None:
        """Takes all Leases as a quorum read has them."""
        there = {one.member: one for one in found if one.member}
        for member in self.liveness.members():
            known = self.liveness.lease(member)
            if member not in there:
                self.liveness.gone(member)
            elif known is not None and not is_older(there[member].version, known.version):
                self.liveness.read(there[member], now)
        for member, lease in there.items():
            if self.liveness.lease(member) is None:
                self.liveness.saw(lease, now)
        self.stand()

    def saw_release(self, event: Event) -> None:
        """Takes a change of a ShipperSecret; not one that is older than what is known."""
        of = name(event.object)
        if _is_old(event, self.releases.get(of)):
            return
        if event.type == "DELETED":
            self.releases.pop(of, None)
        else:
            self.releases[of] = records.release(event.object)
        self.due_secrets.add(of)

    # -- what follows --------------------------------------------------------------------------------------------------

    def stand(self) -> None:
        """Judges anew who is alive, and marks what that concerns."""
        before, self.standings = self.standings, self.standing(self.members.values())
        unknown = before.registering != self.standings.registering
        changed = (
            (before.absent ^ self.standings.absent)
            | (before.ended ^ self.standings.ended)
            | (before.unproven ^ self.standings.unproven)
            | (before.registering ^ self.standings.registering)
        )
        for member in changed:
            self._touch(None, self.members.get(member))
        if unknown:
            self.due_policies |= {of for of, one in self.policies.items() if not is_drained(one.status)}
            self.due_secrets |= self.secrets

    def standing(self, members: Iterable[Member]) -> Standings:
        """Returns who is alive among these members, and who registers."""
        listed = [*members]
        known = {member: self.liveness.standing(member) for member in {*self.liveness.members(), *_names(listed)}}
        absent = frozenset(member for member, what in known.items() if what == "absent")
        unproven = frozenset(member for member, what in known.items() if what == "unproven")
        ended = frozenset(self.ended) & absent
        return Standings(absent, unproven, ended, registering(listed, self.leases, absent))

    @property
    def leases(self) -> Mapping[str, Lease]:
        """The Leases by the member's name."""
        return {one: lease for one in self.liveness.members() if (lease := self.liveness.lease(one)) is not None}

    @property
    def secrets(self) -> set[str]:
        """The names of all Secrets that are in use, or were."""
        used = {use.secret for member in self.members.values() for use in _used(member)}
        return used | {secret for keys in self._named.values() for secret, _ in keys} | {*self.releases}

    def keys(self, secret: str) -> frozenset[str]:
        """Returns the keys of a Secret that policies name."""
        return frozenset(key for keys in self._named.values() for of, key in keys if of == secret)

    def _touch(self, before: Member | None, after: Member | None) -> None:
        there = [one for one in (before, after) if one is not None]
        uids = {uid for one in there for uid in _reported(one)}
        unreadable = any(one.status is None for one in there)
        for of, policy in self.policies.items():
            selected = policy.spec and any(matches(policy.spec.members, one.labels) for one in there)
            if selected or unreadable or policy.uid in uids:
                self.due_policies.add(of)
        used_before, used_after = _uses(before), _uses(after)
        self.due_secrets |= self.secrets if unreadable else {one for one, _ in used_before ^ used_after}
        if before is None:
            self.due_secrets |= {one for one, _ in used_after}


def _is_old(event: Event, known: Policy | Release | None) -> bool:
    """Whether an event comes after the answer to an own write, or to a read, that shows a newer state."""
    if known is None or (known.uid != uid(event.object) and event.type != "DELETED"):
        return False
    return known.uid != uid(event.object) or is_older(version(event.object), known.version)


def _identity(member: Member) -> tuple[str, str | None]:
    """What of a member decides who is alive and who registers."""
    return member.uid, None if member.status is None else member.directory


def _names(members: Iterable[Member]) -> set[str]:
    return {one.name for one in members}


def _reported(member: Member) -> set[str]:
    status = member.status or MemberStatus()
    return {entry.uid for entries in (status.policies, *(one.policies for one in status.lost)) for entry in entries}


def _used(member: Member | None) -> list[Using]:
    status = (member and member.status) or MemberStatus()
    return [use for uses in (status.using, *(one.using for one in status.lost)) for use in uses]


def _uses(member: Member | None) -> set[tuple[str, tuple[str, ...]]]:
    """What delays a Secret: with the fence and the state, which decide whether it does."""
    if member is None or member.status is None:
        return set()
    how = (member.uid, member.status.fence, member.status.state, member.status.process)
    return {(use.secret, (use.uid, use.key, use.resource_version, *how)) for use in _used(member)}
