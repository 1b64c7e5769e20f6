"""`python -m tests.mutants`: put each fault into a copy of the tree, and see which test notices.

Exit status 1 if one survives, does not apply any more, or could not be checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.mutant import Mutant, all_mutants
from tests.mutants.table import HEADINGS, Table, listing, report, summary
from tests.mutants.trial import KEPT, Kept, Result, sound, trial


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="of mutants, or of their directories (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("--fresh", action="store_true", help="try again what was tried before")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th of them")
    parser.add_argument("--state", type=Path, default=KEPT, help="where results are kept")
    parser.add_argument("--report", type=Path, help="write a fragment of Markdown")
    options = parser.parse_args(arguments)
    mutants = _chosen(options.names)[:: options.every]
    if not mutants:
        parser.error(f"no mutant is called {', '.join(options.names)}")
    if options.list:
        print(listing(mutants))
        return 0
    kept = Kept(options.state) if options.fresh else Kept(options.state).load()
    untried = list(kept.untried(mutants))
    if untried and (failed := sound(untried)):
        print(f"without any fault, this fails: {failed}")
        return 1
    table, results = Table(mutants), {mutant.name: found for mutant in mutants if (found := kept.get(mutant))}
    print(table.row(HEADINGS))
    for mutant in mutants:
        if mutant.name in results:
            print(table.of(mutant, results[mutant.name]))
    for mutant, result in _tried(untried, options.jobs):
        kept.put(mutant, result)
        results[mutant.name] = result
        print(table.of(mutant, result), flush=True)
    print(summary(results))
    if options.report is not None:
        options.report.write_text(report(mutants, results))
    return 0 if all(result.settlement == "killed" for result in results.values()) else 1


def _chosen(names: Sequence[str]) -> list[Mutant]:
    everything = all_mutants()
    if not names:
        return everything
    wanted = tuple(name.rstrip("/") for name in names)
    return [one for one in everything if one.name in wanted or one.name.startswith(tuple(f"{n}/" for n in wanted))]


def _tried(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, Result]]:
    if jobs == 1:
        yield from ((mutant, trial(mutant)) for mutant in mutants)
        return
    with ThreadPoolExecutor(jobs) as threads:
        under_way = {threads.submit(trial, mutant): mutant for mutant in mutants}
        for future in as_completed(under_way):
            yield under_way[future], future.result()


if __name__ == "__main__":
    sys.exit(main())
