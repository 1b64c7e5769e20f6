"""What a member says of each policy: the generation that it runs, its stage, and why it does not run a newer one.

A generation is in many vectors, one after the other. Its stage is that of the first of them in a row: the sidecar's
answer to a vector holds for all before it. So an entry names the first vector with its generation, or the first one
without the policy; then it is *removed*, and stays until its events are drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from shipper.kubernetes.kinds import STAGES, Nack, PolicyReport, SecretVersion, Stage
from shipper.kubernetes.member.memory import Entry, Memory, Part

_MOST_CHANGES = 16


class Entries:
    """By uid."""

    def __init__(self, memory: Memory) -> None:
        self.by_uid = {one.uid: one for one in memory.entries}
        self.reached: dict[str, int] = dict(memory.reached)
        """The newest vector that has come to each stage."""

    def with_vector(self, number: int, parts: Iterable[Part]) -> dict[str, Entry]:
        """Returns the entries as they are once this vector is offered."""
        running = {part.uid: part for part in parts}
        entries = {uid: self._entry(self.by_uid.get(uid), part, number) for uid, part in running.items()}
        for uid, entry in self.by_uid.items():
            if uid not in running:
                gone = replace(entry, removed=True, since=number, before=self._undrained(entry))
                entries[uid] = entry if entry.removed else gone
        return entries

    def _entry(self, before: Entry | None, part: Part, number: int) -> Entry:
        if before is None:
            return Entry(part.name, part.uid, part.generation, number, first=True)
        if before.generation == part.generation and not before.removed:
            return before
        return Entry(part.name, part.uid, part.generation, number, before=self._undrained(before))

    def _undrained(self, entry: Entry) -> tuple[int, ...]:
        """Returns the changes of a policy that are not drained; of many, those in the middle are left out."""
        found = [number for number in _changes(entry) if number > self.reached.get("drained", 0)]
        return (*found[:1], *found[1:][-_MOST_CHANGES:])

    def answered(self, number: int, stage: Stage) -> None:
        """The sidecar has answered to a vector; an answer implies the stages before it."""
        for each in STAGES[: STAGES.index(stage) + 1]:
            self.reached[each] = max(number, self.reached.get(each, 0))

    def stage(self, entry: Entry) -> Stage:
        """Returns the stage of an entry."""
        reached: list[Stage] = [stage for stage in STAGES if self.reached.get(stage, 0) >= entry.since]
        return reached[-1] if reached else "announced"

    def finish(self, keep: Iterable[str]) -> None:
        """Drops what was removed and is drained, but for the uids to keep."""
        kept = set(keep)
        self.by_uid = {
            uid: one
            for uid, one in self.by_uid.items()
            if uid in kept or not one.removed or self.stage(one) != "drained"
        }

    def reports(
        self, secrets: Mapping[str, tuple[SecretVersion, ...]], nacks: Mapping[str, tuple[str, Nack]]
    ) -> tuple[PolicyReport, ...]:
        """Returns the entries of the status; both mappings are by uid, the names of policies stand with the nacks."""
        found = [self._report(one, secrets.get(one.uid, ()), nacks.get(one.uid)) for one in self.by_uid.values()]
        found += [
            PolicyReport(name=name, uid=uid, generation=0, first=True, nack=nack)
            for uid, (name, nack) in nacks.items()
            if uid not in self.by_uid
        ]
        return tuple(sorted(found, key=lambda one: (one.name, one.uid)))

    def _report(self, one: Entry, secrets: tuple[SecretVersion, ...], refused: tuple[str, Nack] | None) -> PolicyReport:
        return PolicyReport(
            name=one.name,
            uid=one.uid,
            generation=0 if one.removed and refused is not None else one.generation,
            stage=self.stage(one),
            first=one.first,
            removed=one.removed,
            secrets=secrets,
            waits_for=() if self.stage(one) == "drained" else self._waits_for(one),
            nack=refused[1] if refused is not None else None,
        )

    def _waits_for(self, one: Entry) -> tuple[str, ...]:
        """Returns the other policies with a change that is not drained, and came with that of this one or before."""
        drained = self.reached.get("drained", 0)
        found = {
            other.name
            for other in self.by_uid.values()
            if other.uid != one.uid and any(drained < number <= one.since for number in _changes(other))
        }
        return tuple(sorted(found - {one.name}))


def _changes(entry: Entry) -> tuple[int, ...]:
    """Returns the vectors with changes of a policy, as far as they are known."""
    return (*entry.before, entry.since)
