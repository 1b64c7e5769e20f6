"""`shipper tap`: shows a sample of the events that pass a point of a running shipper."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shipper.commands import with_state

if TYPE_CHECKING:
    from shipper.control.asking import Answers

_GRACE_SECONDS = 10.0
_LEAVE_SECONDS = 10.0


@click.command("tap", short_help="Show a sample of the events that pass a point.")
@click.argument("point", required=False)
@with_state("The --state of the supervisor, or of `shipper run`.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="End after so many events."
)
@click.option("--for", "duration", default="1m", show_default=True, metavar="DURATION", help="End after so long: 1h.")
@click.option("--rate", default=20, show_default=True, type=click.IntRange(1, 200), help="Events a second at most.")
def command(point: str | None, state: Path, limit: int, duration: str, rate: int) -> int:
    """Show events as they pass an input, a processor or an output, one JSON object a line; without POINT, show where.

    What is shown is a sample, from the moment of the call: the first events of what passes, at most --rate of them a
    second. The shipper never waits for it. Secrets that the shipper knows are hidden; everything else that is in the
    events is shown, so take care where you keep it. Only the user of the shipper and root are answered.

    \b
    Points:
      inputs.NAME                  what an input has read
      inputs.NAME.processors.N     what its N-th processor made, from 0; then those of the policy
      outputs.NAME.processors.N    what the N-th processor of an output made
      outputs.NAME                 what is sent to a destination, again when it is sent again

    \b
    Examples:
      shipper tap --state /var/lib/shipper
      shipper tap outputs.main --state /var/lib/shipper
      shipper tap inputs.access --limit 1000 --for 10m --state /var/lib/shipper | jq .message

    The status is 0 though no event passed, 1 if there is no such point or no shipper runs.
    """
    seconds = _parsed(duration)
    from shipper.control.asking import connected

    with connected(state) as answers:
        if point is not None:
            _watch(answers, {"ask": "watch", "point": point, "limit": limit, "seconds": seconds, "rate": rate})
            return 0
        answers.ask({"ask": "points"})
        for known in (answers.next() or {}).get("points", ()):
            click.echo(known)
    return 0


def _parsed(duration: str) -> float:
    from shipper.sdk.errors import OptionError
    from shipper.sdk.units import Duration

    try:
        seconds = float(Duration.parse(duration))
    except ValueError as error:
        raise OptionError(f"--for {duration}: {error}") from None
    if not 0 < seconds <= 3600:
        raise OptionError(f"--for {duration}: at most 1h, and more than nothing")
    return seconds


def _watch(answers: Answers, question: Mapping[str, Any]) -> None:
    """Prints events until the watch ends; on Ctrl-C asks for its end, and prints it."""
    answers.ask(question)
    answers.within(question["seconds"] + _GRACE_SECONDS)
    try:
        end = _printed(answers)
    except KeyboardInterrupt:
        answers.end()
        answers.within(_LEAVE_SECONDS)
        end = _printed(answers, only_end=True)
    _say_end(end, question)


def _printed(answers: Answers, *, only_end: bool = False) -> Mapping[str, Any]:
    """Prints the events, unless `only_end`; returns how the watch ended."""
    import orjson

    from shipper.control.asking import NoAnswer
    from shipper.process.log import printable

    show = printable if sys.stdout is not None and sys.stdout.isatty() else str
    while (answer := answers.next()) is not None:
        if "watching" in answer:
            click.echo(f"watching {answer['watching']}; Ctrl-C ends it", err=True)
        elif "event" in answer and not only_end:
            click.echo(show(orjson.dumps(answer["event"]).decode()))
        elif "end" in answer:
            end: dict[str, Any] = answer["end"]
            return end
    raise NoAnswer("the shipper has stopped, or this was not read until the time was over")


def _say_end(end: Mapping[str, Any], question: Mapping[str, Any]) -> None:
    large = f", {end['left_out']} were too large to show" if end["left_out"] else ""
    passed = "1 event that has" if end["passed"] == 1 else f"{end['passed']:,} events that have"
    click.echo(f"{end['shown']:,} of {passed} passed {question['point']}{large}", err=True)
