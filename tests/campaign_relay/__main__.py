"""The command of the campaign; see `campaign`. Each round is of the next kind, of all that there are."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaign_relay.campaign import Campaign, Options, opened
from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Told
from tests.march.played import kind, play

KINDS = [
    Options(delivers=delivers, principals=principals, far=far, back=back)
    for back in ("none", "edges", "principals", "both")
    for principals, far in ((1, False), (2, False), (1, True))
    for delivers in (False, True)
]


@dataclass(frozen=True)
class Round(Drawn):
    """One of the kinds."""

    seed: int
    options: Options


def draw(seed: int) -> Round:
    """The kinds take turns."""
    return Round(seed, KINDS[seed % len(KINDS)])


def run(seconds: float, keep: Path | None, drawn: Round) -> Told:
    """Relays through faults for so long, and looks whether all arrived as it must."""

    async def harm(campaign: Campaign) -> None:
        await campaign.run(seconds)

    return play(lambda directory: opened(directory, drawn.seed, drawn.options), harm, keep)


def main() -> int:
    options = parser("tests.campaign_relay", __doc__)
    options.add_argument("--harm", type=float, default=30.0, help="seconds for which links and processes fail")
    options.add_argument("--keep", type=Path, help="work in this directory")
    told = options.parse_args()
    command = f"python -m tests.campaign_relay --harm {told.harm:g}"
    return campaign(kind(command, draw, partial(run, told.harm, told.keep)), told, usual=1)


if __name__ == "__main__":
    sys.exit(main())
