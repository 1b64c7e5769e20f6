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


class Entries:
    """By uid."""

    def __init__(self, memory: Memory) -> None:
        self.by_uid = {one.uid: one for one in memory.entries}
        self.reached: dict[str, int] = dict(memory.reached)
        """The newest vector that has come to each stage."""

    def with_vector(self, number: int, parts: Iterable[Part]) -> dict[str, Entry]:
        """Returns the entries as they are once this vector is offered."""
        running = {part.uid: part for part in parts}
        entries = {uid: _entry(self.by_uid.get(uid), part, number) for uid, part in running.items()}
        for uid, entry in self.by_uid.items():
            if uid not in running:
                entries[uid] = entry if entry.removed else replace(entry, removed=True, since=number)
        return entries

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
        """Returns the other policies whose newest change came before that of this one, and is not drained."""
        before = {
            other.name
            for other in self.by_uid.values()
            if other.uid != one.uid and other.since < one.since and self.stage(other) != "drained"
        }
        return tuple(sorted(before - {one.name}))


def _entry(before: Entry | None, part: Part, number: int) -> Entry:
    if before is None:
        return Entry(part.name, part.uid, part.generation, number, first=True)
    if before.generation == part.generation and not before.removed:
        return before
    return Entry(part.name, part.uid, part.generation, number)
