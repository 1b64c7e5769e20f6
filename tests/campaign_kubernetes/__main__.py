"""The command of the campaign; see `campaign`."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaign_kubernetes.campaign import Campaign, open_campaign
from tests.campaign_kubernetes.stage import open_kubernetes
from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Told
from tests.march.played import kind, play


@dataclass(frozen=True)
class Round(Drawn):
    """A cluster with so many members, in which so much changes."""

    seed: int
    members: int
    edits: int
    rotations: int
    restarts: int


def draw(members: int, edits: int, rotations: int, restarts: int, seed: int) -> Round:
    """With the same amounts for each seed."""
    return Round(seed, members, edits, rotations, restarts)


def run(limit: float, keep: Path | None, drawn: Round) -> Told:
    """Lets a cluster change all the time, and looks whether all was as it must be."""

    @asynccontextmanager
    async def opened(directory: Path) -> AsyncIterator[Campaign]:
        with open_kubernetes() as kubernetes:
            async with open_campaign(directory, kubernetes, drawn.seed, drawn.members) as made:
                yield made

    async def change(campaign: Campaign) -> None:
        await campaign.run(drawn.edits, drawn.rotations, drawn.restarts, limit)

    return play(opened, change, keep)


def main() -> int:
    options = parser("tests.campaign_kubernetes", __doc__)
    options.add_argument("--members", type=int, default=5)
    options.add_argument("--edits", type=int, default=500, help="of policies")
    options.add_argument("--rotations", type=int, default=20, help="of Secrets")
    options.add_argument("--restarts", type=int, default=1, help="of the API server and of etcd")
    options.add_argument("--limit", type=float, default=math.inf, help="begin nothing new after so many seconds")
    options.add_argument("--keep", type=Path, help="work in this directory")
    told = options.parse_args()
    amounts = {name: getattr(told, name) for name in ("members", "edits", "rotations", "restarts")}
    command = " ".join(["python -m tests.campaign_kubernetes", *(f"--{name} {n}" for name, n in amounts.items())])
    drawing = partial(draw, *amounts.values())
    return campaign(kind(command, drawing, partial(run, told.limit, told.keep)), told, usual=1)


if __name__ == "__main__":
    sys.exit(main())
