"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import math
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import trio

from tests.backends.kubernetes import Kubernetes
from tests.campaign_kubernetes.campaign import Campaign, open_campaign
from tests.campaign_kubernetes.stage import open_kubernetes
from tests.progress import Progress


@click.command()
@click.option("--members", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--edits", default=500, show_default=True, type=click.IntRange(1), help="Of policies.")
@click.option("--rotations", default=20, show_default=True, type=click.IntRange(0), help="Of Secrets.")
@click.option("--restarts", default=1, show_default=True, type=click.IntRange(0), help="Of the API server and of etcd.")
@click.option("--seed", default=1, show_default=True, help="Of the first run; each one has the next.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1))
@click.option("--limit", default=math.inf, help="Begin nothing new after so many seconds.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Work in this directory.")
def main(
    members: int, edits: int, rotations: int, restarts: int, seed: int, runs: int, limit: float, keep: Path | None
) -> None:
    """Let a cluster change all the time, and say what was done and whether all was as it must be: else status 1."""
    failed = 0
    for number in range(seed, seed + runs):
        print(f"-- seed {number}: {members} members, {edits} edits, {rotations} rotations", flush=True)
        with ExitStack() as stack:
            directory = keep / str(number) if keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            directory.mkdir(parents=True, exist_ok=True)
            kubernetes = stack.enter_context(open_kubernetes())
            failed += trio.run(_run, directory, kubernetes, number, members, (edits, rotations, restarts, limit))
    sys.exit(1 if failed else 0)


async def _run(
    directory: Path, kubernetes: Kubernetes, seed: int, members: int, amounts: tuple[int, int, int, float]
) -> int:
    failure: BaseException | None = None
    try:
        async with open_campaign(directory, kubernetes, seed, members) as campaign:
            with Progress(campaign.summary) as tick:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_tell, tick)
                    await _judged(campaign, amounts)
                    nursery.cancel_scope.cancel("the campaign is over")
    except* (AssertionError, Exception) as group:
        failure = group
    for error in _leaves(failure) if failure else ():
        print(f"FAILED (seed {seed}): {type(error).__name__}: {error}", flush=True)
    if failure is None:
        print("all was as it must be", flush=True)
    return 1 if failure else 0


async def _judged(campaign: Campaign, amounts: tuple[int, int, int, float]) -> None:
    try:
        await campaign.run(*amounts)
    finally:
        print(campaign.table(), flush=True)


async def _tell(tick: Progress) -> None:
    while True:
        await trio.sleep(1)
        tick()


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


if __name__ == "__main__":
    main()
