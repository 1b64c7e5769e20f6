"""Judges a transcript by the laws of a fleet (see the package)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from shipper.fleet.records import Head, Report, Version
from shipper.fleet.standings import OPENING
from tests.march.kind import Violation
from tests.simulation.fleets.transcript import Answer, Reached, Transcript, Written

STAGES = ("received", "active", "drained")
LINE = 0.3
"""Seconds within which a sidecar reads a line."""


def judge(transcript: Transcript) -> list[Violation]:
    """Returns what was promised and did not hold."""
    laws = (_triples, _answers, _releases, _fences, _tokens, _stages, _reasons)
    return [violation for law in laws for violation in law(transcript)]


def _name(machine: str) -> str:
    return machine.partition("#")[0]


def _restored_between(transcript: Transcript, begin: float, end: float) -> bool:
    return any(begin <= at <= end for at in transcript.restored)


def _is_doubtful(transcript: Transcript, machine: str, at: float) -> bool:
    return at >= transcript.doubtful.get(_name(machine), math.inf)


def _triples(transcript: Transcript) -> Iterator[Violation]:
    contents: dict[Version, str] = {}
    given = [*transcript.published, *((each.version, each.content) for each in transcript.received)]
    for version, content in given:
        if contents.setdefault(version, content) != content:
            yield Violation("L1", f"{version} has two contents")
    numbers = [version[:2] for version, _ in transcript.published]
    for number in {number for number in numbers if numbers.count(number) > 1}:
        if not transcript.restored:
            yield Violation("L1", f"two publishers were given {number}")


def _answers(transcript: Transcript) -> Iterator[Violation]:
    begun: dict[str, float] = {}
    for at, machine, *_ in sorted([(each.at, each.machine) for each in transcript.received]):
        begun.setdefault(machine, at)
    when = _when(transcript)
    for answer in transcript.answers:
        if answer.verdict.state != "open":
            continue
        judged = _registered_since_the_restore(transcript, answer)
        named = {standing.name.partition("/")[0] for standing in answer.verdict.members}
        for machine, since in begun.items():
            if max(since, _knows(transcript, machine)) >= answer.asked:
                continue
            if _name(machine) in named or _is_doubtful(transcript, machine, answer.at):
                continue
            if judged is not None and machine not in judged:
                continue
            if _reached(when[machine], answer) > answer.at:
                yield Violation("L2", f"{_text(answer)}, and {machine} has not reached it")


def _text(answer: Answer) -> str:
    verdict = answer.verdict
    return (
        f"{verdict.version} {verdict.stage} was {verdict.state} at {answer.at:.3f} for who asked at {answer.asked:.3f}"
    )


def _when(transcript: Transcript) -> Mapping[str, Sequence[Reached]]:
    """Returns what each machine has reached."""
    found: dict[str, list[Reached]] = defaultdict(list)
    for each in transcript.reached:
        found[each.machine].append(each)
    return found


def _reached(reached: Sequence[Reached], answer: Answer) -> float:
    """Returns when a machine had reached what the answer is about."""
    triple, stage = answer.verdict.triple, STAGES.index(answer.verdict.stage)
    assert triple is not None
    return min(
        (each.at for each in reached if STAGES.index(each.stage) >= stage and each.version[:2] >= triple[:2]),
        default=math.inf,
    )


def _registered_since_the_restore(transcript: Transcript, answer: Answer) -> frozenset[str] | None:
    """Returns the machines that an answer must know; None for all, if the store was never restored before it.

    A restored store may have lost a member, and the directories that one has lost. It knows those that have registered
    for a later epoch, with the directory that they have then; an answer of the old epoch knows nothing.
    """
    restored = [at for at in transcript.restored if at <= answer.at]
    if not restored:
        return None
    before = max((each.record.epoch for each in transcript.heads if each.at <= restored[-1]), default=0)
    triple = answer.verdict.triple
    if triple is None or triple.epoch <= before:
        return frozenset()
    names = {
        each.record.name  # type: ignore[union-attr]
        for each in transcript.reports
        if restored[-1] < each.at < answer.asked and each.record.epoch == triple.epoch
    }
    newest = {_name(each.machine): each.machine for each in transcript.received if each.at <= answer.asked}
    return frozenset(machine for name, machine in newest.items() if name in names)


def _reasons(transcript: Transcript) -> Iterator[Violation]:
    """An answer that is not open names a member that keeps it so, and says why; it is not behind its own revision."""
    written: dict[str, list[Written]] = defaultdict(list)
    for each in transcript.reports:
        written[each.record.name].append(each)  # type: ignore[union-attr]
    for answer in transcript.answers:
        verdict, triple = answer.verdict, answer.verdict.triple
        if verdict.state not in ("closed", "refused") or triple is None:
            continue
        blocking = [one for one in verdict.members if one.kind not in OPENING]
        if not blocking or not all(one.why for one in blocking):
            yield Violation("L8", f"{_text(answer)} without a reason")
        if _restored_between(transcript, 0.0, answer.at):
            continue
        for one in blocking:
            before = [each for each in written[one.name] if each.at <= answer.at]  # a restore takes revisions back
            known = [each.record for each in before if each.revision <= verdict.at]
            stage = known[-1].stages.get(verdict.stage) if known else None  # type: ignore[union-attr]
            if stage is not None and stage[:2] >= triple[:2]:
                yield Violation("L8", f"{_text(answer)}, and {one.name} is {one.kind}, but had reported it")


def _releases(transcript: Transcript) -> Iterator[Violation]:
    seen: set[str] = set()
    for written in transcript.heads:
        assert isinstance(written.record, Head)
        for id, release in written.record.released.items():
            if release.state == "released" or id in seen:
                continue
            seen.add(id)
            despite = {name.partition("/")[0] for name in release.despite}
            for use in transcript.uses:
                if use.id != id or use.end <= written.at or _name(use.machine) in despite:
                    continue
                if _is_doubtful(transcript, use.machine, use.end) or _restored_between(transcript, 0.0, use.end):
                    continue
                if use.begin < _knows(transcript, use.machine):
                    continue
                text = f"{use.machine} used {id} from {use.begin:.3f} to {use.end:.3f}, begun at {written.at:.3f}"
                yield Violation("L3", text)
                break


def _knows(transcript: Transcript, machine: str) -> float:
    """Returns when a directory that was put back cannot but know that it is too old: once it has written a report, and
    its sidecar has read the withdrawal. Until the store answers, it goes on with what it has under `continue`."""
    replaced = transcript.older.get(machine)
    if replaced is None:
        return 0.0
    written = (each.at for each in transcript.reports if each.record.name == _name(machine) and each.at > replaced)  # type: ignore[union-attr]
    return min(written, default=math.inf) + LINE


def _fences(transcript: Transcript) -> Iterator[Violation]:
    """A fence is that of the newest life of a host."""
    for answer in transcript.answers:
        triple = answer.verdict.triple
        for standing in answer.verdict.members:
            if standing.kind != "fenced" or triple is None or _restored_between(transcript, 0.0, answer.at):
                continue
            for use in transcript.uses:
                if _name(use.machine) != standing.name or use.begin < answer.at:
                    continue
                if _is_doubtful(transcript, use.machine, use.begin):
                    continue
                if not _is_active(transcript, use.machine, triple, use.begin):
                    yield Violation("L4", f"{_text(answer)}, fenced {use.machine} began a request at {use.begin:.3f}")
                    break


def _is_active(transcript: Transcript, machine: str, version: Version, at: float) -> bool:
    return any(
        each.machine == machine and each.stage == "active" and each.version[:2] >= version[:2] and each.at <= at
        for each in transcript.reached
    )


def _tokens(transcript: Transcript) -> Iterator[Violation]:
    highest, at = 0, 0.0
    for written in transcript.heads:
        assert isinstance(written.record, Head)
        if written.record.token < highest and not _restored_between(transcript, at, written.at):
            yield Violation("L6", f"the token fell from {highest} to {written.record.token} at {written.at:.3f}")
        highest, at = written.record.token, written.at
    hosts: dict[int, set[str]] = defaultdict(set)
    for ran in transcript.ran:
        hosts[ran.token].add(ran.host)
        if len(hosts[ran.token]) > 1 and not transcript.restored:
            yield Violation("L6", f"{sorted(hosts[ran.token])} ran commands with token {ran.token}")


def _stages(transcript: Transcript) -> Iterator[Violation]:
    newest: dict[str, dict[tuple[str, int, str], tuple[tuple[int, int], float]]] = defaultdict(dict)
    is_out: dict[str, bool] = {}
    for written in transcript.reports:
        report = written.record
        assert isinstance(report, Report)
        if report.state == "joining" or is_out.get(report.name):
            newest[report.name].clear()
        is_out[report.name] = report.state in ("forgotten", "left")
        for stage in STAGES:
            version = report.stages.get(stage)  # type: ignore[call-overload]
            position = (-1, -1) if version is None else version[:2]
            key = (report.directory, report.epoch, stage)
            before, at = newest[report.name].get(key, ((-1, -1), 0.0))
            if position < before and not _restored_between(transcript, at, written.at):
                yield Violation(
                    "L7", f"{report.name} {stage} went back from {before} to {position} at {written.at:.3f}"
                )
            newest[report.name][key] = position, written.at
