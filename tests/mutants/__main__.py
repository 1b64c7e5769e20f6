"""`python -m tests.mutants`: put each fault into a copy of the tree, and see which test notices.

Exit status 1 if one survives, hangs, does not apply any more, or could not be checked.

`--generated` takes the faults that rules make of the program, rather than those made by hand; NAMES are then modules or
folders, such as `shipper/pipeline/memory/slots.py`. One that survives is a question, which is listed, and no failure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants import generated
from tests.mutants.mutant import Mutant, all_mutants
from tests.mutants.source import Program
from tests.mutants.table import HEADINGS, Table, listing, listing_of_generated, report, report_of_generated, summary
from tests.mutants.tree import ROOT
from tests.mutants.trial import KEPT, KEPT_GENERATED, Fault, Kept, Result, sound, trial


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    status = _by_rule(options) if options.generated else _by_hand(options)
    if status is None:
        parser.error(f"there are no mutants of {', '.join(options.names)}")
    return status


def _by_hand(options: argparse.Namespace) -> int | None:
    """The exit status; None: there are no such mutants."""
    mutants = generated.drawn(_chosen(options.names), options.seed, options.count)
    if options.list or not mutants:
        print(listing(mutants))
        return 0 if mutants else None
    if (results := _results(mutants, options, KEPT)) is None:
        return 1
    print(summary(results))
    if options.report is not None:
        options.report.write_text(report(mutants, results))
    return 0 if all(result.settlement == "killed" for result in results.values()) else 1


def _by_rule(options: argparse.Namespace) -> int | None:
    """As `_by_hand`, but what is left is listed, and no failure; nor is an import that a fault breaks."""
    mutants = generated.generated(Program(ROOT), ROOT, options.names, seed=options.seed, count=options.count)
    if options.list or not mutants:
        print(listing_of_generated(mutants))
        return 0 if mutants else None
    if (results := _results(mutants, options, KEPT_GENERATED)) is None:
        return 1
    left = [mutant for mutant in mutants if results[mutant.name].settlement == "survived"]
    print(listing_of_generated(left))
    print(summary(results))
    if options.report is not None:
        options.report.write_text(report_of_generated(left, results))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of mutants, or of their files (default: all)")
    parser.add_argument("--generated", action="store_true", help="those that rules make")
    parser.add_argument("--count", type=int, metavar="N", help="only N of them, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("--fresh", action="store_true", help="try again what was tried before")
    parser.add_argument("--state", type=Path, help="where results are kept")
    parser.add_argument("--report", type=Path, help="write a fragment of Markdown")
    return parser


def _chosen(names: Sequence[str]) -> list[Mutant]:
    everything = all_mutants()
    if not names:
        return everything
    wanted = tuple(name.rstrip("/") for name in names)
    return [one for one in everything if one.name in wanted or one.name.startswith(tuple(f"{n}/" for n in wanted))]


def _results(mutants: Sequence[Fault], options: argparse.Namespace, state: Path) -> dict[str, Result] | None:
    """Try them, but for what is known already, and print each; None if a check fails without any fault."""
    kept = Kept(options.state or state)
    if not options.fresh:
        kept.load()
    untried = list(kept.untried(mutants))
    if untried and (failed := sound(untried)):
        print(f"without any fault, this fails: {failed}")
        return None
    table, results = Table(mutants), {mutant.name: found for mutant in mutants if (found := kept.get(mutant))}
    print(table.row(HEADINGS))
    for mutant in mutants:
        if mutant.name in results:
            print(table.of(mutant, results[mutant.name]))
    for mutant, result in _tried(untried, options.jobs):
        kept.put(mutant, result)
        results[mutant.name] = result
        print(table.of(mutant, result), flush=True)
    return results


def _tried(mutants: Sequence[Fault], jobs: int) -> Iterator[tuple[Fault, Result]]:
    program = Program(ROOT)
    if jobs == 1:
        yield from ((mutant, trial(mutant, program)) for mutant in mutants)
        return
    with ThreadPoolExecutor(jobs) as threads:
        under_way = {threads.submit(trial, mutant, program): mutant for mutant in mutants}
        for future in as_completed(under_way):
            yield under_way[future], future.result()


if __name__ == "__main__":
    sys.exit(main())
