"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.backends import etcd as server
from tests.campaign_fleet.campaign import Campaign, opened_campaign
from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Told
from tests.march.played import kind, play


@dataclass(frozen=True)
class Round(Drawn):
    """A fleet of so many hosts."""

    seed: int
    hosts: int


def draw(hosts: int, seed: int) -> Round:
    """With so many hosts."""
    return Round(seed, hosts)


def run(seconds: float, keep: Path | None, drawn: Round) -> Told:
    """Leads a fleet through faults for so long, and looks whether all is as it must be."""

    @asynccontextmanager
    async def opened(directory: Path) -> AsyncIterator[Campaign]:
        with server.cluster(3) as etcd:
            async with opened_campaign(directory, etcd, drawn.seed, drawn.hosts) as made:
                yield made

    async def harm(campaign: Campaign) -> None:
        await campaign.run(seconds)

    return play(opened, harm, keep)


def main() -> int:
    options = parser("tests.campaign_fleet", __doc__)
    options.add_argument("--hosts", type=int, default=5)
    options.add_argument("--harm", type=float, default=60.0, help="seconds for which everything fails")
    options.add_argument("--keep", type=Path, help="work in this directory")
    told = options.parse_args()
    command = f"python -m tests.campaign_fleet --hosts {told.hosts} --harm {told.harm:g}"
    return campaign(kind(command, partial(draw, told.hosts), partial(run, told.harm, told.keep)), told, usual=1)


if __name__ == "__main__":
    sys.exit(main())
