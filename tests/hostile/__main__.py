"""`python -m tests.hostile`: send hostile frames and requests; exit status 1 if a round failed."""

import sys

from tests.hostile.rounds import ROUNDS
from tests.march.command import campaign, parser

if __name__ == "__main__":
    sys.exit(campaign(ROUNDS, parser("tests.hostile", __doc__).parse_args()))
