"""What is known of directories that were followed by another one under the name of a member.

A lost directory may come back, with events and contents. So what it said last stays in the status, until a person
deletes the ShipperMember, or it comes back itself.
"""

from __future__ import annotations

from shipper.kubernetes.kinds import Lost, MemberStatus, PolicyReport

MOST = 32
"""Lost directories that a status lists; the oldest are joined to one, under the name of the last of them."""


def directory_of(process: str) -> str:
    """Returns the directory that a `status.process` names."""
    return process.partition("/")[0]


def saves_of(process: str) -> int:
    """Returns how often the memory was saved before a status was written."""
    count = process.rpartition(".")[2]
    return int(count) if count.isascii() and count.isdigit() and len(count) < 19 else 0


def losses(found: MemberStatus, directory: str) -> tuple[Lost, ...]:
    """Returns what the status of a directory has to list, where this one is in its place."""
    lost = [one for one in found.lost if directory_of(one.process) != directory]
    if directory_of(found.process) not in ("", directory) and _counts(found):
        lost.append(
            Lost(process=found.process, undelivered=found.undelivered, policies=_open(found), using=found.using)
        )
    while len(lost) > MOST:
        lost[:2] = [_joined(lost[0], lost[1])]
    return tuple(lost)


def _counts(found: MemberStatus) -> bool:
    return bool(found.undelivered or found.using or found.state != "left")


def _open(found: MemberStatus) -> tuple[PolicyReport, ...]:
    return tuple(one for one in found.policies if not (one.removed and one.stage == "drained"))


def _joined(one: Lost, other: Lost) -> Lost:
    named = {entry.uid for entry in other.policies}
    policies = [*(entry for entry in one.policies if entry.uid not in named), *other.policies]
    return Lost(
        process=other.process,
        undelivered=one.undelivered + other.undelivered,
        policies=tuple(policies),
        using=tuple(dict.fromkeys([*one.using, *other.using])),
    )
