"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

import click
import trio

from tests.campaign_relay.campaign import Campaign, Options, opened
from tests.progress import Progress

BACK: Final = ("none", "edges", "principals", "both")
KINDS = [
    Options(delivers=delivers, principals=principals, far=far, back=back)
    for back in BACK
    for principals, far in ((1, False), (2, False), (1, True))
    for delivers in (False, True)
]


@click.command()
@click.option("--minutes", default=1.0, show_default=True, help="How long links and processes fail, in each run.")
@click.option("--seed", default=1, show_default=True, help="Of the first run; each one has the next.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1))
@click.option("--mixed", is_flag=True, help="Each run is of the next kind, of all that there are.")
@click.option("--delivered", is_flag=True, help="Principals confirm what is delivered, not what is stored.")
@click.option("--principals", default=1, show_default=True, type=click.IntRange(1, 2))
@click.option("--far", is_flag=True, help="The one principal relays to another one, which delivers.")
@click.option("--back", default="none", type=click.Choice(BACK), help="Whose state directories go back, or are lost.")
@click.option("--keep", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Work in this directory.")
def main(
    minutes: float,
    seed: int,
    runs: int,
    mixed: bool,
    delivered: bool,
    principals: int,
    far: bool,
    back: Literal["none", "edges", "principals", "both"],
    keep: Path | None,
) -> None:
    """Relay through faults, and say what was done and whether all of it arrived as it must: else the status is 1."""
    if far and principals > 1:
        raise click.UsageError("--far is for one principal: two would give each key two owners")
    if keep and runs > 1:
        raise click.UsageError("--keep is for one run")
    failed = 0
    for number in range(runs):
        options = KINDS[number % len(KINDS)] if mixed else Options(delivered, principals, far, back)
        print(f"-- seed {seed + number}: {options}", flush=True)
        with tempfile.TemporaryDirectory(prefix="campaign-relay-") as directory:
            failed += trio.run(_run, keep or Path(directory), minutes * 60, seed + number, options)
    sys.exit(1 if failed else 0)


async def _run(directory: Path, seconds: float, seed: int, options: Options) -> int:
    failure: BaseException | None = None
    async with opened(directory, seed, options) as campaign:
        with Progress(campaign.summary) as tick:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_tell, tick)
                    await campaign.run(seconds)
                    nursery.cancel_scope.cancel("the campaign is over")
            except* (AssertionError, Exception) as group:
                failure = group
        _report(campaign, seed, failure)
    return 1 if failure else 0


async def _tell(tick: Progress) -> None:
    while True:
        await trio.sleep(1)
        tick()


def _report(campaign: Campaign, seed: int, failure: BaseException | None) -> None:
    print(campaign.summary(), *campaign.closing, sep="\n")
    for error in _leaves(failure) if failure else ():
        print(f"FAILED (seed {seed}): {type(error).__name__}: {error}")
    if failure is None:
        print("every line and the last word of every key is at the backend")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


if __name__ == "__main__":
    main()
