"""`shipper status`: show what a running shipper does."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Show what a running shipper does.")
@click.option("--state", required=True, type=click.Path(path_type=Path), help="The supervisor's --state directory.")
@click.option("--json", is_flag=True, help="All of it as one JSON object.")
def command(state: Path, json: bool) -> int:
    """Show what the supervisor of --state and its shipper do: health, revisions, queue, drains and credentials.

    \b
    Example:
      shipper status --state /var/lib/shipper
    """
    import sys

    import msgspec

    from shipper.supervise.questions import Status, ask
    from shipper.supervise.show import of_status, show

    status = ask(state, Status())
    if json:
        click.echo(msgspec.json.encode(status))
    else:
        show(of_status(status), sys.stdout)
    return 0
