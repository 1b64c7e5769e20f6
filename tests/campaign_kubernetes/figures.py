"""The table at the end of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.campaign_kubernetes.judges import unrecorded, writes_of_policies
from tests.campaign_kubernetes.records import Content, Member, Policy
from tests.campaign_kubernetes.seen import Seen


class Delays(NamedTuple):
    """Seconds from a change until something could be read of it."""

    observed: list[float]
    """A generation that no other one followed before: until a leader has observed it."""
    drained: list[float]
    """Such a generation: until it is drained."""
    released: list[float]
    """A rotation: until its bound."""


def delays(seen: Seen) -> Delays:
    """Returns what the history shows."""
    return Delays([*_observed(seen, drained=False)], [*_observed(seen, drained=True)], [*_released(seen)])


def _observed(seen: Seen, *, drained: bool) -> Iterator[float]:
    open_since: dict[str, dict[int, float]] = {}
    for state in seen.of(Policy):
        policy = state.record
        assert isinstance(policy, Policy)
        waiting = open_since.setdefault(policy.uid, {})
        reached = policy.drained() if drained else policy.observed
        if policy.generation not in waiting:
            waiting.clear()
        if policy.generation > reached:
            waiting.setdefault(policy.generation, state.at)
        for generation in [one for one in waiting if one <= reached]:
            yield state.at - waiting.pop(generation)


def _released(seen: Seen) -> Iterator[float]:
    written = {state.version: state.at for state in seen.of(Content)}
    for of, contents in seen.contents.items():
        bounds = [bound for bound in seen.bounds if bound.of == of]
        for version, _ in contents[1:]:
            first = next((bound for bound in bounds if bound.before >= version), None)
            if first is not None and version in written:
                yield first.at - written[version]


Row = tuple[str, str]


def table(
    seen: Seen, done: Counter[str], calm: Sequence[float], copies: Collection[int], more: Iterable[Row] = ()
) -> str:
    """Returns the figures of a run, a line each."""
    found, writes = delays(seen), writes_of_policies(seen)
    written, generations = (sum(one) for one in zip(*writes.values(), strict=True)) if writes else (0, 0)
    of_members = Counter(write.name for write in seen.writes if write.resource == "shippermembers" and write.code < 300)
    conflicts = sum(write.code == 409 for write in seen.writes)
    leaders = {write.token for write in seen.writes if write.name == "shipper-leader" and write.holder}
    rows = [
        ("done", ", ".join(f"{count} {what}" for what, count in sorted(done.items()))),
        ("generations", f"{len(seen.marks)}, of which leaders have seen {generations}"),
        ("writes of policies' status", f"{written}, {written / max(1, generations):.2f} for a generation seen"),
        ("writes of members", f"{dict(of_members)}; {_states(seen)} versions"),
        ("writes answered 409", f"{conflicts} of {len(seen.writes)}"),
        ("terms of leaders", f"{len(leaders)}"),
        ("versions that the audit log lacks", f"{unrecorded(seen)}"),
        ("last edit until observed, s", spread(found.observed)),
        ("last edit until drained, s", spread(found.drained)),
        ("rotation until released, s", spread(found.released)),
        ("rest after a round, s", spread(calm)),
        ("policies that sidecars got", f"{ ({name: len(one.offers) for name, one in seen.transcripts.items()}) }"),
        ("contents released / revoked", f"{len(seen.released)} / {len(seen.revoked)}"),
        ("requests at the destination", f"{len(seen.requests)}, {_refused(seen)} refused"),
        ("lines sent more than once", f"{sum(one > 1 for one in copies)} of {len(copies)}: an answer was lost"),
        *more,
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _states(seen: Seen) -> int:
    return sum(1 for _ in seen.of(Member))


def _refused(seen: Seen) -> int:
    return sum(one.status == 401 for one in seen.requests)


def spread(seconds: Iterable[float]) -> str:
    """Returns percentiles of seconds, and how many they are."""
    ordered = sorted(seconds)
    if not ordered:
        return "none"
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99)]
    return f"p50 {at[0]:.3f}, p95 {at[1]:.3f}, p99 {at[2]:.3f}, max {ordered[-1]:.3f} ({len(ordered)})"
