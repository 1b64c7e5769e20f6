"""What is said of a campaign: one line, as often as one wants it, and a fragment of Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hostile.campaign import Failure, Progress


def summary(progress: Progress) -> str:
    """One line of figures; rates are those of one process."""
    frames, requests = progress.sums["frames"], progress.sums["requests"]
    return (
        f"{frames.sent.done:,} frames ({frames.rate:,.0f}/s), {requests.sent.done:,} requests ({requests.rate:,.0f}/s) "
        f"on {requests.sent.connections:,} connections, at most {progress.peak >> 20} MiB, "
        f"{len(progress.failures)} rounds failed"
    )


def again(failure: Failure, seed: int) -> str:
    """The command that shows a failure."""
    return f"python -m tests.hostile --seed {seed} --only {failure.kind} {failure.round}"


def markdown(progress: Progress) -> str:
    """A fragment: figures, kinds, answers, failures."""
    frames, requests = progress.sums["frames"].sent, progress.sums["requests"].sent
    parts = [
        f"Seed {progress.seed}: {summary(progress)}; rates are those of one process.",
        _table("frames", frames.kinds),
        _table("connections", requests.kinds),
        _table("answers of the receiver", requests.answers),
        *(f"- {f.kind} {f.round}: {f.reason}\n  again: `{again(f, progress.seed)}`" for f in progress.failures),
    ]
    return "\n\n".join(parts) + "\n"


def _table(name: str, times: Mapping[str, int]) -> str:
    rows = [f"| {kind} | {count:,} |" for kind, count in sorted(times.items())]
    return "\n".join([f"| {name} | times |", "|---|---:|", *rows])
