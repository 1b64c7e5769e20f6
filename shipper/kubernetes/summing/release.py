"""What of a Secret is released: bounds that never go back. Pure.

The order of reads makes a bound true. The leader reads the Secret, and has its version R; after that it lists members,
and their Leases after those. A member announces a content, and reads the Secret after that. So of a content that is not
in the list, its member reads the Secret after R was the version, and uses what is current then.

- What a member lists under `using` has the newest version at which the content was current. So the oldest of these
  versions, and at most R, is a bound: whoever uses a content of before it uses the same one as at it. A change of
  labels alone raises R, and members write their versions anew, which the bound waits for.
- A Secret that is gone, or in whose place there is another uid, has the version at which that was read as its R. No
  content is current at it, so the bound comes to it when nobody uses the old ones any more.
- A member with `fence: hold` and a Lease that is over does not count once the bound stands in its Lease: that was
  written on the state that was over, so a renewal fails until the member has heeded it. `Decision.fences` is what has
  to be written first.
- A lost directory counts, since it may come back with what it has; a member that has ended does not.
- A member that may live and has not said what it uses delays all: one with a Lease and without a ShipperMember, for
  example.
- Without the right to read a Secret, the versions that members report are bounds all the same: each of them was the
  version of the Secret at some time before the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from shipper.apiserver.versions import compare, is_covered, is_older
from shipper.kubernetes.kinds import Blocking, Released, SecretStatus, Using
from shipper.kubernetes.kinds import Release as Bound
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.records import Lease, Member

MOST_HISTORY = 64
MOST_BLOCKING = 50
MOST_GONE = 32
"""Keys of Secrets that are no longer there, and that nobody uses."""
MOST_BOUNDS = 200


@dataclass(frozen=True)
class Secret:
    """What a read by quorum has said of a Secret; nothing of its content."""

    name: str
    version: str
    """Of the object; of the list without it, if it is gone; empty if there is no right to read it."""
    uid: str = ""
    """Empty if it is gone."""

    @property
    def is_unknown(self) -> bool:
        """Whether it could not be read."""
        return not self.version


@dataclass(frozen=True)
class View:
    """What was read after the Secret, in this order."""

    members: Sequence[Member]
    leases: Mapping[str, Lease]
    """By the member's name."""
    standings: Standings


