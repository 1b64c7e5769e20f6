"""`accept-restore`, `settings`: the whole fleet, as its store has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from shipper.commands.fleet.options import seconds_of, with_config, with_json
from shipper.commands.fleet.output import result, show_tables
from shipper.commands.fleet.work import by, publisher_of, run

if TYPE_CHECKING:
    from shipper.fleet.opening import Opened


@click.command("accept-restore", short_help="Go on after the store was restored from an older state.")
@click.option(
    "--force",
    is_flag=True,
    help="Go on even if no member says that the store was restored, or if members use secrets that it does not know.",
)
@with_json
@with_config
@click.pass_context
def accept_restore(context: click.Context, force: bool, json: bool, config: Path | None) -> int:
    """Begin a new epoch after the store was restored from an older state.

    Until then members run on, and acknowledge no version. First make sure that this store is the one to go on with. The
    command waits for a lease, so that the members can register again.

    \b
    Example:
      shipper fleet accept-restore
    """

    async def work(fleet: Opened) -> int:
        from shipper.fleet import operations

        click.echo("waiting for the members to register again", err=True)
        done = await operations.accept_restore(fleet.store, fleet.seals, by(), force=force)
        missing = f"; missing: {', '.join(done.missing)}" if done.missing else ""
        newest = f"version {done.version}" if done.version else "no version"
        text = f"epoch {done.epoch} has begun with {newest}; {done.registered} members have registered{missing}"
        return result(json, done, text)

    return run(context, config, work)


@click.command(short_help="Show or change the settings of the fleet.")
@click.option("--history", type=int, metavar="N", help="How many versions are kept: 2 to 500.")
@click.option(
    "--release-grace",
    metavar="DURATION",
    help="How long a fenced or forgotten member with undelivered events delays a release: at most 8760h.",
)
@click.option(
    "--release-when",
    type=click.Choice(["accepted", "at_once"]),
    help="Whether a release waits until a destination has accepted the secret that has come in its place.",
)
@with_json
@with_config
@click.pass_context
def settings(
    context: click.Context,
    history: int | None,
    release_grace: str | None,
    release_when: Literal["accepted", "at_once"] | None,
    json: bool,
    config: Path | None,
) -> int:
    """Show the settings of the whole fleet, or change those that are given.

    With a shorter history the oldest versions go when the next one is published.

    \b
    Examples:
      shipper fleet settings
      shipper fleet settings --history 100 --release-grace 48h
    """
    grace = None if release_grace is None else seconds_of("--release-grace", release_grace)

    async def work(fleet: Opened) -> int:
        from shipper.fleet import pictures

        publisher = publisher_of(fleet)
        if history is None and grace is None and release_when is None:
            found = (await publisher.head())[0].settings
        else:
            found = await publisher.configure(history=history, release_grace=grace, release_when=release_when)
        return show_tables(pictures.settings_tables(fleet.settings.name, found), found, json=json)

    return run(context, config, work)
