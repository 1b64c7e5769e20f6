"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from tests.hostile.campaign import Progress, march
from tests.hostile.report import again, markdown, summary
from tests.hostile.rounds import Kind, be_quiet, run_round
from tests.progress import Progress as Ticker


@click.command()
@click.option("--frames", default=20_000, show_default=True, help="Lines on the control channel, in all.")
@click.option("--requests", default=20_000, show_default=True, help="Bulk requests, in all.")
@click.option("--seed", default=1, show_default=True)
@click.option("--seconds", default=math.inf, help="Begin no round after so much time.")
@click.option("--jobs", default=1, show_default=True, help="Rounds that run at once, each in a process.")
@click.option("--state", type=click.Path(path_type=Path), help="Go on where this stands (.cache/hostile-SEED.json).")
@click.option("--report", type=click.Path(path_type=Path), help="Write a fragment of Markdown.")
@click.option("--only", nargs=2, type=(click.Choice(["frames", "requests"]), int), help="One round: a kind, a number.")
def main(
    frames: int,
    requests: int,
    seed: int,
    seconds: float,
    jobs: int,
    state: Path | None,
    report: Path | None,
    only: tuple[Kind, int] | None,
) -> None:
    """Send hostile frames and requests, and say how many, how fast, and which rounds failed: then the status is 1."""
    if only is not None:
        progress = Progress(seed)
        be_quiet()
        progress.add(run_round(seed, *only))
    else:
        path = state or Path(".cache") / f"hostile-{seed}.json"
        try:
            progress = Progress.load(path, seed)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        with Ticker(lambda: summary(progress)) as tick:
            for _ in march(progress, {"frames": frames, "requests": requests}, seconds, jobs):
                progress.save(path)
                tick()
    for failure in progress.failures:
        print(f"FAILED: {failure.kind} {failure.round}: {failure.reason}\nagain: {again(failure, seed)}")
    print(summary(progress))
    if report is not None:
        report.write_text(markdown(progress))
    sys.exit(1 if progress.failures else 0)


if __name__ == "__main__":
    main()
