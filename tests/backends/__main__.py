"""Makes what tests start and is not in the user's cache yet: `python3 -m tests.backends [NAME ...]`.

By default, that is all servers, and for root the Debian that tests boot. It takes some minutes, once. It uses the
standard library only: continuous integration calls it before there is a .venv.
"""

from __future__ import annotations

import os
import signal
import sys

from tests.backends.collector_build import COLLECTOR
from tests.backends.debian import BOOTED
from tests.backends.kubernetes_build import KUBERNETES
from tests.backends.maven import ELASTICSEARCH, KAFKA, OPENSEARCH
from tests.backends.recipe import Recipe, Unavailable

RECIPES = {recipe.name: recipe for recipe in (KAFKA, OPENSEARCH, ELASTICSEARCH, COLLECTOR, KUBERNETES, BOOTED)}
OF_ROOT = {BOOTED.name}


def prepared(recipe: Recipe) -> bool:
    try:
        print(recipe.prepare())
    except Unavailable as why:
        recipe.say(str(why))
        return False
    return True


def main(names: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is unfinished is removed
    os.nice(10)
    mine = RECIPES.keys() if os.geteuid() == 0 else RECIPES.keys() - OF_ROOT
    failed = [name for name in names or sorted(mine) if not prepared(RECIPES[name])]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
