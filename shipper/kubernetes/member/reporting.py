"""What the status of a member says, and when it is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from shipper.apiserver.objects import Object
from shipper.kubernetes.kinds import MemberStatus, PolicyReport, SecretVersion
from shipper.kubernetes.member.choosing import Nacks
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.entries import Entries
from shipper.kubernetes.member.memory import Part
from shipper.kubernetes.member.pace import Pace


class Reporting:
    """The pace of the writes, and the last one."""

    def __init__(self, lease: float) -> None:
        self.pace = Pace()
        self.is_last = False
        """Whether the member ends, so that a figure which would be written a lease later is never written."""
        self._lease = lease
        self._sent: MemberStatus | None = None
        self._answered: MemberStatus | None = None
        self._at = 0.0

    def due(self, status: MemberStatus, there: MemberStatus, now: float) -> float | None:
        """Returns when a status is to be written; None if the API server has all of it."""
        if self._sent is None or there != self._answered or _news(status) != _news(self._sent):
            return self.pace.next_at(now)
        if status.undelivered != self._sent.undelivered:
            return self.pace.next_at(now) if self.is_last else self._at + self._lease
        return None

    def wrote(self, status: MemberStatus, there: MemberStatus, now: float) -> None:
        """A status was written, and the API server shows this."""
        self._sent, self._answered, self._at = status, there, now
        self.pace.wrote(now)

    def doubt(self) -> None:
        """It is unknown whether the last status is there."""
        self._sent = None


def _news(status: MemberStatus) -> MemberStatus:
    return replace(status, process="", undelivered=0)


def patch(uid: str, version: str, status: MemberStatus) -> Object:
    """Returns the merge-patch that writes a status over a version."""
    return {"metadata": {"uid": uid, "resourceVersion": version}, "status": msgspec.to_builtins(status)}


def reports(
    entries: Entries, running: Mapping[str, Part], draft: Iterable[Part], contents: Contents, nacks: Nacks
) -> tuple[PolicyReport, ...]:
    """Returns the entries of what runs, and of what is announced before it runs for the first time."""
    versions = {uid: _versions(part, contents) for uid, part in running.items()}
    found = {one.uid: one for one in entries.reports(versions, nacks)}
    for part in draft:
        before = entries.by_uid.get(part.uid)
        if before is None or before.removed:
            found[part.uid] = PolicyReport(
                name=part.name,
                uid=part.uid,
                generation=part.generation,
                first=before is None,
                secrets=_versions(part, contents),
                nack=found[part.uid].nack if part.uid in found else None,
            )
    return tuple(sorted(found.values(), key=lambda one: (one.name, one.uid)))


def _versions(part: Part, contents: Contents) -> tuple[SecretVersion, ...]:
    found = sorted({(one.secret, one.uid, one.version) for one in contents.of(part.contents)})
    return tuple(SecretVersion(name=name, uid=uid, resource_version=at) for name, uid, at in found)
