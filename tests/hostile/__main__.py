"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import logging
import math
import os
import sys
from pathlib import Path

import click

from tests.hostile.campaign import Failed, Kind, Progress, campaign, peak, run_round


@click.command()
@click.option("--frames", default=20_000, show_default=True, help="Lines on the control channel, in all.")
@click.option("--requests", default=20_000, show_default=True, help="Bulk requests, in all.")
@click.option("--seed", default=1, show_default=True)
@click.option("--seconds", default=math.inf, help="Stop after the round in which so much time has passed.")
@click.option("--only", nargs=2, type=(click.Choice(["frames", "requests"]), int), help="One round: a kind, a number.")
def main(frames: int, requests: int, seed: int, seconds: float, only: tuple[Kind, int] | None) -> None:
    """Send hostile frames and requests, and say how many, how fast, and which one failed."""
    logging.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the sidecar's log, a line for each policy that it refuses
    path = Path(".cache") / f"hostile-{seed}.json"
    wanted: dict[Kind, int] = {"frames": frames, "requests": requests}
    try:
        if only is not None:
            progress = Progress()
            getattr(progress, only[0]).rounds = only[1]
            run_round(seed, only[0], progress)
            print(told(progress))
            return
        for progress in campaign(seed, wanted, seconds, path):
            print(told(progress), flush=True)
    except Failed as failed:
        print(f"FAILED: {failed.why[:4000]}")
        print(f"again: python -m tests.hostile --seed {seed} --only {failed.kind} {failed.round}")
        sys.exit(1)


def told(progress: Progress) -> str:
    """One line of figures."""
    frames, requests = progress.frames, progress.requests
    return (
        f"{frames.done:,} frames ({frames.rate:,.0f}/s), {requests.done:,} requests ({requests.rate:,.0f}/s), "
        f"at most {peak() >> 20} MiB"
    )


main()
