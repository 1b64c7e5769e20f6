"""`python -m tests.simulation`: run worlds, say what they did; exit status 1 if a promise was broken."""

import sys

from tests.march.command import campaign, parser
from tests.simulation.world import WORLDS

if __name__ == "__main__":
    sys.exit(campaign(WORLDS, parser("tests.simulation", __doc__).parse_args()))
