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

    from shipper.supervise.show import show
    from shipper.supervise.status import NotRunning, ask

    try:
        status = ask(state)
    except NotRunning as error:
        raise click.ClickException(str(error)) from None
    if json:
        click.echo(msgspec.json.encode(status))
    else:
        show(status, sys.stdout)
    return 0
