"""`python -m tests.prove`: run the campaigns, and write the report; exit status 1 if one of them found something."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.prove.report import written
from tests.prove.sizes import CAMPAIGNS, NAMES, ROOT, program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--size", type=float, default=0.01, help="of the whole (default: a hundredth)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: cores)")
    parser.add_argument("--only", choices=NAMES, help="this campaign alone")
    parser.add_argument("--state", type=Path, default=ROOT / ".cache" / "prove", help="where campaigns are kept")
    parser.add_argument("--report", type=Path, default=ROOT / "tests" / "PROOF.md")
    options = parser.parse_args()
    if options.size <= 0 or options.jobs < 1:
        parser.error("a size is above 0, and jobs are 1 or more")
    below = options.state.resolve() / program()
    below.mkdir(parents=True, exist_ok=True)
    failed = []
    try:
        for campaign in CAMPAIGNS:
            if options.only in (None, campaign.name):
                command = campaign.command(options.size, options.jobs, below)
                print(f"-- {campaign.title}: {' '.join(command[1:])}", flush=True)
                if subprocess.run(command, cwd=ROOT).returncode:
                    failed.append(campaign.name)
    except KeyboardInterrupt:
        failed.append("what was interrupted (the same command goes on)")
    options.report.write_text(written(below, options.size))
    print(f"{options.report} is written" + (f"; look at: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
