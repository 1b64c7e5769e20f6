"""Some worlds, one after the other, in any process: what they came to."""

from __future__ import annotations

import gc
import time

from tests.simulation.campaign import Campaign, Tour
from tests.simulation.relayed.scenario import Relayed
from tests.simulation.relayed.world import run


def tour(seeds: range) -> Tour:
    """Run these worlds."""
    sums, told = Campaign(next_seed=seeds.stop), []
    for seed in seeds:
        began = time.process_time()
        outcome = run(Relayed.draw(seed))
        sums.add(outcome, time.process_time() - began)
        if outcome.violations:
            told.append(f"seed {seed}: {sums.failures[str(seed)]}")
    gc.collect()
    return Tour(sums, told)
