"""`python -m tests.kubernetes.model`: walk through worlds of members; exit status 1 if a law was broken."""

import sys

from tests.kubernetes.model.walking import WALKS
from tests.march.command import campaign, parser

if __name__ == "__main__":
    sys.exit(campaign(WALKS, parser("tests.kubernetes.model", __doc__).parse_args()))
