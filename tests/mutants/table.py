"""What is printed: a row for each mutant as it is tried, a summary, and a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.mutants.mutant import Mutant
from tests.mutants.trial import Fault, Result

HEADINGS = ("mutant", "kind", "killed by", "seconds")


class Table:
    """Rows whose columns stand below each other, though they are printed one by one."""

    def __init__(self, mutants: Sequence[Fault]) -> None:
        self._widths = (max([len(mutant.name) for mutant in mutants], default=0), 8, 100)

    def row(self, cells: tuple[str, str, str, str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells[:3], self._widths, strict=True)]
        return "  ".join([*padded, cells[3].rjust(7)])

    def of(self, mutant: Fault, result: Result) -> str:
        """The row of a result."""
        return self.row((mutant.name, mutant.kind, _words(result), f"{result.seconds:.1f}"))


def _words(result: Result) -> str:
    if result.settlement == "killed":
        return f"{result.by} (not by its own check)" if result.wider else result.by
    return f"{result.settlement.upper()} {result.by}".rstrip()


def summary(results: Mapping[str, Result]) -> str:
    """In one line, and the names of those that were not killed."""
    counts = Counter(result.settlement for result in results.values())
    settlements = ("killed", "survived", "hung", "stale", "broken")
    told = ", ".join(f"{counts[settlement]} {settlement}" for settlement in settlements)
    seconds = sum(result.seconds for result in results.values())
    left = [name for name, result in results.items() if result.settlement != "killed"]
    return f"{len(results)} mutants, {told}, {seconds:.0f} s" + (f"; look at: {', '.join(left)}" if left else "")


def listing(mutants: Sequence[Mutant]) -> str:
    """What there is, without trying it."""
    return "\n".join(
        f"{mutant.name}\n    breaks     {mutant.kind} {mutant.breaks}\n    fault      {mutant.fault}\n"
        + (f"    resembles  {mutant.resembles}\n" if mutant.resembles else "")
        + f"    killed by  {mutant.check}"
        for mutant in mutants
    )


def report(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> str:
    """A fragment of Markdown: what each fault breaks, and the check that noticed."""
    ordered = sorted(mutants, key=lambda mutant: (mutant.kind, mutant.name))
    rows = [_cells(one.kind, one.fault, one.resembles, _words(results[one.name])) for one in ordered]
    head = [_cells("breaks", "fault", "resembles", "killed by"), "|---|---|---|---|"]
    return "\n".join([summary(results), "", *head, *rows, ""])


def report_of_generated(left: Sequence[Fault], results: Mapping[str, Result]) -> str:
    """A fragment of Markdown: the faults that no test noticed."""
    rows = [_cells(one.name, f"`{one.fault}`", f"`{one.check}`") for one in left]
    head = [_cells("survived", "fault", "tests"), "|---|---|---|"]
    return "\n".join([summary(results), "", *head, *rows, ""])


def listing_of_generated(mutants: Sequence[Fault]) -> str:
    """What each fault is, and the tests that it is tried with."""
    return "\n".join(f"{one.name}\n    {one.fault}\n    {one.check}" for one in mutants)


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
