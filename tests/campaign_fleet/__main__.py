"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import trio

from tests.backends import etcd as server
from tests.campaign_fleet.campaign import Campaign, opened_campaign
from tests.progress import Progress


@click.command()
@click.option("--hosts", default=5, show_default=True, type=click.IntRange(2, 50))
@click.option("--seconds", default=60.0, show_default=True, help="How long everything fails, in each run.")
@click.option("--seed", default=1, show_default=True, help="Of the first run; each one has the next.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1))
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Work in this directory.")
def main(hosts: int, seconds: float, seed: int, runs: int, keep: Path | None) -> None:
    """Lead a fleet through faults, and say what was done and whether all was as it must be: else the status is 1."""
    failed = 0
    for number in range(seed, seed + runs):
        print(f"-- seed {number}: {hosts} hosts, {seconds:g} s", flush=True)
        with ExitStack() as stack:
            directory = keep / str(number) if keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            directory.mkdir(parents=True, exist_ok=True)
            etcd = stack.enter_context(server.cluster(3))
            failed += trio.run(_run, directory, etcd, number, hosts, seconds)
    sys.exit(1 if failed else 0)


async def _run(directory: Path, etcd: server.Etcd, seed: int, hosts: int, seconds: float) -> int:
    failure: BaseException | None = None
    try:
        async with opened_campaign(directory, etcd, seed, hosts) as campaign:
            with Progress(campaign.summary) as tick:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_tell, tick)
                    await _judged(campaign, seconds)
                    nursery.cancel_scope.cancel("the campaign is over")
    except* (AssertionError, Exception) as group:
        failure = group
    for error in _leaves(failure) if failure else ():
        print(f"FAILED (seed {seed}): {type(error).__name__}: {error}", flush=True)
    if failure is None:
        print("all was as it must be", flush=True)
    return 1 if failure else 0


async def _judged(campaign: Campaign, seconds: float) -> None:
    try:
        await campaign.run(seconds)
    finally:
        print(campaign.summary(), flush=True)


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
