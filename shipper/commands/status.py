"""`shipper status`: shows the state of a running shipper, or of its directory while none runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shipper.commands import with_state

if TYPE_CHECKING:
    from shipper.supervise.show import Screen

HEALTHY, DEGRADED, FAILED, NOT_RUNNING = 0, 1, 2, 3


@click.command(short_help="Show the state of a running shipper.")
@with_state("The supervisor's --state directory.")
@click.option("--json", is_flag=True, help="All of it as one JSON object.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1, max=86400),
    metavar="[SECONDS]",
    help="Show it again and again, every 2 s by default, until Ctrl-C.",
)
def command(state: Path, json: bool, watch: float | None) -> int:
    """Show health, revisions, queue, drains and credentials of the supervisor of --state and its shipper.

    If no supervisor answers, this reads the state directory without changing it. For a blocked drain it shows the
    commands that end it.

    \b
    Examples:
      shipper status --state /var/lib/shipper
      shipper status --state /var/lib/shipper --watch

    Exit status (with --watch, of the last look): 0 healthy, 1 degraded or not serving yet, 2 failed (or wrong
    usage), 3 not running, 78 no state directory.
    """
    import sys
    import time

    from shipper.supervise.show import Screen

    screen, status = Screen(sys.stdout), None
    try:
        while True:
            status = look(state)
            _show(status, state, screen, json=json, again=watch is not None)
            if watch is None:
                break
            time.sleep(watch)
    except KeyboardInterrupt:
        if status is None:
            raise
    return exit_status(status)


def look(state: Path) -> dict[str, Any]:
    """Returns the supervisor's answer, or the stored status without one. Raises OptionError for no state directory."""
    from shipper.supervise import absent
    from shipper.supervise.questions import NotRunning, Silent, Status, Unanswered, ask

    try:
        try:
            return ask(state, Status())
        except Unanswered:  # a supervisor that was ending does not listen any more, and has not failed
            return ask(state, Status())
    except Silent as error:
        return absent.status(state, str(error))
    except NotRunning:
        return absent.status(state, None)


def exit_status(status: Mapping[str, Any]) -> int:
    """Returns the exit status for the state of the whole."""
    if not status.get("running", True):
        return NOT_RUNNING
    return {"HEALTHY": HEALTHY, "FAILED": FAILED}.get(status["state"], DEGRADED)


def _show(status: Mapping[str, Any], state: Path, screen: Screen, *, json: bool, again: bool) -> None:
    from shipper.commands.order import command as orders
    from shipper.protocol.messages import encoded
    from shipper.supervise.show import of_status

    if json:
        click.echo(encoded(status))
        return
    tables = of_status(status, str(state), orders.commands)
    if again:
        screen.redraw(tables)
    else:
        screen.draw(tables)
