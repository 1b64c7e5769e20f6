"""`python -m tests.simulation.fleets`: run worlds with a fleet; exit status 1 if a law was broken."""

import sys

from tests.march.command import campaign, parser
from tests.simulation.fleets.world import WORLDS

if __name__ == "__main__":
    sys.exit(campaign(WORLDS, parser("tests.simulation.fleets", __doc__).parse_args()))
