"""`python -m tests.simulation.relayed`: run worlds of edges and principals; exit status 1 if a promise was broken."""

import sys

from tests.march.command import campaign, parser
from tests.simulation.relayed.world import WORLDS

if __name__ == "__main__":
    sys.exit(campaign(WORLDS, parser("tests.simulation.relayed", __doc__).parse_args()))