@dataclass(frozen=True)
class Decision:
    """What a leader writes."""

    status: SecretStatus
    """It is that which was given if nothing has changed."""
    fences: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Bounds by `UID/KEY`, for the Leases of these members; with them written, more may be released."""


@dataclass(frozen=True)
class _Use:
    member: str
    version: str
    reason: str
    fence: Lease | None = None
    """The Lease that is over, of a member that holds then."""

    def is_fenced(self, place: str, bound: str) -> bool:
        """Whether the member will heed the bound of a place before it uses anything again."""
        return self.fence is not None and is_covered(bound, self.fence.bounds.get(place, ""))


def release(secret: Secret, view: View, before: SecretStatus, now: str, named: Iterable[str] = frozenset()) -> Decision:
    """Returns what is released of a Secret.

    `named` are its keys in policies, which have a bound though nobody uses them. `now` is the time for the history, as
    RFC 3339 has it.
    """
    uses = _uses(secret.name, view)
    known = {(one.uid, one.key): one for one in before.credentials}
    wanted = {*known, *uses, *((secret.uid, key) for key in named if secret.uid)}
    obstacles = _unknown(view)
    bounds, blocking = [], [*obstacles]
    fences: dict[str, dict[str, str]] = {}
    for uid, key in sorted(wanted):
        old = known.get((uid, key)) or Bound(secret.name, uid, key)
        deleted = old.deleted if secret.is_unknown else uid != secret.uid
        found = uses.get((uid, key), [])
        at, held = _bound(secret.version, found, f"{uid}/{key}")
        if obstacles or at is None or not _is_rise(old.released_before, at):
            at = old.released_before
        bounds.append(replace(old, released_before=at, deleted=deleted))
        for use in found:
            newest = secret.version or _newest(found)
            if not is_covered(newest, use.version) and not use.is_fenced(f"{uid}/{key}", newest):
                blocking.append(Blocking(use.member, key, use.version, use.reason))
        for member in held:
            fences.setdefault(member, {})[f"{uid}/{key}"] = secret.version
    kept = _kept(bounds, uses)
    status = SecretStatus(
        credentials=kept,
        blocked_by=tuple(blocking[:MOST_BLOCKING]),
        history=_history(before, kept, known, now),
        leader=before.leader,
    )
    return Decision(status, fences)


def _bound(version: str, uses: Sequence[_Use], place: str) -> tuple[str | None, list[str]]:
    """Returns the bound that may be written now, if any, and the members that have to be fenced for a higher one."""
    free = _lowest(version, [use for use in uses if use.fence is None])
    if free is None:
        return None, []
    held = [use for use in uses if use.fence is not None and not is_covered(free, use.version)]
    open = [use for use in held if not use.is_fenced(place, free)]
    return (_lowest(free, open) if open else free), ([] if not version else sorted({use.member for use in open}))


def _lowest(version: str, uses: Sequence[_Use]) -> str | None:
    """Returns the oldest of the versions; None if there is none, or no order among them."""
    lowest = version
    for use in uses:
        order = compare(use.version, lowest) if lowest else -1
        if order is None:
            return None
        lowest = use.version if order < 0 else lowest
    return lowest or None


def _newest(uses: Sequence[_Use]) -> str:
    newest = ""
    for use in uses:
        newest = use.version if not newest or is_older(newest, use.version) else newest
    return newest


def _is_rise(old: str, new: str) -> bool:
    """Whether a bound may follow another one: opaque versions have no order, and the one read later is newer."""
    return not old or compare(old, new) in (-1, None)


def _uses(secret: str, view: View) -> dict[tuple[str, str], list[_Use]]:
    found: dict[tuple[str, str], list[_Use]] = {}

    def add(using: Using, use: _Use) -> None:
        if using.secret == secret:
            found.setdefault((using.uid, using.key), []).append(use)

    for member in view.members:
        if member.status is None or member.name in view.standings.ended:
            continue
        absent, left = member.name in view.standings.absent, member.status.state == "left"
        reason = "Left" if left else "Absent" if absent else "Using"
        lease = view.leases.get(member.name)
        fenced = lease if absent and not left and member.status.fence == "hold" else None
        for using in member.status.using:
            add(using, _Use(member.name, using.resource_version, reason, fenced))
        for lost in member.status.lost:
            for using in lost.using:
                add(using, _Use(f"{member.name}/{lost.process.partition('/')[0]}", using.resource_version, "Lost"))
    return found


def _unknown(view: View) -> list[Blocking]:
    unreadable = {member.name for member in view.members if member.status is None} - view.standings.ended
    registering = view.standings.registering - unreadable
    found = [(name, "Unreadable") for name in unreadable] + [(name, "Registering") for name in registering]
    return [Blocking(name, reason=reason) for name, reason in sorted(found)]


def _kept(bounds: Sequence[Bound], uses: Mapping[tuple[str, str], Sequence[_Use]]) -> tuple[Bound, ...]:
    """Returns the bounds without those of deleted Secrets that are too many."""
    over = [one for one in bounds if one.deleted and (one.uid, one.key) not in uses]
    over.sort(key=lambda one: (len(one.released_before), one.released_before))
    dropped = {(one.uid, one.key) for one in over[: max(0, len(over) - MOST_GONE)]}
    return tuple(one for one in bounds if (one.uid, one.key) not in dropped)[:MOST_BOUNDS]


def _history(
    before: SecretStatus, bounds: Iterable[Bound], known: Mapping[tuple[str, str], Bound], now: str
) -> tuple[Released, ...]:
    new = tuple(
        Released(one.key, one.released_before, now, one.uid)
        for one in bounds
        if one.released_before
        and ((one.uid, one.key) not in known or known[one.uid, one.key].released_before != one.released_before)
    )
    return (*before.history, *new)[-MOST_HISTORY:]


# -- who registers, for policies, too ----------------------------------------------------------------------------------


def registering(members: Iterable[Member], leases: Mapping[str, Lease], absent: Iterable[str]) -> frozenset[str]:
    """Returns the members that may live and have not said what they have: their Lease is not known to be over, and
    there is no status, or it is that of another directory than the one that holds the Lease."""
    by_name = {member.name: member for member in members}
    over = frozenset(absent)
    return frozenset(
        name
        for name, lease in leases.items()
        if name not in over and lease.holder and _says_nothing(by_name.get(name), lease)
    )


def _says_nothing(member: Member | None, lease: Lease) -> bool:
    return member is None or (member.status is not None and member.directory != lease.directory)
