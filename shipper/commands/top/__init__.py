"""`shipper top`: one running shipper on a terminal, drawn again and again.

looking   asks the shipper and its supervisor, in a thread: a document each second, or why there is none
drawing   the document's view (`shipper.status.view`) as lines; pure
terminal  keys and the size of the terminal
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shipper.commands import with_state


@click.command("top", short_help="Watch a running shipper on a terminal.")
@with_state("The --state of the supervisor, or of `shipper run`.")
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.2, 3600),
    help="Look so often.",
)
@click.option("--once", is_flag=True, help="Look twice, draw once, and end; the default without a terminal.")
@click.option("--json", is_flag=True, help="Look once, and print all of it as one JSON object, without rates.")
def command(state: Path, every: float, once: bool, json: bool) -> int:
    """Watch inputs with their rates, outputs with their answers, the queue, revisions, drains and credentials.

    For what a person can end it shows the commands. It changes nothing, and looking costs the shipper next to nothing.
    Rates are over the last ten seconds.

    \b
    Keys:
      q, Ctrl-C            end
      up, down, j, k       scroll by a line; space, b, page up, page down by a page; g to the top

    \b
    Examples:
      shipper top --state /var/lib/shipper
      shipper top --once --state /var/lib/shipper

    The status is that of `shipper status`: 0 healthy, 1 degraded or not serving yet, 2 failed (or wrong usage), 3 not
    running, 78 no state directory.
    """
    from shipper.commands.top.looking import Looking
    from shipper.commands.top.terminal import draw_once, follow

    looking = Looking(state)
    if json:
        from shipper.protocol.messages import encoded

        click.echo(encoded(looking.document()))
        return looking.status
    if once or sys.stdout is None or not (sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()):
        return draw_once(looking, every)
    return follow(looking, every)
